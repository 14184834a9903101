/// @file nn.h
/// Pieces of neural networks around the matrix product: activations, bias gradients, softmax,
/// normalisation.
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

/// y = log(softmax(x)) of each row: x - max - log(sum(exp(x - max))); rows x cols, cols >= 1. y may
/// equal x.
MPCORE_API mpcore_status mpcore_log_softmax(mpcore_context* ctx, int64_t rows, int64_t cols,
                                            const void* x, void* y, mpcore_dtype dtype);

/// dx = dy - exp(y) * sum_j dy_j for each row: the backward of log_softmax. dx may equal dy.
MPCORE_API mpcore_status mpcore_log_softmax_backward(mpcore_context* ctx, int64_t rows,
                                                     int64_t cols, const void* y, const void* dy,
                                                     void* dx, mpcore_dtype dtype);

/// Softmax cross-entropy from logits with a distribution t of each row, forward and backward in one
/// pass: loss[i] = sum_j t_j (logsumexp(x) - x_j);  dx[i, j] = scale[i] (softmax(x)_j sum(t) -
/// t_j).
///
/// t_j = (1 - smoothing) targets[i, j] + smoothing / cols; with labels, targets has a one at the
/// label and zeros elsewhere. Where t_j is 0, a logit of -inf counts for nothing.
///
/// @param labels     as for mpcore_softmax_xent, or NULL.
/// @param targets    rows x cols fp32 values, or NULL: exactly one of the two is given.
/// @param smoothing  in [0, 1].
/// The other arguments are those of mpcore_softmax_xent, which this is with labels and 0.
MPCORE_API mpcore_status mpcore_softmax_xent_smoothed(mpcore_context* ctx, int64_t rows,
                                                      int64_t cols, const void* x,
                                                      const int64_t* labels, const float* targets,
                                                      float smoothing, const float* scale,
                                                      float* loss, void* dx, mpcore_dtype dtype);

/// Layer normalisation of each row: h = (x - mean) rstd, rstd = 1 / sqrt(variance + epsilon),
/// y = h gamma + beta; rows x cols, cols >= 1.
///
/// Statistics are fp32: the mean, then sums of the differences to it and of their squares, by which
/// mean and variance are corrected. A row of equal values (below 2^80) therefore gives exactly
/// beta, whatever epsilon. The bits of a row depend on no other row.
///
/// @param gamma, beta  cols fp32 values each; NULL: 1 and 0.
/// @param epsilon      > 0, finite.
/// @param y            of @p dtype, as x, which it may equal.
/// @param mean, rstd   rows fp32 values each, for the backward; NULL: not wanted.
MPCORE_API mpcore_status mpcore_layer_norm(mpcore_context* ctx, int64_t rows, int64_t cols,
                                           const void* x, const float* gamma, const float* beta,
                                           float epsilon, void* y, float* mean, float* rstd,
                                           mpcore_dtype dtype);

/// Backward of layer normalisation, one pass over memory: with g = dy gamma,
/// dx = rstd (g - mean(g) - h mean(g h));  dgamma[j] = sum_i dy h;  dbeta[j] = sum_i dy.
///
/// @param dx             of @p dtype, as x and dy; may equal dy; NULL: not wanted.
/// @param dgamma, dbeta  cols fp32 values each, summed in the order of mpcore_dense_backward; NULL:
///                       not wanted.
MPCORE_API mpcore_status mpcore_layer_norm_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                                    const void* x, const float* gamma,
                                                    const float* mean, const float* rstd,
                                                    const void* dy, void* dx, float* dgamma,
                                                    float* dbeta, mpcore_dtype dtype);

/// RMS normalisation of each row: y = x rstd gamma, rstd = 1 / sqrt(mean(x^2) + epsilon). As
/// mpcore_layer_norm, but nothing is subtracted.
MPCORE_API mpcore_status mpcore_rms_norm(mpcore_context* ctx, int64_t rows, int64_t cols,
                                         const void* x, const float* gamma, float epsilon, void* y,
                                         float* rstd, mpcore_dtype dtype);

/// Backward of RMS normalisation, as mpcore_layer_norm_backward without mean(g).
MPCORE_API mpcore_status mpcore_rms_norm_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                                  const void* x, const float* gamma,
                                                  const float* rstd, const void* dy, void* dx,
                                                  float* dgamma, mpcore_dtype dtype);

/// Mean and variance (of the population) of each column: the statistics of batch normalisation;
/// rows x cols, both >= 1.
///
/// Leaves of 64 rows are summed in fp32, as differences to their own mean; the leaves are put
/// together in double, in increasing order, and the result is rounded once.
MPCORE_API mpcore_status mpcore_batch_norm_moments(mpcore_context* ctx, int64_t rows, int64_t cols,
                                                   const void* x, float* mean, float* variance,
                                                   mpcore_dtype dtype);

/// Batch normalisation with given statistics: h = (x - mean) rstd, rstd = 1 / sqrt(variance +
/// epsilon), y = h gamma + beta for each column; rows x cols, cols >= 1.
///
/// @param mean, variance, gamma, beta  cols fp32 values each; gamma, beta NULL: 1 and 0.
/// @param epsilon                      > 0, finite.
/// @param y                            of @p dtype, as x, which it may equal.
MPCORE_API mpcore_status mpcore_batch_norm(mpcore_context* ctx, int64_t rows, int64_t cols,
                                           const void* x, const float* mean, const float* variance,
                                           float epsilon, const float* gamma, const float* beta,
                                           void* y, mpcore_dtype dtype);

/// Backward of batch normalisation: dgamma[j] = sum_i dy h, dbeta[j] = sum_i dy, and
/// dx = (dy - (dbeta + h dgamma) / rows) rstd gamma where the statistics are those of x,
/// dx = dy rstd gamma where they are constants.
///
/// @param constant_moments  nonzero: mean and variance do not depend on x.
/// @param dx                of @p dtype, as x and dy; may equal dy; NULL: not wanted.
/// @param dgamma, dbeta     cols fp32 values each, summed in the order of mpcore_dense_backward;
///                          NULL: not wanted.
MPCORE_API mpcore_status mpcore_batch_norm_backward(
    mpcore_context* ctx, int64_t rows, int64_t cols, const void* x, const float* mean,
    const float* variance, float epsilon, const float* gamma, const void* dy,
    int32_t constant_moments, void* dx, float* dgamma, float* dbeta, mpcore_dtype dtype);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_NN_H_
