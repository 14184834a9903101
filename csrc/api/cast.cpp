// The cast column: argument checks and the split over threads.
#include "mpcore/cast.h"

#include <algorithm>

#include "api/check.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Elements per task: large enough to pay for a hand-over, small enough to balance two threads.
constexpr int64_t kChunk = int64_t{1} << 16;

mpcore_status cast(mpcore_context* ctx, int64_t n, const void* src, mpcore_dtype src_dtype,
                   void* dst, mpcore_dtype dst_dtype) {
  constexpr const char* kName = "mpcore_cast";
  if (const auto s = check_size(kName, "n", n)) return s;
  const int64_t src_size = dtype_size(src_dtype), dst_size = dtype_size(dst_dtype);
  if (src_size == 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: src_dtype is no mpcore_dtype (got %d)", kName,
                src_dtype);
  if (dst_size == 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: dst_dtype is no mpcore_dtype (got %d)", kName,
                dst_dtype);
  if (!is_float_dtype(dst_dtype))
    return fail(MPCORE_UNSUPPORTED,
                "%s: dst_dtype must be float32, float16, bfloat16, or float64 (got %s)", kName,
                mpcore_dtype_name(dst_dtype));
  if (const auto s = check_pointer(kName, "src", src, n)) return s;
  if (const auto s = check_pointer(kName, "dst", dst, n)) return s;
  const bool in_place = src == dst && src_size == dst_size;
  if (!in_place && ranges_overlap(src, n * src_size, dst, n * dst_size))
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: src and dst overlap; they may only be equal, with elements of one size",
                kName);

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  return session.parallel_for((n + kChunk - 1) / kChunk, FpMode::kIeee, [&](int64_t i) {
    const int64_t begin = i * kChunk, count = std::min(kChunk, n - begin);
    kernels.cast(from + begin * src_size, src_dtype, to + begin * dst_size, dst_dtype, count);
  });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_cast(mpcore_context* ctx, int64_t n, const void* src, mpcore_dtype src_dtype,
                          void* dst, mpcore_dtype dst_dtype) {
  return mpcore::guarded([&] { return mpcore::cast(ctx, n, src, src_dtype, dst, dst_dtype); });
}
