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
// --- Convolution ---------------------------------------------------------------------------------

/// Windows that slide over images, for convolution and pooling. Images are contiguous in the order
/// batch, height, width, channels; a one-dimensional signal is an image of width 1. The window at
/// output (i, j) begins at row i * stride_height - pad_top, column j * stride_width - pad_left;
/// what of it lies outside of the image does not count (to a convolution: is zero), so out_height
/// and out_width say how far the padding at the other ends reaches.
typedef struct mpcore_window2d {
  uint32_t struct_size;  ///< sizeof(mpcore_window2d)
  mpcore_dtype dtype;    ///< Of images, kernels, and results: f32, f16, or bf16.
  int64_t batch, height, width, channels;
  int64_t out_height, out_width;
  int64_t window_height, window_width;      ///< In elements, not counting the gaps of dilation.
  int64_t stride_height, stride_width;      ///< >= 1
  int64_t dilation_height, dilation_width;  ///< >= 1
  int64_t pad_top, pad_left;                ///< >= 0
} mpcore_window2d;

/// Convolution (cross-correlation) with bias and activation:
/// z[b, i, j, f] = bias[f] + sum over p, q, c of x[b, row(i, p), col(j, q), g C + c] *
/// kernel[p, q, c, f];  y = activation(z).
///
/// C = channels / groups; g, the group of filter f, is f / (filters / groups). The sum is that of a
/// matrix product with k = (p, q, c) in row-major order (see mpcore_gemm): accumulated in fp32 in
/// the order of the dtype, one rounding at the end. An image's result does not depend on the
/// others.
///
/// @param filters  number of output channels; a multiple of groups, as channels is.
/// @param x       batch x height x width x channels.
/// @param kernel  window_height x window_width x channels / groups x filters.
/// @param bias    filters fp32 values, or NULL.
/// @param y       batch x out_height x out_width x filters.
/// @param pre_activation  receives z, shaped as y; or NULL.
/// Workspace: about 1 MiB, or one row of windows if that is more, and the kernel.
MPCORE_API mpcore_status mpcore_conv2d(mpcore_context* ctx, const mpcore_window2d* window,
                                       int64_t filters, int64_t groups,
                                       mpcore_activation activation, const void* x,
                                       const void* kernel, const float* bias, void* y,
                                       void* pre_activation);

/// dx of mpcore_conv2d, from dz as mpcore_dense_backward gives it (rows: output pixels; cols:
/// filters). Terms are summed over the filters as in mpcore_gemm and added in fp32 in an order that
/// depends on the sizes of an image alone.
MPCORE_API mpcore_status mpcore_conv2d_backward_input(mpcore_context* ctx,
                                                      const mpcore_window2d* window,
                                                      int64_t filters, int64_t groups,
                                                      const void* dz, const void* kernel, void* dx);

/// The kernel's gradient, in fp32. Pixels are summed as in mpcore_gemm, in blocks that depend on
/// the sizes alone and are added in fp32.
MPCORE_API mpcore_status mpcore_conv2d_backward_kernel(mpcore_context* ctx,
                                                       const mpcore_window2d* window,
                                                       int64_t filters, int64_t groups,
                                                       const void* x, const void* dz,
                                                       float* dkernel);

// --- Pooling -------------------------------------------------------------------------------------

typedef int32_t mpcore_pooling;
enum {
  MPCORE_POOLING_MAX = 0,  ///< The last NaN of a window, if there is one; else the first maximum.
  MPCORE_POOLING_AVERAGE = 1  ///< Of those elements of a window that lie inside of the image.
};

/// Reduces each window to a number, channel by channel, in fp32 with one rounding. Dilation must be
/// 1, every window must reach into the image, and have at most 2^24 elements.
///
/// @param x       batch x height x width x channels.
/// @param y       batch x out_height x out_width x channels.
/// @param argmax  shaped as y: where in its window, row by row, the maximum stands; or NULL. Must
/// be
///                NULL for AVERAGE.
MPCORE_API mpcore_status mpcore_pool2d(mpcore_context* ctx, const mpcore_window2d* window,
                                       mpcore_pooling pooling, const void* x, void* y,
                                       int32_t* argmax);

/// dx of mpcore_pool2d: dy goes to the maximum, or in equal shares to all that were averaged. Terms
/// of overlapping windows are added in fp32, those of later windows first.
/// @param argmax  from mpcore_pool2d; NULL for AVERAGE.
MPCORE_API mpcore_status mpcore_pool2d_backward(mpcore_context* ctx, const mpcore_window2d* window,
                                                mpcore_pooling pooling, const int32_t* argmax,
                                                const void* dy, void* dx);

// --- Attention -----------------------------------------------------------------------------------

/// Arrays of scaled dot-product attention. Queries, keys, values, and results are contiguous in the
/// order batch, position, head, feature.
typedef struct mpcore_attention_args {
  uint32_t struct_size;  ///< sizeof(mpcore_attention_args)
  mpcore_dtype dtype;    ///< Of all arrays but bias and mask: f32, f16, or bf16.
  int64_t batch, heads;
  int64_t queries, keys;       ///< Positions.
  int64_t depth, value_depth;  ///< Features: of queries and keys, of values and the result.
  const void* q;               ///< batch x queries x heads x depth
  const void* k;               ///< batch x keys x heads x depth
  const void* v;               ///< batch x keys x heads x value_depth
  /// What is added to the scores, and which scores count (0: not); either may be NULL. The number
  /// for batch b, head h, query i, key j stands at b * stride[0] + h * stride[1] + i * stride[2] +
  /// j; strides are >= 0.
  const float* bias;
  const uint8_t* mask;
  int64_t bias_strides[3];
  int64_t mask_strides[3];
  float scale;
  int32_t causal;  ///< 1: query i sees the keys j <= i; 0: all.
} mpcore_attention_args;

/// y = softmax(scale q k^T + bias) v for each batch and head. Scores and softmax are fp32,
/// probabilities are rounded to the dtype before they multiply v, products are those of
/// mpcore_gemm. A score that does not count is -2^127: it has no share, unless no score of its
/// query counts; then all keys have the same share. Scores of 64 queries of a head exist at a time.
///
/// @param y  batch x queries x heads x value_depth.
MPCORE_API mpcore_status mpcore_attention(mpcore_context* ctx, const mpcore_attention_args* args,
                                          void* y);

/// Gradients of mpcore_attention with respect to q, k, and v, shaped as they are. Probabilities are
/// computed again. Gradients of scores are rounded to the dtype; dk and dv are summed in fp32 over
/// blocks of 64 queries and rounded once.
MPCORE_API mpcore_status mpcore_attention_backward(mpcore_context* ctx,
                                                   const mpcore_attention_args* args,
                                                   const void* dy, void* dq, void* dk, void* dv);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_NN_H_
