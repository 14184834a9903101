/// @file optim.h
/// Optimizer updates: one call per step, one pass over memory, any number of tensors.
///
/// For every element, in this order: g = clip(grad * grad_multiplier); w -= w * weight_decay * lr;
/// the optimizer's rule; write w, the state, and the low-precision copy of w (rounded once, to
/// nearest even). Arithmetic is fp32 without contraction (f64 for f64 parameters), scalars are
/// double and rounded once. Subnormal inputs and results count as zero inside an update, on every
/// level, so that moments which have decayed away do not slow it. The bits are the same on every
/// level and for any number of threads, those of NaN aside.
///
/// An update does not look for infinities or NaN: call `mpcore_all_finite` first and skip the step.
#ifndef MPCORE_OPTIM_H_
#define MPCORE_OPTIM_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// The rule of an update. lr is the learning rate, t the step, s0, s1, ... the state arrays of a
/// tensor in their order, all zero before the first step where nothing else is said. A rule reads
/// the fields of mpcore_optim_args that its formula names, and no others.
typedef int32_t mpcore_optimizer;
enum {
  /// momentum == 0, no state: w -= lr g. Otherwise v = s0:
  /// v = momentum v - lr g;  w += v,  or with nesterov  w += momentum v - lr g.
  MPCORE_OPTIMIZER_SGD = 0,
  /// m = s0, v = s1, with amsgrad vhat = s2 (else vhat is v). Kingma & Ba, the "epsilon hat" form:
  /// m += (g - m)(1 - beta_1);  v += (g^2 - v)(1 - beta_2);  vhat = max(vhat, v);
  /// w -= lr sqrt(1 - beta_2^t) / (1 - beta_1^t) m / (sqrt(vhat) + epsilon).
  /// AdamW is this with a weight_decay.
  MPCORE_OPTIMIZER_ADAM = 1,
  /// m = s0, u = s1: m as Adam;  u = max(beta_2 u, |g|);
  /// w -= lr / (1 - beta_1^t) m / (u + epsilon).
  MPCORE_OPTIMIZER_ADAMAX = 2,
  /// m = s0, v = s1, both as Adam. With mu(t) = beta_1 (1 - 0.96^t / 2), and U = momentum_product
  /// = mu(1) ... mu(t):  M = mu(t+1) m / (1 - U mu(t+1)) + (1 - mu(t)) g / (1 - U);
  /// w -= lr M / (sqrt(v / (1 - beta_2^t)) + epsilon).
  MPCORE_OPTIMIZER_NADAM = 3,
  /// v = s0, then b if momentum > 0, then a if centered:
  /// v = rho v + (1 - rho) g^2;  a = rho a + (1 - rho) g;
  /// d = lr g / sqrt(v + epsilon),  centered  lr g / sqrt(v - a^2 + epsilon);
  /// w -= d,  or with momentum  b = momentum b + d;  w -= b.
  MPCORE_OPTIMIZER_RMSPROP = 4,
  /// n = s0, which may start at any value >= 0: n += g^2;  w -= lr g / sqrt(n + epsilon).
  MPCORE_OPTIMIZER_ADAGRAD = 5,
  /// s = s0, d = s1: s = rho s + (1 - rho) g^2;  x = sqrt(d + epsilon) g / sqrt(s + epsilon);
  /// d = rho d + (1 - rho) x^2;  w -= lr x.
  MPCORE_OPTIMIZER_ADADELTA = 6,
  /// n = s0, which may start at any value >= 0, z = s1; p = -learning_rate_power:
  /// N = n + g^2;  z += g + 2 l2_shrinkage w - (N^p - n^p) / lr w;
  /// w = (clip(z, -l1, l1) - z) / (N^p / lr + 2 l2 + beta / lr);  n = N. lr must be > 0.
  MPCORE_OPTIMIZER_FTRL = 7,
  /// m = s0: w -= lr sign(beta_1 m + (1 - beta_1) g);  m = beta_2 m + (1 - beta_2) g.
  MPCORE_OPTIMIZER_LION = 8,
  /// m = s0, v = s1, both as Adam: u = m / (1 - beta_1^t) / (sqrt(v / (1 - beta_2^t)) + epsilon);
  /// w -= lr r u,  r = |w| / |u| over the tensor, or 1 where one of the norms is 0. Two passes.
  MPCORE_OPTIMIZER_LAMB = 9,
  /// z = s0, which starts as a copy of w, v = s1 as Adam. With a = lr min(1, t / warmup_steps):
  /// y = z;  z -= a g / (sqrt(v / (1 - beta_2^t)) + epsilon);  x = (w - (1 - beta_1) y) / beta_1;
  /// w = (1 - beta_1) z + beta_1 ((1 - 1/t) x + z / t).
  MPCORE_OPTIMIZER_SCHEDULE_FREE_ADAMW = 10
};

