// The optimizers, each as its formula; mpcore/optim.h documents them. A rule is a struct over the
// vector V (F32x16 or F64x16): its constants, made from the step's scalars in double and rounded
// once, the number of its states, and what it does to w and the states of one vector of elements.
//
// No fma: the formulas are Keras' to the bit.
#ifndef MPCORE_KERNELS_OPTIM_RULES_INL_H_
#define MPCORE_KERNELS_OPTIM_RULES_INL_H_

#include "dispatch/kernel_table.h"
#include "kernels/f64x16.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

template <class V>
inline V magnitude(const V& x) {
  return max(x, V::zero() - x);
}

// -1, 0, or 1; NaN is the second argument of min and max and stays. The factor takes every normal
// number beyond 1.
template <class V>
inline V sign(const V& x) {
  const V one = constant<V>(1), huge = constant<V>(__is_same(V, F32x16) ? 0x1p127 : 0x1p1023);
  return max(V::zero() - one, min(one, x * huge));
}

// x^exponent for x >= 0, in double; the square root, which is exact, where it is that.
template <class V>
inline V power(const V& x, double exponent) {
  if (exponent == 0.5) return sqrt(x);
  if constexpr (__is_same(V, F32x16)) {
    float lane[kLanes];
    x.store(lane);
    for (float& y : lane) y = static_cast<float>(__builtin_pow(static_cast<double>(y), exponent));
    return F32x16::load(lane);
  } else {
    return V::make([&](int i) { return __builtin_pow(x.lane[i], exponent); });
  }
}

template <class V>
struct PlainSgd {
  static constexpr int kStates = 0;
  V rate;
  explicit PlainSgd(const OptimScalars& s) : rate(constant<V>(s.args->learning_rate)) {}
  inline void operator()(V& w, const V& g, V*) const { w = w - rate * g; }
};

template <class V, bool kNesterov>
struct MomentumSgd {
  static constexpr int kStates = 1;
  V rate, momentum;
  explicit MomentumSgd(const OptimScalars& s)
      : rate(constant<V>(s.args->learning_rate)), momentum(constant<V>(s.args->momentum)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V& v = state[0];
    const V step = rate * g;
    v = momentum * v - step;
    w = w + (kNesterov ? momentum * v - step : v);
  }
};

// The moving averages that the Adam family shares.
template <class V>
struct Moments {
  V one_minus_beta_1, one_minus_beta_2;
  explicit Moments(const OptimScalars& s)
      : one_minus_beta_1(constant<V>(1 - s.args->beta_1)),
        one_minus_beta_2(constant<V>(1 - s.args->beta_2)) {}
  inline void first(V& m, const V& g) const { m = m + (g - m) * one_minus_beta_1; }
  inline void second(V& v, const V& g) const { v = v + (g * g - v) * one_minus_beta_2; }
};

