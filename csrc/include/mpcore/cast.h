/// @file cast.h
/// Conversion between element types.
#ifndef MPCORE_CAST_H_
#define MPCORE_CAST_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Converts @p n elements of @p src (any dtype) to @p dst (f32, f16, bf16, or f64).
///
/// One rounding to nearest, ties to even; subnormals are kept; values beyond the largest finite
/// number become infinite. NaN stays a quiet NaN with its sign: to f16 with its top payload bits,
/// to bf16 as 0x7fc0. The bits are the same on every level and for any number of threads.
///
/// @param[in]  src  n elements; may equal @p dst when both dtypes have the same size, must not
///                  overlap it otherwise.
/// Errors: INVALID_ARGUMENT (null, n < 0, unknown dtype, overlap), UNSUPPORTED (integer @p
/// dst_dtype). Cost: one read of src, one write of dst.
MPCORE_API mpcore_status mpcore_cast(mpcore_context* ctx, int64_t n, const void* src,
                                     mpcore_dtype src_dtype, void* dst, mpcore_dtype dst_dtype);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_CAST_H_
