#include "runtime/error.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace mpcore {
namespace {

constexpr int kMessageBytes = 512;
thread_local char t_message[kMessageBytes] = "";

}  // namespace

mpcore_status fail(mpcore_status status, const char* format, ...) noexcept {
  // An argument may be the previous message, so the new one is written beside it first.
  char message[kMessageBytes];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  std::memcpy(t_message, message, sizeof message);
  return status;
}

const char* last_error() noexcept { return t_message; }

}  // namespace mpcore
