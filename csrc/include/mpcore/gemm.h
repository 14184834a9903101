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
  MPCORE_ACTIVATION_TANH = 3,
  MPCORE_ACTIVATION_GELU = 4,       ///< x Phi(x), Phi the normal distribution ("erf" form).
  MPCORE_ACTIVATION_GELU_TANH = 5,  ///< x sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
  MPCORE_ACTIVATION_SILU = 6        ///< x sigmoid(x), also called swish.
};

/// How a float32 product may be computed; it is always accumulated in fp32. A level that has no
/// faster way computes a more exact one.
typedef int32_t mpcore_matmul_precision;
enum {
  MPCORE_MATMUL_PRECISION_DEFAULT = 0,  ///< The context's setting.
  MPCORE_MATMUL_PRECISION_HIGHEST = 1,  ///< fp32 products: one FMA chain, same bits on every level.
  MPCORE_MATMUL_PRECISION_HIGH = 2,     ///< At least each operand as a sum of three bf16.
  MPCORE_MATMUL_PRECISION_MEDIUM = 3    ///< At least each operand rounded to bf16.
};

/// A matrix in memory, or a batch of them: element (i, j) of matrix l stands at
/// data[l * batch_stride + i * row_stride + j * col_stride]. Strides count elements; any value is
/// allowed for inputs (a transpose swaps them, zero repeats, negative walks back). An output's
/// elements must not overlap each other.
typedef struct mpcore_matrix {
  void* data;
  int64_t row_stride;
  int64_t col_stride;
  int64_t batch_stride;
  mpcore_dtype dtype;
  int32_t reserved;  ///< Must be 0.
} mpcore_matrix;

/// Z = alpha A B + beta D + bias, then D = activation(Z) + residual, for each matrix of a batch.
/// Dtypes are f32, f16, or bf16. Zero everything and set what is wanted: `batch` and `alpha` are
/// usually 1.
typedef struct mpcore_gemm_args {
  uint32_t struct_size;  ///< sizeof(mpcore_gemm_args)
  mpcore_activation activation;
  int64_t batch;         ///< Number of products; >= 0.
  int64_t m, n, k;       ///< A is m x k, B is k x n, D is m x n; each >= 0.
  mpcore_matrix a;       ///< Never written.
  mpcore_matrix b;       ///< Same dtype as a; never written. With packed_b only the dtype counts.
  mpcore_matrix d;       ///< Must not overlap an input; see residual.
  const void* packed_b;  ///< B from mpcore_gemm_pack, for every product of the batch; or NULL.
  float alpha;
  float beta;        ///< 0: D is not read.
  const void* bias;  ///< n contiguous elements, one for each column; or NULL.
  mpcore_dtype bias_dtype;
  mpcore_matmul_precision precision;  ///< For f32 operands; others ignore it.
  mpcore_matrix residual;             ///< m x n; data NULL: none. May be d itself.
  mpcore_matrix pre_activation;       ///< m x n, receives Z rounded to its dtype; data NULL: none.
  int32_t* finite;                    ///< Receives 1 if all of D is finite, else 0; or NULL.
  double* sum_squares;                ///< Receives the sum of the squares of D; or NULL.
} mpcore_gemm_args;

/// Computes a matrix product.
///
/// Products are exact and accumulated in fp32; all after that is fp32, in the order of the formula
/// above; there is one rounding, to the dtype of D. Row i of D has the same bits whatever the other
/// rows and matrices are, however many there are, and for any number of threads. The order of
/// summation over k is fixed per dtype:
///  - f32, f16: one FMA chain in increasing k;
///  - bf16: for each block of 32 k, one FMA chain over the even and one over the odd k, their sum
///    added to the total (the order of the TDPBF16PS instruction). Results below 2^-126 in
///    magnitude are flushed to zero there, on every level; operands never are.
///
/// `finite` and `sum_squares` look at D as written. The squares are summed in double in an order
/// that depends on m, n, and batch alone: sixteen columns of a row by halving, 64 columns in
/// increasing order, then all of those.
///
/// Errors: INVALID_ARGUMENT (null, negative size, dtype mix, overlap, reserved fields), UNSUPPORTED
/// (dtype). Workspace comes from the context. k == 0 makes A B zero.
MPCORE_API mpcore_status mpcore_gemm(mpcore_context* ctx, const mpcore_gemm_args* args);

/// Packs B ahead for products that use it more than once: mpcore_gemm_args.packed_b. The block is
/// opaque and holds the values of B at its own precision. It fits products with the same k, n, and
/// dtype, on the ISA level it was packed on, and for float32 at the same precision; mpcore_gemm
/// refuses others. Results have the same bits as with B itself.
///
/// @param size    bytes that `packed` must have.
/// @param packed  receives B; 64-byte alignment is fastest. Must not overlap b.
/// Errors: as mpcore_gemm; INVALID_ARGUMENT if size is smaller than what mpcore_gemm_pack_size
/// says.
MPCORE_API mpcore_status mpcore_gemm_pack_size(mpcore_context* ctx, int64_t k, int64_t n,
                                               mpcore_dtype dtype,
                                               mpcore_matmul_precision precision, int64_t* size);
MPCORE_API mpcore_status mpcore_gemm_pack(mpcore_context* ctx, int64_t k, int64_t n,
                                          const mpcore_matrix* b, mpcore_matmul_precision precision,
                                          void* packed, int64_t size);

/// Sets how float32 products may be computed from now on: HIGHEST (what a context begins with),
/// HIGH, or MEDIUM; DEFAULT restores HIGHEST. MPCORE_BUSY from inside a task of the context.
MPCORE_API mpcore_status mpcore_set_float32_matmul_precision(mpcore_context* ctx,
                                                             mpcore_matmul_precision precision);
MPCORE_API mpcore_status mpcore_get_float32_matmul_precision(mpcore_context* ctx,
                                                             mpcore_matmul_precision* precision);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_GEMM_H_
