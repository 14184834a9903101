/// @file grad.h
/// What is done to gradients between the backward pass and the update (finite check, unscaling,
/// norms, accumulation, the state of dynamic loss scaling), and the moving average of weights after
/// it. All calls take many tensors at once.
#ifndef MPCORE_GRAD_H_
#define MPCORE_GRAD_H_

#include "mpcore/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/// One contiguous tensor.
typedef struct mpcore_tensor_ref {
  void* data;
  int64_t size;        ///< Elements, >= 0.
  mpcore_dtype dtype;  ///< f32, f16, bf16, or f64.
  int32_t reserved;    ///< Must be 0.
} mpcore_tensor_ref;

/// *finite = 1 if no element of any tensor is infinite or NaN, else 0. No tensors: 1.
/// Cost: one read. Tensors are never written.
MPCORE_API mpcore_status mpcore_all_finite(mpcore_context* ctx, int64_t count,
                                           const mpcore_tensor_ref* tensors, int32_t* finite);

/// outputs[i] = tensors[i] * multiplier in fp32 arithmetic (f64 in f64), rounded once, and whether
/// all *results* are finite.
///
/// @param outputs     NULL: in place, and no two tensors overlap. Else `count` tensors of the same
///                    sizes and dtypes; outputs[i] is tensors[i] itself or overlaps nothing else.
/// @param multiplier  Finite; in fp32 unless all tensors are f64.
/// @param finite      1 or 0; may be NULL.
MPCORE_API mpcore_status mpcore_unscale(mpcore_context* ctx, int64_t count,
                                        const mpcore_tensor_ref* tensors,
                                        const mpcore_tensor_ref* outputs, double multiplier,
                                        int32_t* finite);

/// totals[i] += tensors[i] * multiplier, for gradient accumulation. Where the total is f32: the
/// element and the multiplier as fp32 (an f64 one rounded), their product rounded to fp32, the sum
/// rounded to fp32. Where it is f64: the same in f64. Infinities and NaN are not looked for.
///
/// @param totals      `count` tensors, f32 or f64, read and written. totals[i] is tensors[i] itself
///                    or overlaps nothing else.
/// @param tensors     `count` tensors of the same sizes, of any dtype a tensor may have.
/// @param multiplier  Finite; in fp32 unless all totals are f64.
MPCORE_API mpcore_status mpcore_accumulate(mpcore_context* ctx, int64_t count,
                                           const mpcore_tensor_ref* totals,
                                           const mpcore_tensor_ref* tensors, double multiplier);

/// averages[i] = momentum * averages[i] + (1 - momentum) * tensors[i], for an exponential moving
/// average of weights. 1 - momentum is taken in double; then both factors, both products, and the
/// sum are each rounded to fp32 where the average is f32, to f64 where it is f64. What has the
/// factor 0 takes no part, be it infinite: momentum 0 copies the tensor, momentum 1 changes
/// nothing.
///
/// @param averages  As `totals` of mpcore_accumulate.
/// @param tensors   As `tensors` of mpcore_accumulate.
/// @param momentum  In [0, 1].
MPCORE_API mpcore_status mpcore_lerp(mpcore_context* ctx, int64_t count,
                                     const mpcore_tensor_ref* averages,
                                     const mpcore_tensor_ref* tensors, double momentum);

/// Euclidean norms. Squares are summed in double over a fixed tree: the bits are the same on every
/// level and thread count. They neither overflow nor underflow; an f64 tensor with squares out of
/// the range of double is read twice. A norm beyond DBL_MAX is infinite.
///
/// @param norms   count values, one per tensor, or NULL.
/// @param global  the norm over all tensors, or NULL.
MPCORE_API mpcore_status mpcore_norms(mpcore_context* ctx, int64_t count,
                                      const mpcore_tensor_ref* tensors, double* norms,
                                      double* global);

/// State of dynamic loss scaling. Owned by the caller; plain data, safe to save and restore.
typedef struct mpcore_loss_scale {
  uint32_t struct_size;  ///< sizeof(mpcore_loss_scale)
  int32_t growth_steps;  ///< Finite steps in a row after which the scale doubles; >= 1.
  int64_t step_counter;  ///< Finite steps since the last change; start with 0.
  double scale;          ///< Current scale; > 0 and finite.
  double min_scale;      ///< The scale never falls below; > 0.
  double max_scale;      ///< The scale never rises above; finite.
} mpcore_loss_scale;

/// Fills @p state: growth_steps 2000, step_counter 0, scale 2^15, min_scale 2^-126, max_scale
/// 2^126.
MPCORE_API mpcore_status mpcore_loss_scale_init(mpcore_loss_scale* state);

/// Advances the state after one step. finite != 0: counts it, and after growth_steps in a row
/// doubles the scale (if that stays <= max_scale) and counts anew. finite == 0: halves the scale
/// (if that stays >= min_scale) and counts anew.
MPCORE_API mpcore_status mpcore_loss_scale_update(mpcore_loss_scale* state, int32_t finite);

#ifdef __cplusplus
}  // extern "C"
#endif

#endif  // MPCORE_GRAD_H_
