/// @file limits.h
/// What this machine can do at most: probes of its arithmetic and of its memory, for benchmarks.
///
/// A call runs one probe; the caller times it. Every thread of the context does the stated work, so
/// rates grow with threads as those of a kernel would at best. Probes use the instructions of the
/// context's level.
#ifndef MPCORE_LIMITS_H_
#define MPCORE_LIMITS_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// An instruction whose rate bounds matrix products. Operands are random numbers: tiles of zeros
/// run faster than any real product.
typedef int32_t mpcore_peak;
enum {
  MPCORE_PEAK_FMA_F32 = 0,   ///< Fused multiply-add of fp32; every level.
  MPCORE_PEAK_DOT_BF16 = 1,  ///< VDPBF16PS; levels from avx512_bf16 on.
  MPCORE_PEAK_AMX_BF16 = 2   ///< TDPBF16PS; level amx.
};

/// A pattern of memory traffic over fp32 arrays a, b, c, d of n elements each.
typedef int32_t mpcore_stream;
enum {
  MPCORE_STREAM_READ = 0,              ///< Reads a.
  MPCORE_STREAM_NEGATE = 1,            ///< a = -a: reads and writes one array.
  MPCORE_STREAM_COPY = 2,              ///< b = a.
  MPCORE_STREAM_COPY_NONTEMPORAL = 3,  ///< b = a, written past the caches.
  MPCORE_STREAM_TRIAD = 4,             ///< c = a + b / 2.
  MPCORE_STREAM_UPDATE = 5  ///< a = d - a, b = max(b, d), c = min(c, d): the traffic of Adam.
};

/// Runs the instruction on each thread: `iterations` rounds of some thousands.
///
/// @param iterations  In [0, 2^31).
/// @param operations  Receives the floating-point operations of all threads together (a multiply
///                    and an add count as two); may be NULL.
/// Errors: INVALID_ARGUMENT, UNSUPPORTED (the level lacks the instruction).
MPCORE_API mpcore_status mpcore_run_peak(mpcore_context* ctx, mpcore_peak peak, int64_t iterations,
                                         int64_t* operations);

/// Passes over the arrays, which the threads share out in equal parts; each thread makes all passes
/// over its part without waiting for the others, so a part that fits its caches stays there.
///
/// @param iterations  Number of passes, in [0, 2^31).
/// @param arrays      As many as the pattern names: a; or a, b; ... They must not overlap.
/// @param bytes       Receives the bytes read and written by the pattern, all passes together, not
///                    counting what a cache reads to write a part of a line; may be NULL.
/// Errors: INVALID_ARGUMENT.
MPCORE_API mpcore_status mpcore_run_stream(mpcore_context* ctx, mpcore_stream stream,
                                           int64_t iterations, int64_t n, float* const* arrays,
                                           int64_t* bytes);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_LIMITS_H_