template <class V, bool kAmsgrad>
struct Adam : Moments<V> {
  static constexpr int kStates = kAmsgrad ? 3 : 2;
  V alpha, epsilon;
  explicit Adam(const OptimScalars& s)
      : Moments<V>(s),
        alpha(constant<V>(s.args->learning_rate * __builtin_sqrt(1 - s.beta_2_power) /
                          (1 - s.beta_1_power))),
        epsilon(constant<V>(s.args->epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &m = state[0], &v = state[1];
    this->first(m, g);
    this->second(v, g);
    V top = v;
    // The sum with 0 flushes a subnormal, which max may or may not let through.
    if constexpr (kAmsgrad) top = state[2] = max(state[2], v) + V::zero();
    w = w - m * alpha / (sqrt(top) + epsilon);
  }
};

template <class V>
struct Adamax : Moments<V> {
  static constexpr int kStates = 2;
  V rate, beta_2, epsilon;
  explicit Adamax(const OptimScalars& s)
      : Moments<V>(s),
        rate(constant<V>(s.args->learning_rate / (1 - s.beta_1_power))),
        beta_2(constant<V>(s.args->beta_2)),
        epsilon(constant<V>(s.args->epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &m = state[0], &u = state[1];
    this->first(m, g);
    u = max(beta_2 * u, magnitude(g)) + V::zero();
    w = w - rate * m / (u + epsilon);
  }
};

template <class V>
struct Nadam : Moments<V> {
  static constexpr int kStates = 2;
  V of_m, of_g, correction, rate, epsilon;
  explicit Nadam(const OptimScalars& s)
      : Moments<V>(s),
        of_m(constant<V>(s.next_mu / (1 - s.args->momentum_product * s.next_mu))),
        of_g(constant<V>((1 - s.mu) / (1 - s.args->momentum_product))),
        correction(constant<V>(1 / (1 - s.beta_2_power))),
        rate(constant<V>(s.args->learning_rate)),
        epsilon(constant<V>(s.args->epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &m = state[0], &v = state[1];
    this->first(m, g);
    this->second(v, g);
    w = w - rate * (of_m * m + of_g * g) / (sqrt(v * correction) + epsilon);
  }
};

template <class V, bool kMomentum, bool kCentered>
struct Rmsprop {
  static constexpr int kStates = 1 + kMomentum + kCentered;
  V rate, rho, one_minus_rho, momentum, epsilon;
  explicit Rmsprop(const OptimScalars& s)
      : rate(constant<V>(s.args->learning_rate)),
        rho(constant<V>(s.args->rho)),
        one_minus_rho(constant<V>(1 - s.args->rho)),
        momentum(constant<V>(s.args->momentum)),
        epsilon(constant<V>(s.args->epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V& v = state[0];
    v = rho * v + one_minus_rho * (g * g);
    V spread = v;
    if constexpr (kCentered) {
      V& a = state[1 + kMomentum];
      a = rho * a + one_minus_rho * g;
      spread = v - a * a;
    }
    V step = rate * g / sqrt(spread + epsilon);
    if constexpr (kMomentum) step = state[1] = momentum * state[1] + step;
    w = w - step;
  }
};

template <class V>
struct Adagrad {
  static constexpr int kStates = 1;
  V rate, epsilon;
  explicit Adagrad(const OptimScalars& s)
      : rate(constant<V>(s.args->learning_rate)), epsilon(constant<V>(s.args->epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    state[0] = state[0] + g * g;
    w = w - rate * g / sqrt(state[0] + epsilon);
  }
};

template <class V>
struct Adadelta {
  static constexpr int kStates = 2;
  V rate, rho, one_minus_rho, epsilon;
  explicit Adadelta(const OptimScalars& s)
      : rate(constant<V>(s.args->learning_rate)),
        rho(constant<V>(s.args->rho)),
        one_minus_rho(constant<V>(1 - s.args->rho)),
        epsilon(constant<V>(s.args->epsilon)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &s = state[0], &d = state[1];
    s = rho * s + one_minus_rho * (g * g);
    const V step = sqrt(d + epsilon) * g / sqrt(s + epsilon);
    d = rho * d + one_minus_rho * (step * step);
    w = w - rate * step;
  }
};

template <class V>
struct Ftrl {
  static constexpr int kStates = 2;
  double exponent;
  V per_rate, l1, l2, shrinkage, smallest;
  explicit Ftrl(const OptimScalars& s)
      : exponent(-s.args->learning_rate_power),
        per_rate(constant<V>(1 / s.args->learning_rate)),
        l1(constant<V>(s.args->l1)),
        l2(constant<V>(2 * s.args->l2 + s.args->beta / s.args->learning_rate)),
        shrinkage(constant<V>(2 * s.args->l2_shrinkage)),
        smallest(constant<V>(__is_same(V, F32x16) ? 0x1p-126 : 0x1p-1022)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &n = state[0], &z = state[1];
    const V sum = n + g * g, root = power(sum, exponent);
    z = z + (g + shrinkage * w - (root - power(n, exponent)) * per_rate * w);
    n = sum;
    const V clipped = max(V::zero() - l1, min(l1, z));
    // Where nothing has come in yet both are 0, and so is w.
    w = (clipped - z) / max(root * per_rate + l2, smallest);
  }
};

template <class V>
struct Lion {
  static constexpr int kStates = 1;
  V rate, beta_1, one_minus_beta_1, beta_2, one_minus_beta_2;
  explicit Lion(const OptimScalars& s)
      : rate(constant<V>(s.args->learning_rate)),
        beta_1(constant<V>(s.args->beta_1)),
        one_minus_beta_1(constant<V>(1 - s.args->beta_1)),
        beta_2(constant<V>(s.args->beta_2)),
        one_minus_beta_2(constant<V>(1 - s.args->beta_2)) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V& m = state[0];
    w = w - rate * sign(beta_1 * m + one_minus_beta_1 * g);
    m = beta_2 * m + one_minus_beta_2 * g;
  }
};

// The direction of a step; its length is known once the norms are.
template <class V>
struct LambDirection : Moments<V> {
  V correction_1, correction_2, epsilon;
  explicit LambDirection(const OptimScalars& s)
      : Moments<V>(s),
        correction_1(constant<V>(1 / (1 - s.beta_1_power))),
        correction_2(constant<V>(1 / (1 - s.beta_2_power))),
        epsilon(constant<V>(s.args->epsilon)) {}
  inline V direction(const V* state) const {
    return state[0] * correction_1 / (sqrt(state[1] * correction_2) + epsilon);
  }
};

// First pass: the moments, and the squares whose sums make the norms of w and u.
template <class V>
struct LambMoments : LambDirection<V> {
  static constexpr int kStates = 2;
  static constexpr bool kMeasures = true;
  using LambDirection<V>::LambDirection;
  inline V operator()(V&, const V& g, V* state) const {
    this->first(state[0], g);
    this->second(state[1], g);
    return this->direction(state);
  }
};

// Second pass: w.
template <class V>
struct LambStep : LambDirection<V> {
  static constexpr int kStates = 2;
  static constexpr bool kReadsOnly = true;
  V rate;
  LambStep(const OptimScalars& s, double ratio)
      : LambDirection<V>(s), rate(constant<V>(s.args->learning_rate * ratio)) {}
  inline void operator()(V& w, const V&, V* state) const { w = w - rate * this->direction(state); }
};

template <class V>
struct ScheduleFreeAdamW : Moments<V> {
  static constexpr int kStates = 2;
  V rate, correction, epsilon, beta_1, per_beta_1, weight, one_minus_weight;
  explicit ScheduleFreeAdamW(const OptimScalars& s)
      : Moments<V>(s),
        rate(constant<V>(s.args->learning_rate * s.warmup)),
        correction(constant<V>(1 / (1 - s.beta_2_power))),
        epsilon(constant<V>(s.args->epsilon)),
        beta_1(constant<V>(s.args->beta_1)),
        per_beta_1(constant<V>(1 / s.args->beta_1)),
        weight(constant<V>(1 / static_cast<double>(s.args->step))),
        one_minus_weight(constant<V>(1 - 1 / static_cast<double>(s.args->step))) {}
  inline void operator()(V& w, const V& g, V* state) const {
    V &z = state[0], &v = state[1];
    this->second(v, g);
    const V x = (w - this->one_minus_beta_1 * z) * per_beta_1;
    z = z - rate * g / (sqrt(v * correction) + epsilon);
    w = this->one_minus_beta_1 * z + beta_1 * (one_minus_weight * x + weight * z);
  }
};

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_OPTIM_RULES_INL_H_
