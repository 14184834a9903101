// What CMake knew when it compiled this library.
#include "mpcore/base.h"

namespace {

void put(const char** out, const char* text) {
  if (out != nullptr) *out = text;
}

}  // namespace

mpcore_status mpcore_build_info(const char** compiler, const char** type, const char** flags,
                                const char** commit) {
  put(compiler, MPCORE_BUILD_COMPILER);
  put(type, MPCORE_BUILD_TYPE);
  put(flags, MPCORE_BUILD_FLAGS);
  put(commit, MPCORE_BUILD_COMMIT);
  return MPCORE_OK;
}
