/// @file gemm.h
/// Matrix product with fp32 accumulation and a fused epilogue.
#ifndef MPCORE_GEMM_H_
#define MPCORE_GEMM_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// Function applied to each element in fp32 before the one rounding to the output dtype. Shared by
/// the GEMM epilogue and the nn column.
typedef int32_t mpcore_activation;
enum {
  MPCORE_ACTIVATION_LINEAR = 0,
  MPCORE_ACTIVATION_RELU = 1,  ///< x < 0 ? 0 : x, so NaN stays NaN.
  MPCORE_ACTIVATION_SIGMOID = 2,
  MPCORE_ACTIVATION_TANH = 3
};

/// A matrix in memory: element (i, j) stands at data[i * row_stride + j * col_stride]. Strides
/// count elements; any value is allowed for inputs (a transpose swaps them, zero repeats, negative
/// walks back). An output's elements must not overlap each other.
typedef struct mpcore_matrix {
  void* data;
  int64_t row_stride;
  int64_t col_stride;
  mpcore_dtype dtype;
  int32_t reserved;  ///< Must be 0.
} mpcore_matrix;

/// D = activation(A B + bias), or D += A B with `accumulate`.
typedef struct mpcore_gemm_args {
  uint32_t struct_size;  ///< sizeof(mpcore_gemm_args)
  mpcore_activation activation;
  int64_t m, n, k;   ///< A is m x k, B is k x n, D is m x n; each >= 0.
  mpcore_matrix a;   ///< f32, f16, or bf16; never written.
  mpcore_matrix b;   ///< Same dtype as a; never written.
  mpcore_matrix d;   ///< f32, f16, or bf16; must not overlap a, b, or bias.
  const void* bias;  ///< n contiguous elements, or NULL.
  mpcore_dtype bias_dtype;
  int32_t accumulate;  ///< 1: add the product to D (f32 only, no bias, linear); 0: overwrite D.
} mpcore_gemm_args;

/// Computes a matrix product.
///
/// Products are exact and accumulated in fp32; bias and activation are fp32; there is one rounding,
/// to the dtype of D. Row i of D has the same bits whatever the other rows are, however many there
/// are, and for any number of threads. The order of summation over k is fixed per dtype:
///  - f32, f16: one FMA chain in increasing k;
///  - bf16: for each block of 32 k, one FMA chain over the even and one over the odd k, their sum
///    added to the total (the order of the TDPBF16PS instruction). Sums below 2^-126 in magnitude
///    are flushed to zero there, on every level; operands never are.
///
/// Errors: INVALID_ARGUMENT (null, negative size, dtype mix, overlap, reserved fields), UNSUPPORTED
/// (dtype). Workspace comes from the context. k == 0 gives activation(bias).
MPCORE_API mpcore_status mpcore_gemm(mpcore_context* ctx, const mpcore_gemm_args* args);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_GEMM_H_
