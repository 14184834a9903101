/// @file nn.h
/// Pieces of neural networks around the matrix product: activations, bias gradients, softmax.
///
/// Matrices are row-major and contiguous here. f32, f16, and bf16 are read and written; arithmetic
/// is fp32 with one rounding per output. The bits are the same on every level and for any number of
/// threads, those of NaN aside. exp(x) below 2^-126 counts as zero, so sigmoid and softmax have no
/// subnormal results of their own making.
#ifndef MPCORE_NN_H_
#define MPCORE_NN_H_

#include "mpcore/base.h"
#include "mpcore/gemm.h"

#ifdef __cplusplus
extern "C" {
#endif

/// y[i] = activation(x[i]) for n elements; y may equal x.
MPCORE_API mpcore_status mpcore_activation_forward(mpcore_context* ctx,
                                                   mpcore_activation activation, int64_t n,
                                                   const void* x, void* y, mpcore_dtype dtype);

/// Backward of z -> y = activation(z) and of the bias that was added to z, in one pass:
/// dz = dy * activation'(z) and db[j] = sum_i dz[i, j] (of the fp32 dz): sums over 64 rows in fp32,
/// those over 16 such leaves in double, all groups in double, rounded once.
///
/// @param y   rows x cols: the activation's output for RELU, SIGMOID, and TANH; its input z for
///            GELU, GELU_TANH, and SILU, whose output does not determine the slope; NULL allowed
///            for LINEAR.
/// @param dy  rows x cols.
/// @param dz  rows x cols; may equal dy; NULL: not wanted.
/// @param db  cols fp32 values, or NULL.
/// @p dtype is that of y, dy, and dz.
MPCORE_API mpcore_status mpcore_dense_backward(mpcore_context* ctx, mpcore_activation activation,
                                               int64_t rows, int64_t cols, const void* y,
                                               const void* dy, void* dz, float* db,
                                               mpcore_dtype dtype);

/// y = softmax over each row of x; rows x cols, cols >= 1. y may equal x.
MPCORE_API mpcore_status mpcore_softmax(mpcore_context* ctx, int64_t rows, int64_t cols,
                                        const void* x, void* y, mpcore_dtype dtype);

/// dx = y * (dy - sum_j y_j dy_j) for each row: the backward of softmax. dx may equal dy.
MPCORE_API mpcore_status mpcore_softmax_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                                 const void* y, const void* dy, void* dx,
                                                 mpcore_dtype dtype);

/// Softmax cross-entropy from logits with integer labels, forward and backward in one pass:
/// loss[i] = logsumexp(x[i, :]) - x[i, label[i]];
/// dx[i, j] = scale[i] * (softmax(x)[i, j] - [j == label[i]]).
///
/// @param x       rows x cols logits of @p dtype.
/// @param labels  rows class indices in [0, cols); others are INVALID_ARGUMENT before anything is
///                written.
/// @param scale   rows fp32 factors of the gradient (weight / batch size * loss scale); ignored
///                without dx.
/// @param loss    rows fp32 values, or NULL.
/// @param dx      rows x cols of @p dtype, or NULL; may equal x.
MPCORE_API mpcore_status mpcore_softmax_xent(mpcore_context* ctx, int64_t rows, int64_t cols,
                                             const void* x, const int64_t* labels,
                                             const float* scale, float* loss, void* dx,
                                             mpcore_dtype dtype);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_NN_H_
