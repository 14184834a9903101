#include "api/nn_window.h"

#include <cinttypes>
#include <initializer_list>

#include "api/check.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Bounds every size, so that the position of a window cannot overflow.
constexpr int64_t kLargest = INT32_MAX;

struct Field {
  const char* name;
  int64_t value, least;
};

mpcore_status check_field(const char* function, const Field& field) {
  if (field.value >= field.least && field.value <= kLargest) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: window->%s must be in [%" PRId64 ", %" PRId64 "] (got %s=%" PRId64 ")", function,
              field.name, field.least, kLargest, field.name, field.value);
}

mpcore_status check_array(const char* function, const char* what,
                          std::initializer_list<int64_t> lengths) {
  int64_t size = 8;  // the largest element, a double
  for (const int64_t length : lengths)
    if (length == 0) return MPCORE_OK;
  for (const int64_t length : lengths)
    if (__builtin_mul_overflow(size, length, &size))
      return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must fit in memory", function, what);
  return MPCORE_OK;
}

}  // namespace

mpcore_status check_window(const char* function, const mpcore_window2d* window, int64_t depth) {
  if (const auto s = check_pointer(function, "window", window, 1)) return s;
  if (const auto s = check_struct(function, "window", window, window->struct_size, sizeof(*window)))
    return s;
  const mpcore_window2d& w = *window;
  if (const auto s = check_compute_dtype(function, "window->dtype", w.dtype)) return s;
  for (const Field& field : std::initializer_list<Field>{{"batch", w.batch, 0},
                                                         {"height", w.height, 0},
                                                         {"width", w.width, 0},
                                                         {"channels", w.channels, 0},
                                                         {"out_height", w.out_height, 0},
                                                         {"out_width", w.out_width, 0},
                                                         {"window_height", w.window_height, 1},
                                                         {"window_width", w.window_width, 1},
                                                         {"stride_height", w.stride_height, 1},
                                                         {"stride_width", w.stride_width, 1},
                                                         {"dilation_height", w.dilation_height, 1},
                                                         {"dilation_width", w.dilation_width, 1},
                                                         {"pad_top", w.pad_top, 0},
                                                         {"pad_left", w.pad_left, 0}})
    if (const auto s = check_field(function, field)) return s;
  if (const auto s = check_array(function, "images", {w.batch, w.height, w.width, w.channels}))
    return s;
  if (const auto s =
          check_array(function, "the output", {w.batch, w.out_height, w.out_width, depth}))
    return s;
  if (const auto s =
          check_array(function, "a kernel", {w.window_height, w.window_width, w.channels, depth}))
    return s;
  return check_array(function, "a row of windows",
                     {w.out_width, w.window_height, w.window_width, w.channels});
}

}  // namespace mpcore
