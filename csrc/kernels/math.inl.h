// Elementary functions over F32x16, and the activations made of them. Polynomials in a fixed order
// of IEEE operations, fma only where written: the same bits on every level. They expect kIeee.
//
// Largest error over all 2^32 inputs, in ulp of the fp32 result, against double, where the result
// is at least 2^-126: exp 1.02, sigmoid 2.41, tanh 1.34.
#ifndef MPCORE_KERNELS_MATH_INL_H_
#define MPCORE_KERNELS_MATH_INL_H_

#include <stdint.h>

#include "kernels/vec.inl.h"
#include "mpcore/gemm.h"

namespace mpcore {
namespace {

// e^x = 2^n e^r, |r| <= ln 2 / 2. Overflows to infinity as IEEE has it; results below 2^-126 are 0,
// since each subnormal one would cost a microcode assist and masked logits are full of them. NaN
// stays NaN: min and max give their second argument where one is NaN.
inline F32x16 exp(F32x16 x) {
  const F32x16 lowest = F32x16::set(-0x1.5d589ep+6f);  // the last x with a normal result
  const Mask16 underflow = less(x, lowest);
  x = max(lowest, min(F32x16::set(89.0f), x));
  const F32x16 n = round_even(x * F32x16::set(0x1.715476p+0f));
  F32x16 r = fma(n, F32x16::set(-0x1.63p-1f), x);  // exact: nine bits of ln 2
  r = fma(n, F32x16::set(0x1.bd0106p-13f), r);     // and the rest
  F32x16 p = F32x16::set(1.9875691500e-4f);
  p = fma(p, r, F32x16::set(1.3981999507e-3f));
  p = fma(p, r, F32x16::set(8.3334519073e-3f));
  p = fma(p, r, F32x16::set(4.1665795894e-2f));
  p = fma(p, r, F32x16::set(1.6666665459e-1f));
  p = fma(p, r, F32x16::set(5.0000001201e-1f));
  p = fma(p, r * r, r) + F32x16::set(1.0f);
  // 2^n in two factors, since n reaches 128: the first product is exact.
  const F32x16 half = round_even(n * F32x16::set(0.5f));
  return select(underflow, F32x16::zero(), p * pow2(half) * pow2(n - half));
}

// 1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their precision.
inline F32x16 sigmoid(F32x16 x) {
  const F32x16 one = F32x16::set(1.0f), zero = F32x16::zero();
  const F32x16 e = exp(zero - abs(x));
  return select(less(x, zero), e, one) / (one + e);
}

// An odd polynomial near 0, where 1 - 2 / (e^2|x| + 1) would cancel.
inline F32x16 tanh(F32x16 x) {
  const F32x16 one = F32x16::set(1.0f), zero = F32x16::zero(), a = abs(x), z = x * x;
  F32x16 p = F32x16::set(-5.70498872745e-3f);
  p = fma(p, z, F32x16::set(2.06390887954e-2f));
  p = fma(p, z, F32x16::set(-5.37397155531e-2f));
  p = fma(p, z, F32x16::set(1.33314422036e-1f));
  p = fma(p, z, F32x16::set(-3.33332819422e-1f));
  const F32x16 near = x * fma(p, z, one);
  const F32x16 far = one - F32x16::set(2.0f) / (exp(a + a) + one);
  return select(less(a, F32x16::set(0.625f)), near, select(less(x, zero), zero - far, far));
}

// log(x) for x >= 1 or NaN, in double with a relative error below 1e-13: one value per row of a
// softmax. log(m 2^k) = k ln 2 + 2 atanh(f), f = (m - 1) / (m + 1), m in [sqrt(1/2), sqrt(2)).
inline double log_from_one(float x) {
  const uint32_t u = bits_of(x);
  if (u >= 0x7f800000u) return static_cast<double>(x);
  const uint32_t shifted = u - 0x3f3504f3u;  // sqrt(1/2): the exponent field becomes k
  const int32_t k = static_cast<int32_t>(shifted >> 23);
  const double m = static_cast<double>(float_of((shifted & 0x7fffffu) + 0x3f3504f3u));
  const double f = (m - 1.0) / (m + 1.0), z = f * f;
  double p = 1.0 / 15.0;
  for (int odd = 13; odd > 0; odd -= 2) p = p * z + 1.0 / odd;
  return static_cast<double>(k) * 0.693147180559945309417 + 2.0 * f * p;
}

template <mpcore_activation kActivation>
inline F32x16 activate(F32x16 x) {
  if constexpr (kActivation == MPCORE_ACTIVATION_RELU) {
    return select(less(x, F32x16::zero()), F32x16::zero(), x);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_SIGMOID) {
    return sigmoid(x);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_TANH) {
    return tanh(x);
  } else {
    return x;
  }
}

template <mpcore_activation kActivation>
struct ActivationTag {
  static constexpr mpcore_activation value = kActivation;
};

// Calls f(tag) with tag.value the activation as a constant: activate<tag.value>(x).
template <class F>
inline void dispatch_activation(mpcore_activation activation, F&& f) {
  switch (activation) {
    case MPCORE_ACTIVATION_RELU:
      return f(ActivationTag<MPCORE_ACTIVATION_RELU>{});
    case MPCORE_ACTIVATION_SIGMOID:
      return f(ActivationTag<MPCORE_ACTIVATION_SIGMOID>{});
    case MPCORE_ACTIVATION_TANH:
      return f(ActivationTag<MPCORE_ACTIVATION_TANH>{});
    default:
      return f(ActivationTag<MPCORE_ACTIVATION_LINEAR>{});
  }
}

inline F32x16 activate(mpcore_activation activation, F32x16 x) {
  dispatch_activation(activation, [&](auto tag) { x = activate<decltype(tag)::value>(x); });
  return x;
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_MATH_INL_H_
