/// @file optim.h
/// Optimizer updates: one call per step, one pass over memory, any number of tensors.
///
/// For every element, in this order: g = clip(grad * grad_multiplier); w -= w * weight_decay * lr;
/// the optimizer's rule; write w, the state, and the low-precision copy of w (rounded once, to
/// nearest even). Arithmetic is fp32 without contraction (f64 for f64 parameters). Subnormal inputs
/// and results count as zero inside an update, on every level, so that moments which have decayed
/// away do not slow it. The bits are the same on every level and for any number of threads, those
/// of NaN aside.
///
/// An update does not look for infinities or NaN: call `mpcore_all_finite` first and skip the step.
#ifndef MPCORE_OPTIM_H_
#define MPCORE_OPTIM_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One parameter with everything its update touches. Arrays are contiguous, hold `size` elements,
/// and do not overlap. Overlap is checked within a tensor; that no two tensors of a call share
/// memory is the caller's promise.
typedef struct mpcore_optim_tensor {
  int64_t size;
  void* param;               ///< Read and written.
  const void* grad;          ///< Read only; f32, f16, bf16 (f64 with an f64 param).
  void* copy;                ///< Low-precision copy of param as stored, written; NULL: none.
  void* state[4];            ///< Of the state dtype: f32, or f64 for f64 params. Unused ones NULL.
  mpcore_dtype param_dtype;  ///< f32, f16, bf16, or f64.
  mpcore_dtype grad_dtype;
  mpcore_dtype copy_dtype;  ///< f16 or bf16; ignored without copy.
  int32_t reserved;         ///< Must be 0.
  double grad_multiplier;   ///< Unscaling and norm clipping in one factor; 1 for none.
  double weight_decay;      ///< 0 for none.
} mpcore_optim_tensor;

/// Stochastic gradient descent. momentum == 0: w -= lr * g. Otherwise, with state[0] = v:
/// v = momentum * v - lr * g;  w += v,  or with nesterov  w += momentum * v - lr * g.
typedef struct mpcore_sgd_args {
  uint32_t struct_size;  ///< sizeof(mpcore_sgd_args)
  int32_t nesterov;
  double learning_rate;
  double momentum;   ///< In [0, 1].
  double clipvalue;  ///< > 0: g is clamped to [-clipvalue, clipvalue]; 0: off.
} mpcore_sgd_args;

MPCORE_API mpcore_status mpcore_sgd_step(mpcore_context* ctx, const mpcore_sgd_args* args,
                                         int64_t count, const mpcore_optim_tensor* tensors);

/// Adam (Kingma & Ba, "epsilon hat" form before section 2.1). With state[0] = m, state[1] = v, and
/// with amsgrad state[2] = vhat:
/// m += (g - m)(1 - beta_1);  v += (g^2 - v)(1 - beta_2);  vhat = max(vhat, v);
/// w -= alpha * m / (sqrt(v or vhat) + epsilon),  alpha = lr * sqrt(1 - beta_2^t) / (1 - beta_1^t),
/// alpha evaluated in double. AdamW is this with a weight_decay.
typedef struct mpcore_adam_args {
  uint32_t struct_size;  ///< sizeof(mpcore_adam_args)
  int32_t amsgrad;
  double learning_rate;
  double beta_1;     ///< In [0, 1).
  double beta_2;     ///< In [0, 1).
  double epsilon;    ///< >= 0.
  int64_t step;      ///< t, 1 for the first update.
  double clipvalue;  ///< > 0: g is clamped to [-clipvalue, clipvalue]; 0: off.
} mpcore_adam_args;

MPCORE_API mpcore_status mpcore_adam_step(mpcore_context* ctx, const mpcore_adam_args* args,
                                          int64_t count, const mpcore_optim_tensor* tensors);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_OPTIM_H_