/// How 16-bit parameters are rounded.
typedef int32_t mpcore_rounding;
enum {
  MPCORE_ROUNDING_NEAREST = 0,    ///< To nearest even.
  MPCORE_ROUNDING_STOCHASTIC = 1  ///< Up or down with the chance that makes the mean exact.
};

/// One parameter with everything its update touches. Arrays are contiguous, hold `size` elements,
/// and do not overlap. Overlap is checked within a tensor; that no two tensors of a call share
/// memory is the caller's promise.
typedef struct mpcore_optim_tensor {
  int64_t size;
  void* param;       ///< Read and written.
  const void* grad;  ///< Read only; f32, f16, bf16 (f64 with an f64 param).
  void* copy;        ///< Low-precision copy of param as stored, written; NULL: none.
  /// Only with a bf16 param: bf16 numbers, zero at first, that hold what rounding param leaves
  /// over, so that param + remainder has 16 significant bits. NULL: none.
  void* remainder;
  void* state[4];            ///< As the rule orders them; unused ones NULL.
  mpcore_dtype param_dtype;  ///< f32, f16, bf16, or f64.
  mpcore_dtype grad_dtype;
  mpcore_dtype copy_dtype;  ///< f16 or bf16; ignored without copy.
  /// f32, or f64 for an f64 param, or bf16, rounded stochastically (not for an f64 param).
  mpcore_dtype state_dtype;
  /// Which of the optimizer's tensors this is: part of the key of its random numbers.
  int64_t index;
  /// Unscaling and norm clipping in one factor; 1 for none. Finite, as is weight_decay: in fp32
  /// unless param is f64.
  double grad_multiplier;
  double weight_decay;  ///< 0 for none.
} mpcore_optim_tensor;

/// Scalars of a step. Set the whole struct to 0 and then what the rule reads.
typedef struct mpcore_optim_args {
  uint32_t struct_size;  ///< sizeof(mpcore_optim_args)
  mpcore_optimizer optimizer;
  int64_t step;  ///< t, 1 for the first update.
  double learning_rate;
  double clipvalue;                   ///< > 0: g is clamped to [-clipvalue, clipvalue]; 0: off.
  double beta_1;                      ///< In [0, 1); Lion: [0, 1]; ScheduleFreeAdamW: (0, 1].
  double beta_2;                      ///< In [0, 1); Adamax, Lion: [0, 1].
  double epsilon;                     ///< >= 0.
  double momentum;                    ///< In [0, 1].
  double rho;                         ///< In [0, 1].
  double learning_rate_power;         ///< <= 0.
  double l1, l2, l2_shrinkage, beta;  ///< >= 0.
  double momentum_product;            ///< In [0, 1).
  int64_t warmup_steps;               ///< >= 0.
  int32_t nesterov, amsgrad, centered;
  mpcore_rounding rounding;
  /// With `step` and the tensor's `index` the key of the random numbers of stochastic rounding:
  /// element i of an array takes number i of a stream of its own.
  uint64_t seed;
} mpcore_optim_args;

/// Updates `count` tensors.
MPCORE_API mpcore_status mpcore_optim_step(mpcore_context* ctx, const mpcore_optim_args* args,
                                           int64_t count, const mpcore_optim_tensor* tensors);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_OPTIM_H_
