// Half-precision element types and their exact conversions on bits: the definition every level
// follows. No branches, so that loops over them become vectors. They need round to nearest, and
// care for no other part of the floating-point mode: flushing a subnormal changes no result.
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

// c ? x : y of whole words. The conditional operator invites compilers to branch around what
// follows, and a loop with a branch becomes no vector.
inline uint32_t pick(bool c, uint32_t x, uint32_t y) { return y ^ ((x ^ y) & -uint32_t{c}); }
inline uint64_t pick(bool c, uint64_t x, uint64_t y) { return y ^ ((x ^ y) & -uint64_t{c}); }

// Round to nearest even by adding 0x7fff plus the lowest kept bit; NaN becomes 0x7fc0 with its
// sign.
inline uint16_t bf16_bits(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t nan = ((u >> 16) & 0x8000u) | 0x7fc0u;
  return static_cast<uint16_t>(pick((u & 0x7fffffffu) > 0x7f800000u, nan, rounded));
}

inline float float_of(BF16 x) { return float_of(static_cast<uint32_t>(x.bits) << 16); }

// Round to nearest even; NaN keeps its sign and the top ten payload bits and becomes quiet, as
// VCVTPS2PH does it.
inline uint16_t f16_bits(float x) {
  const uint32_t u = bits_of(x);
  const uint32_t a = u & 0x7fffffffu;
  // A carry may run into the exponent, up to infinity.
  const uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;
  // A unit in the last place of 0.5 is 2^-24, that of a subnormal f16: the sum rounds there.
  const bool small = a < 0x38800000u;  // < 2^-14
  const uint32_t subnormal = bits_of(float_of(pick(small, a, 0)) + 0.5f) - 0x3f000000u;
  const uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
  uint32_t r = pick(small, subnormal, normal);
  r = pick(a >= 0x47800000u, 0x7c00u, r);  // >= 2^16
  r = pick(a > 0x7f800000u, nan, r);
  return static_cast<uint16_t>(((u >> 16) & 0x8000u) | r);
}

inline float float_of(F16 x) {
  constexpr uint32_t kRebias = 112u << 23, kMinNormal = 113u << 23;  // 2^-14
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t a = static_cast<uint32_t>(x.bits & 0x7fffu) << 13;
  const uint32_t infinite = (a + 2 * kRebias) | (a > 0x0f800000u ? 0x400000u : 0u);
  // A subnormal under the exponent of the smallest normal number, minus that number.
  const uint32_t subnormal = bits_of(float_of(a + kMinNormal) - float_of(kMinNormal));
  uint32_t r = pick(a < 0x800000u, subnormal, a + kRebias);
  r = pick(a >= 0x0f800000u, infinite, r);
  return float_of(sign | r);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_ELEMENT_INL_H_
