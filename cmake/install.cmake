# What is installed for C and C++ users: library, headers, CMake package, pkg-config file. In a
# wheel the prefix is the Python package itself.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(SKBUILD)
  set(_bin bin)
  set(_lib lib)
  set(_include include)
else()
  set(_bin ${CMAKE_INSTALL_BINDIR})
  set(_lib ${CMAKE_INSTALL_LIBDIR})
  set(_include ${CMAKE_INSTALL_INCLUDEDIR})
endif()
set(_config_dir ${_lib}/cmake/mpcore)

if(SKBUILD)
  # A wheel holds no symlinks, and a copy under a second name would be loaded as a second library
  # with its own threads and buffers. So: the file of the SONAME alone, and a linker script for
  # -lmpcore.
  install(TARGETS mpcore EXPORT mpcoreTargets LIBRARY DESTINATION ${_lib} NAMELINK_SKIP)
  file(GENERATE OUTPUT "${PROJECT_BINARY_DIR}/linker_script/libmpcore.so"
       CONTENT "INPUT ( $<TARGET_SONAME_FILE_NAME:mpcore> )\n")
  install(FILES "${PROJECT_BINARY_DIR}/linker_script/libmpcore.so" DESTINATION ${_lib})
else()
  install(TARGETS mpcore EXPORT mpcoreTargets LIBRARY DESTINATION ${_lib})
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/csrc/include/mpcore" DESTINATION ${_include}
        FILES_MATCHING PATTERN "*.h")

if(MPCORE_BUILD_BENCH)
  # Beside the library it measures, as `openssl speed` comes with OpenSSL: what an embedder sees of
  # a machine must not need Python, nor the source tree.
  file(RELATIVE_PATH _lib_from_bin "/${_bin}" "/${_lib}")
  set_target_properties(mpcore_bench PROPERTIES INSTALL_RPATH "$ORIGIN/${_lib_from_bin}")
  install(TARGETS mpcore_bench RUNTIME DESTINATION ${_bin})
endif()

install(EXPORT mpcoreTargets NAMESPACE mpcore:: DESTINATION ${_config_dir})
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/mpcoreConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/mpcoreConfig.cmake"
                              INSTALL_DESTINATION ${_config_dir})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/mpcoreConfigVersion.cmake"
                                 COMPATIBILITY SameMajorVersion)
install(FILES "${PROJECT_BINARY_DIR}/mpcoreConfig.cmake"
              "${PROJECT_BINARY_DIR}/mpcoreConfigVersion.cmake"
        DESTINATION ${_config_dir})

# Relative to the .pc file, so that the tree may be moved.
file(RELATIVE_PATH MPCORE_PC_PREFIX "/${_lib}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" MPCORE_PC_PREFIX "${MPCORE_PC_PREFIX}")
set(MPCORE_PC_LIBDIR ${_lib})
set(MPCORE_PC_INCLUDEDIR ${_include})
configure_file("${PROJECT_SOURCE_DIR}/cmake/mpcore.pc.in" "${PROJECT_BINARY_DIR}/mpcore.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/mpcore.pc" DESTINATION ${_lib}/pkgconfig)
