# The Cython modules of mpcore._core. They share the one libmpcore beside them in the wheel.
find_package(Python COMPONENTS Interpreter Development.Module NumPy ${SKBUILD_SABI_COMPONENT}
             REQUIRED)

set(_core_dir "${PROJECT_SOURCE_DIR}/src/mpcore/_core")
set(_cython_directives
    language_level=3 boundscheck=False wraparound=False embedsignature=True
    freethreading_compatible=True)
list(TRANSFORM _cython_directives PREPEND "--directive=")

# Builds _core/<name>.pyx as mpcore._core.<name>.
function(mpcore_cython_module name)
  set(pyx "${_core_dir}/${name}.pyx")
  set(generated "${PROJECT_BINARY_DIR}/_core/${name}.c")
  add_custom_command(
    OUTPUT "${generated}"
    COMMAND Python::Interpreter -m cython ${_cython_directives} --module-name mpcore._core.${name}
            -I "${PROJECT_SOURCE_DIR}/src" --depfile -o "${generated}" "${pyx}"
    DEPENDS "${pyx}"
    DEPFILE "${generated}.dep"
    VERBATIM)

  if(SKBUILD_SABI_VERSION)
    python_add_library(${name} MODULE USE_SABI ${SKBUILD_SABI_VERSION} WITH_SOABI "${generated}")
  else()
    python_add_library(${name} MODULE WITH_SOABI "${generated}")
  endif()
  target_compile_definitions(${name} PRIVATE NPY_NO_DEPRECATED_API=NPY_2_0_API_VERSION
                                             NPY_TARGET_VERSION=NPY_2_0_API_VERSION)
  target_link_libraries(${name} PRIVATE mpcore Python::NumPy)
  set_target_properties(${name} PROPERTIES
    INSTALL_RPATH "$ORIGIN/../lib"
    LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/_core")
  install(TARGETS ${name} DESTINATION _core)
endfunction()

file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/_core")
foreach(name adapt runtime cast gemm nn nn_attention nn_conv nn_norm grad limits optim)
  mpcore_cython_module(${name})
endforeach()
