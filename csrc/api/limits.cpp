// The limits column: argument checks, and the same probe on every thread.
#include "mpcore/limits.h"

#include <algorithm>
#include <cinttypes>
#include <iterator>

#include "api/check.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

struct Stream {
  int arrays;  // that the pattern names
  int passed;  // elements read and written per element of an array
};
constexpr Stream kStreams[] = {{1, 1}, {1, 2}, {2, 2}, {2, 2}, {3, 3}, {4, 7}};
constexpr const char* kPeakNames[kPeakCount] = {"fp32 FMA", "VDPBF16PS", "TDPBF16PS"};

mpcore_status check_iterations(const char* function, int64_t iterations) {
  if (iterations >= 0 && iterations <= INT32_MAX) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: iterations must be in [0, 2^31) (got iterations=%" PRId64 ")", function,
              iterations);
}

mpcore_status run_peak(mpcore_context* ctx, mpcore_peak peak, int64_t iterations,
                       int64_t* operations) {
  constexpr const char* kName = "mpcore_run_peak";
  if (peak < 0 || peak >= kPeakCount)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: peak is no mpcore_peak (got %d)", kName, peak);
  if (const auto s = check_iterations(kName, iterations)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto kernel = session.kernels().limits.peak[peak];
  if (kernel == nullptr)
    return fail(MPCORE_UNSUPPORTED, "%s: level %s has no %s", kName, session.kernels().name,
                kPeakNames[peak]);
  int64_t each = 0;
  const auto status = session.parallel_for(session.num_threads(), FpMode::kIeee, [&](int64_t i) {
    const int64_t done = kernel(iterations);
    if (i == 0) each = done;
  });
  if (status == MPCORE_OK && operations != nullptr) *operations = each * session.num_threads();
  return status;
}

mpcore_status check_stream(const char* function, mpcore_stream stream, int64_t n,
                           float* const* arrays) {
  if (stream < 0 || stream >= static_cast<int32_t>(std::size(kStreams)))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: stream is no mpcore_stream (got %d)", function,
                stream);
  if (const auto s = check_size(function, "n", n)) return s;
  if (const auto s = check_pointer(function, "arrays", arrays, 1)) return s;
  const int64_t bytes = n * int64_t{sizeof(float)};
  for (int i = 0; i < kStreams[stream].arrays; ++i) {
    if (const auto s = check_pointer(function, "arrays[i]", arrays[i], n)) return s;
    for (int j = 0; j < i; ++j)
      if (ranges_overlap(arrays[i], bytes, arrays[j], bytes))
        return fail(MPCORE_INVALID_ARGUMENT, "%s: arrays[%d] and arrays[%d] overlap", function, j,
                    i);
  }
  return MPCORE_OK;
}

mpcore_status run_stream(mpcore_context* ctx, mpcore_stream stream, int64_t iterations, int64_t n,
                         float* const* arrays, int64_t* bytes) {
  constexpr const char* kName = "mpcore_run_stream";
  if (const auto s = check_stream(kName, stream, n, arrays)) return s;
  if (const auto s = check_iterations(kName, iterations)) return s;
  int64_t moved;
  if (__builtin_mul_overflow(iterations * kStreams[stream].passed * int64_t{sizeof(float)}, n,
                             &moved))
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: the bytes of all passes must fit in int64 (got iterations=%" PRId64
                ", n=%" PRId64 ")",
                kName, iterations, n);

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto kernel = session.kernels().limits.stream;
  // Whole cache lines per thread.
  const int64_t share = ceil_div(ceil_div(n, session.num_threads()), 16) * 16;
  const auto status = session.parallel_for(session.num_threads(), FpMode::kIeee, [&](int64_t i) {
    const int64_t begin = std::min(n, i * share), count = std::min(share, n - begin);
    float* part[4] = {};
    for (int a = 0; a < kStreams[stream].arrays && count > 0; ++a) part[a] = arrays[a] + begin;
    kernel(stream, iterations, count, part);
  });
  if (status == MPCORE_OK && bytes != nullptr) *bytes = moved;
  return status;
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_run_peak(mpcore_context* ctx, mpcore_peak peak, int64_t iterations,
                              int64_t* operations) {
  return mpcore::guarded([&] { return mpcore::run_peak(ctx, peak, iterations, operations); });
}

mpcore_status mpcore_run_stream(mpcore_context* ctx, mpcore_stream stream, int64_t iterations,
                                int64_t n, float* const* arrays, int64_t* bytes) {
  return mpcore::guarded(
      [&] { return mpcore::run_stream(ctx, stream, iterations, n, arrays, bytes); });
}
