// Half-precision element types and their exact conversions on bits: the definition every level
// follows. Integer arithmetic only, so the floating-point mode of the thread does not matter.
#ifndef MPCORE_KERNELS_ELEMENT_INL_H_
#define MPCORE_KERNELS_ELEMENT_INL_H_

#include <stdint.h>

namespace mpcore {
namespace {

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float float_of(uint32_t bits) { return __builtin_bit_cast(float, bits); }

// Round to nearest even by adding 0x7fff plus the lowest kept bit; NaN becomes 0x7fc0 with its
// sign.
inline uint16_t bf16_bits(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = ((u >> 16) & 0x8000u) | 0x7fc0u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

inline float float_of(BF16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }

// Round to nearest even; NaN keeps its sign and the top ten payload bits and becomes quiet, as
// VCVTPS2PH does it.
inline uint16_t f16_bits(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((a >> 13) & 0x3ffu));
  if (a >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);  // >= 2^16
  if (a >= 0x38800000u) {  // normal; a carry may run into the exponent up to infinity
    return static_cast<uint16_t>(sign | ((a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13));
  }
  if (a < 0x33000000u) return static_cast<uint16_t>(sign);  // < 2^-25
  const uint32_t shift = 126u - (a >> 23);                  // 14..24: result counts 2^-24
  const uint32_t m = (a & 0x7fffffu) | 0x800000u;
  const uint32_t half = 1u << (shift - 1), rest = m & ((1u << shift) - 1u);
  uint32_t q = m >> shift;
  if (rest > half || (rest == half && (q & 1u))) ++q;
  return static_cast<uint16_t>(sign | q);
}

inline float float_of(F16 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  uint32_t e = (x.bits >> 10) & 0x1fu, m = x.bits & 0x3ffu;
  if (e == 31) return float_of(sign | 0x7f800000u | (m ? 0x400000u : 0u) | (m << 13));
  if (e == 0) {
    if (m == 0) return float_of(sign);
    const uint32_t shift = static_cast<uint32_t>(__builtin_clz(m)) - 21u;  // leading one to bit 10
    m = (m << shift) & 0x3ffu;
    e = 1u - shift;  // may wrap; the sum below is exact modulo 2^32
  }
  return float_of(sign | ((e + 112u) << 23) | (m << 13));
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_ELEMENT_INL_H_
