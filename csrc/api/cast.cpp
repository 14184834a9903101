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

// From here on the destination is written past the caches: it would push out what they hold, and
// be gone from them itself before anybody reads it. Measured: between L2 and here the two ways are
// even at best, beyond it streaming is 1.5 to 1.9 times as fast.
constexpr int64_t kStreamBytes = int64_t{1} << 23;

mpcore_status check_arrays(const char* name, int64_t n, const void* src, mpcore_dtype src_dtype,
                           const void* dst, mpcore_dtype dst_dtype) {
  if (const auto s = check_size(name, "n", n)) return s;
  const int64_t src_size = dtype_size(src_dtype), dst_size = dtype_size(dst_dtype);
  if (src_size == 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: src_dtype is no mpcore_dtype (got %d)", name,
                src_dtype);
  if (dst_size == 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: dst_dtype is no mpcore_dtype (got %d)", name,
                dst_dtype);
  if (const auto s = check_pointer(name, "src", src, n)) return s;
  if (const auto s = check_pointer(name, "dst", dst, n)) return s;
  const bool in_place = src == dst && src_size == dst_size;
  if (!in_place && ranges_overlap(src, n * src_size, dst, n * dst_size))
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: src and dst overlap; they may only be equal, with elements of one size", name);
  return MPCORE_OK;
}

mpcore_status cast(mpcore_context* ctx, int64_t n, const void* src, mpcore_dtype src_dtype,
                   void* dst, mpcore_dtype dst_dtype) {
  if (const auto s = check_arrays("mpcore_cast", n, src, src_dtype, dst, dst_dtype)) return s;
  const int64_t src_size = dtype_size(src_dtype), dst_size = dtype_size(dst_dtype);

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const KernelTable& kernels = session.kernels();
  const auto kernel = n * dst_size >= kStreamBytes ? kernels.cast_stream : kernels.cast;
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  return session.parallel_for((n + kChunk - 1) / kChunk, FpMode::kIeee, [&](int64_t i) {
    const int64_t begin = i * kChunk, count = std::min(kChunk, n - begin);
    kernel(from + begin * src_size, src_dtype, to + begin * dst_size, dst_dtype, count);
  });
}

mpcore_status cast_stochastic(mpcore_context* ctx, int64_t n, const float* src, void* dst,
                              mpcore_dtype dst_dtype, uint64_t seed, uint64_t offset) {
  constexpr const char* kName = "mpcore_cast_stochastic";
  if (const auto s = check_arrays(kName, n, src, MPCORE_DTYPE_F32, dst, dst_dtype)) return s;
  if (dst_dtype != MPCORE_DTYPE_F16 && dst_dtype != MPCORE_DTYPE_BF16)
    return fail(MPCORE_UNSUPPORTED, "%s: dst_dtype must be float16 or bfloat16 (got %s)", kName,
                mpcore_dtype_name(dst_dtype));

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const KernelTable& kernels = session.kernels();
  const char* from = reinterpret_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  return session.parallel_for((n + kChunk - 1) / kChunk, FpMode::kIeee, [&](int64_t i) {
    const int64_t begin = i * kChunk, count = std::min(kChunk, n - begin);
    kernels.cast_stochastic(from + begin * int64_t{sizeof(float)},
                            to + begin * dtype_size(dst_dtype), dst_dtype, count, seed,
                            offset + static_cast<uint64_t>(begin));
  });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_cast(mpcore_context* ctx, int64_t n, const void* src, mpcore_dtype src_dtype,
                          void* dst, mpcore_dtype dst_dtype) {
  return mpcore::guarded([&] { return mpcore::cast(ctx, n, src, src_dtype, dst, dst_dtype); });
}

mpcore_status mpcore_cast_stochastic(mpcore_context* ctx, int64_t n, const float* src, void* dst,
                                     mpcore_dtype dst_dtype, uint64_t seed, uint64_t offset) {
  return mpcore::guarded(
      [&] { return mpcore::cast_stochastic(ctx, n, src, dst, dst_dtype, seed, offset); });
}
