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

// The standard normal distribution and its density: Phi(x), phi(x). For negative x from
// Phi(-a) = e^(-a^2 / 2) t P(t), t = 1 / (1 + a / sqrt(8)), P fitted to 6e-8 and exact at 0; a^2 in
// two parts, so that the exponent's rounding does not show. Phi counts as 0 from -13.2 on, where
// e^x does.
struct Normal {
  F32x16 distribution, density;
};
inline Normal normal(F32x16 x) {
  const F32x16 one = F32x16::set(1.0f), half = F32x16::set(0.5f);
  const F32x16 a = min(F32x16::set(16.0f), abs(x)), square = a * a;
  const F32x16 rest = half * fma(a, a, F32x16::zero() - square);
  const F32x16 e = exp(F32x16::zero() - half * square);
  const F32x16 t = one / fma(F32x16::set(0x1.6a09e6p-2f), a, one);
  F32x16 p = F32x16::set(-0x1.ed8416p-6f);
  p = fma(p, t, F32x16::set(0x1.290c4cp-3f));
  p = fma(p, t, F32x16::set(-0x1.fe1144p-3f));
  p = fma(p, t, F32x16::set(0x1.28e3bap-3f));
  p = fma(p, t, F32x16::set(-0x1.194784p-6f));
  p = fma(p, t, F32x16::set(0x1.a55aa4p-4f));
  p = fma(p, t, F32x16::set(0x1.f06948p-4f));
  p = fma(p, t, F32x16::set(0x1.213eb0p-3f));
  p = fma(p, t, F32x16::set(0x1.20da0ap-3f));
  const F32x16 exact = fma(F32x16::zero() - rest, e, e);
  const F32x16 tail = exact * (t * p);
  return {select(less(F32x16::zero(), x), one - tail, tail), F32x16::set(0x1.988454p-2f) * exact};
}

// x where it is at least -128, so that a zero beside it stays one; NaN stays NaN.
inline F32x16 floored(F32x16 x) { return max(F32x16::set(-128.0f), x); }

inline F32x16 gelu(F32x16 x) { return floored(x) * normal(x).distribution; }

// 2 sqrt(2 / pi) (x + 0.044715 x^3).
constexpr float kGeluLinear = 0x1.988454p+0f, kGeluCubic = 0x1.2444f2p-4f;
inline F32x16 gelu_argument(F32x16 x) {
  return x * fma(F32x16::set(kGeluCubic), x * x, F32x16::set(kGeluLinear));
}
inline F32x16 gelu_tanh(F32x16 x) { return floored(x) * sigmoid(gelu_argument(x)); }

inline F32x16 silu(F32x16 x) { return floored(x) * sigmoid(x); }

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
  } else if constexpr (kActivation == MPCORE_ACTIVATION_GELU) {
    return gelu(x);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_GELU_TANH) {
    return gelu_tanh(x);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_SILU) {
    return silu(x);
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
    case MPCORE_ACTIVATION_GELU:
      return f(ActivationTag<MPCORE_ACTIVATION_GELU>{});
    case MPCORE_ACTIVATION_GELU_TANH:
      return f(ActivationTag<MPCORE_ACTIVATION_GELU_TANH>{});
    case MPCORE_ACTIVATION_SILU:
      return f(ActivationTag<MPCORE_ACTIVATION_SILU>{});
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
