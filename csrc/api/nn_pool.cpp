// Pooling: argument checks and the split over threads.
#include <cinttypes>
#include <cstring>

#include "api/check.h"
#include "api/nn_window.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Places within a window are handled as fp32 numbers.
constexpr int64_t kMostElements = int64_t{1} << 24;

mpcore_status check_axis(const char* function, const char* axis, int64_t length, int64_t out,
                         int64_t size, int64_t stride, int64_t pad) {
  if (out == 0 || (pad < size && (out - 1) * stride - pad < length)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: every window must reach into the image along its %s (got length %" PRId64
              ", %" PRId64 " windows of %" PRId64 ", stride %" PRId64 ", padding %" PRId64 ")",
              function, axis, length, out, size, stride, pad);
}

mpcore_status check_pool(const char* function, const mpcore_window2d* window,
                         mpcore_pooling pooling, const int32_t* argmax) {
  if (const auto s = check_window(function, window, window == nullptr ? 0 : window->channels))
    return s;
  const mpcore_window2d& w = *window;
  if (pooling != MPCORE_POOLING_MAX && pooling != MPCORE_POOLING_AVERAGE)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: pooling must be max (0) or average (1) (got %" PRId32 ")", function, pooling);
  if (pooling == MPCORE_POOLING_AVERAGE && argmax != nullptr)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: argmax must be NULL for average", function);
  if (w.dilation_height != 1 || w.dilation_width != 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: the dilation of window must be 1", function);
  if (window_size(w) > kMostElements)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: window must have at most 2^24 elements (got %" PRId64 ")", function,
                window_size(w));
  if (const auto s = check_axis(function, "height", w.height, w.out_height, w.window_height,
                                w.stride_height, w.pad_top))
    return s;
  return check_axis(function, "width", w.width, w.out_width, w.window_width, w.stride_width,
                    w.pad_left);
}

int64_t output_size(const mpcore_window2d& w) { return w.batch * out_pixels(w) * w.channels; }

mpcore_status pool(mpcore_context* ctx, const mpcore_window2d* window, mpcore_pooling pooling,
                   const void* x, void* y, int32_t* argmax) {
  constexpr const char* kName = "mpcore_pool2d";
  if (const auto s = check_pool(kName, window, pooling, argmax)) return s;
  const mpcore_window2d& w = *window;
  const int64_t size = dtype_size(w.dtype), line = w.out_width * w.channels;
  const ByteRange images{"x", x, input_size(w) * size}, output{"y", y, output_size(w) * size};
  const ByteRange places{"argmax", argmax, output_size(w) * int64_t{sizeof(int32_t)}};
  if (const auto s = check_pointer(kName, "x", x, images.bytes)) return s;
  if (const auto s = check_pointer(kName, "y", y, output.bytes)) return s;
  if (const auto s = check_apart(kName, output, images)) return s;
  if (const auto s = check_apart(kName, places, images)) return s;
  if (const auto s = check_apart(kName, places, output)) return s;
  if (output.bytes == 0) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return session.parallel_for(w.batch * w.out_height, FpMode::kIeee, [&](int64_t i) {
    const int64_t image = i / w.out_height;
    session.kernels().pool({.window = &w,
                            .pooling = pooling,
                            .row = i % w.out_height,
                            .from = advance(x, image * image_size(w) * size),
                            .to = advance(y, i * line * size),
                            .argmax = argmax == nullptr ? nullptr : argmax + i * line});
  });
}

mpcore_status pool_backward(mpcore_context* ctx, const mpcore_window2d* window,
                            mpcore_pooling pooling, const int32_t* argmax, const void* dy,
                            void* dx) {
  constexpr const char* kName = "mpcore_pool2d_backward";
  if (const auto s = check_pool(kName, window, pooling, argmax)) return s;
  const mpcore_window2d& w = *window;
  const int64_t size = dtype_size(w.dtype), line = w.width * w.channels;
  const ByteRange output{"dx", dx, input_size(w) * size};
  const ByteRange places{"argmax", argmax, output_size(w) * int64_t{sizeof(int32_t)}};
  if (const auto s = check_pointer(kName, "dy", dy, output_size(w))) return s;
  if (const auto s = check_pointer(kName, "dx", dx, output.bytes)) return s;
  if (pooling == MPCORE_POOLING_MAX)
    if (const auto s = check_pointer(kName, "argmax", argmax, places.bytes)) return s;
  if (const auto s = check_apart(kName, output, {"dy", dy, output_size(w) * size})) return s;
  if (const auto s = check_apart(kName, output, places)) return s;
  if (output.bytes == 0) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const int64_t image_output = out_pixels(w) * w.channels;
  return session.parallel_for(w.batch * w.height, FpMode::kIeee, [&](int64_t i) {
    const int64_t image = i / w.height;
    const int32_t* own = argmax == nullptr ? nullptr : argmax + image * image_output;
    session.kernels().pool_backward({.window = &w,
                                     .pooling = pooling,
                                     .row = i % w.height,
                                     .from = advance(dy, image * image_output * size),
                                     .to = advance(dx, i * line * size),
                                     .argmax = const_cast<int32_t*>(own)});
  });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_pool2d(mpcore_context* ctx, const mpcore_window2d* window,
                            mpcore_pooling pooling, const void* x, void* y, int32_t* argmax) {
  return mpcore::guarded([&] { return mpcore::pool(ctx, window, pooling, x, y, argmax); });
}

mpcore_status mpcore_pool2d_backward(mpcore_context* ctx, const mpcore_window2d* window,
                                     mpcore_pooling pooling, const int32_t* argmax, const void* dy,
                                     void* dx) {
  return mpcore::guarded(
      [&] { return mpcore::pool_backward(ctx, window, pooling, argmax, dy, dx); });
}
