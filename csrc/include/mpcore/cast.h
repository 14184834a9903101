/// @file cast.h
/// Conversion between element types.
#ifndef MPCORE_CAST_H_
#define MPCORE_CAST_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Converts @p n elements of @p src to @p dst, from any dtype to any.
///
/// To a float: one rounding to nearest, ties to even; subnormals are kept; values beyond the
/// largest finite number become infinite. NaN stays a quiet NaN with its sign: to f16 with its top
/// payload bits, to bf16 as 0x7fc0. Float to integer: cut toward zero; what is out of range becomes
/// the nearest integer there is, NaN becomes 0. Integer to integer: modulo 2^bits. To bool: 1 for
/// what is not zero, NaN included. The bits are the same on every level and for any number of
/// threads.
///
/// @param[in]  src  n elements; may equal @p dst when both dtypes have the same size, must not
///                  overlap it otherwise.
/// Errors: INVALID_ARGUMENT (null, n < 0, unknown dtype, overlap). Cost: one read of src, one write
/// of dst; large results are written past the caches.
MPCORE_API mpcore_status mpcore_cast(mpcore_context* ctx, int64_t n, const void* src,
                                     mpcore_dtype src_dtype, void* dst, mpcore_dtype dst_dtype);

/// Converts @p n f32 elements of @p src to f16 or bf16 with stochastic rounding: to one of the two
/// neighbours, with the chance that makes the mean equal to the element.
///
/// Numbers that dst_dtype holds never change. Beyond its largest finite number the upper neighbour
/// is the next power of two, which is infinity; f16 is infinite from 2^16 on. The chance is a
/// multiple of 2^-16 (2^-13 for normal f16), exact except for subnormal f16: there it is rounded
/// up, by less than 2^-16. Infinity and NaN are as in mpcore_cast.
///
/// Element i uses 16 bits that depend on @p seed and @p offset + i only: with e that sum (modulo
/// 2^64) and e = 128 g + 32 w + 16 h + b, half h (0: low) of word w of the Philox4x32-10 block
/// whose counter is 16 g + b and whose key is the seed, low words first. So an array may be cut
/// anywhere: pass the index of the first element of each piece. The bits are the same on every
/// level and for any number of threads.
///
/// @param[in]  src  n elements; must not overlap @p dst.
/// Errors: INVALID_ARGUMENT (null, n < 0, unknown dtype, overlap), UNSUPPORTED (@p dst_dtype is
/// neither f16 nor bf16).
MPCORE_API mpcore_status mpcore_cast_stochastic(mpcore_context* ctx, int64_t n, const float* src,
                                                void* dst, mpcore_dtype dst_dtype, uint64_t seed,
                                                uint64_t offset);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_CAST_H_
