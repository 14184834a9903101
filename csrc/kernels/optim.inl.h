// One pass over memory per update, and the rules it is given. Everything an optimizer shares
// (unscaling, clipping, decay, dtypes, copies, tails) is update(); an optimizer is one struct: its
// constants, its number of states, and its formula.
//
// The floating-point mode is kFlushAll: subnormals are zero on the way in and on the way out, so
// that moments which have decayed away cost nothing. No fma: the formulas are Keras' to the bit.
#ifndef MPCORE_KERNELS_OPTIM_INL_H_
#define MPCORE_KERNELS_OPTIM_INL_H_

#include <stdint.h>

#include "dispatch/kernel_table.h"
#include "kernels/f64x16.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// --- Rules: V is F32x16 or F64x16 ----------------------------------------------------------------

// A scalar of the update in every lane, rounded once where the lanes are fp32.
template <class V>
inline V constant(double x) {
  if constexpr (__is_same(V, F32x16)) {
    return F32x16::set(static_cast<float>(x));
  } else {
    return V::set(x);
  }
}

template <class V>
struct PlainSgd {
  static constexpr int kStates = 0;
  V rate;
  explicit PlainSgd(const SgdScalars& s) : rate(constant<V>(s.learning_rate)) {}
  inline void operator()(V& w, const V& g, V*) const { w = w - rate * g; }
};

template <class V>
struct MomentumSgd {
  static constexpr int kStates = 1;
  V rate, momentum;
  explicit MomentumSgd(const SgdScalars& s)
      : rate(constant<V>(s.learning_rate)), momentum(constant<V>(s.momentum)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    state[0] = momentum * state[0] - rate * g;
    w = w + state[0];
  }
};

template <class V>
struct NesterovSgd {
  static constexpr int kStates = 1;
  V rate, momentum;
  explicit NesterovSgd(const SgdScalars& s)
      : rate(constant<V>(s.learning_rate)), momentum(constant<V>(s.momentum)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    const V step = rate * g;
    state[0] = momentum * state[0] - step;
    w = w + (momentum * state[0] - step);
  }
};

template <class V, bool kAmsgrad>
struct AdamRule {
  static constexpr int kStates = kAmsgrad ? 3 : 2;
  V alpha, one_minus_beta_1, one_minus_beta_2, epsilon;
  explicit AdamRule(const AdamScalars& s)
      : alpha(constant<V>(s.alpha)),
        one_minus_beta_1(constant<V>(s.one_minus_beta_1)),
        one_minus_beta_2(constant<V>(s.one_minus_beta_2)),
        epsilon(constant<V>(s.epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &m = state[0], &v = state[1];
    m = m + (g - m) * one_minus_beta_1;
    v = v + (g * g - v) * one_minus_beta_2;
    V second = v;
    // The sum with 0 flushes a subnormal, which max may or may not let through.
    if constexpr (kAmsgrad) second = state[2] = max(state[2], v) + V::zero();
    w = w - m * alpha / (sqrt(second) + epsilon);
  }
};
template <class V>
using Adam = AdamRule<V, false>;
template <class V>
using Amsgrad = AdamRule<V, true>;

// --- The pass ------------------------------------------------------------------------------------

// P, G, S: element types of the parameter, its gradient, and the states.
template <class V, class P, class G, class S, class Rule>
inline void update(const OptimSpan& t, const Rule& rule) {
  const V multiplier = constant<V>(t.grad_multiplier), decay = constant<V>(t.decay_rate);
  const V limit = constant<V>(t.clipvalue > 0 ? t.clipvalue : __builtin_inf());
  const V negative_limit = V::zero() - limit;
  P* const param = static_cast<P*>(t.param);
  const G* const grad = static_cast<const G*>(t.grad);
  F16* const copy_f16 = t.copy_dtype == MPCORE_DTYPE_F16 ? static_cast<F16*>(t.copy) : nullptr;
  BF16* const copy_bf16 = t.copy_dtype == MPCORE_DTYPE_BF16 ? static_cast<BF16*>(t.copy) : nullptr;
  S* states[4];
  for (int k = 0; k < Rule::kStates; ++k) states[k] = static_cast<S*>(t.state[k]);

  for_each_vector(t.size, [&](int64_t i, auto count) {
    V g = load_as<V>(grad + i, count) * multiplier;
    g = max(negative_limit, min(limit, g));  // NaN is the second argument and stays
    V w = load_as<V>(param + i, count);
    if (t.decay_rate != 0) w = w - w * decay;  // an infinite w times 0 would be NaN
    V state[Rule::kStates + 1];
    for (int k = 0; k < Rule::kStates; ++k) state[k] = load_as<V>(states[k] + i, count);

    rule(w, g, state);

    for (int k = 0; k < Rule::kStates; ++k) store(state[k], states[k] + i, count);
    store(w, param + i, count);
    if constexpr (kIsHalf<P>) {  // the copy is that of the parameter as stored
      if (copy_f16 != nullptr || copy_bf16 != nullptr) w = load_as<V>(param + i, count);
    }
    if (copy_f16 != nullptr) store(w, copy_f16 + i, count);
    if (copy_bf16 != nullptr) store(w, copy_bf16 + i, count);
  });
}

// Picks the element types, once per span.
template <template <class> class Rule, class Scalars>
inline void optimize(const Scalars& s, const OptimSpan& t) {
  if (t.param_dtype == MPCORE_DTYPE_F64) {
    const Rule<F64x16> rule(s);
    if (t.grad_dtype == MPCORE_DTYPE_F64) {
      return update<F64x16, double, double, double>(t, rule);
    }
    return dispatch_compute(t.grad_dtype, [&](auto* g) {
      update<F64x16, double, Pointee<decltype(g)>, double>(t, rule);
    });
  }
  const Rule<F32x16> rule(s);
  dispatch_compute(t.param_dtype, [&](auto* p) {
    dispatch_compute(t.grad_dtype, [&](auto* g) {
      update<F32x16, Pointee<decltype(p)>, Pointee<decltype(g)>, float>(t, rule);
    });
  });
}

void sgd_kernel(const SgdScalars& s, const OptimSpan& t) {
  if (s.momentum == 0) return optimize<PlainSgd>(s, t);
  if (s.nesterov) return optimize<NesterovSgd>(s, t);
  optimize<MomentumSgd>(s, t);
}

void adam_kernel(const AdamScalars& s, const OptimSpan& t) {
  if (s.amsgrad) return optimize<Amsgrad>(s, t);
  optimize<Adam>(s, t);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_OPTIM_INL_H_
