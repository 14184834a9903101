// Stochastic rounding of f32 to bf16 and f16: up or down with the chance that makes the mean exact.
// The random bits of an element depend on the seed and on its index alone.
#ifndef MPCORE_KERNELS_STOCHASTIC_INL_H_
#define MPCORE_KERNELS_STOCHASTIC_INL_H_

#include <stdint.h>
#include <string.h>

#include "kernels/convert.inl.h"
#include "kernels/philox.inl.h"
#include "mpcore/base.h"

namespace mpcore {
namespace {

// Elements that share sixteen Philox blocks: element (2 w + h) * 16 + b of group g gets half h of
// word w of block 16 g + b, which takes no transposition.
constexpr int kStochasticGroup = 8 * kLanes;

// `random` has 16 bits. What lies below the last bit kept is carried into it if the sum with them
// overflows. The carry runs into the exponent, and from the largest finite number to infinity.
// The bits of the result, in the low half.
inline uint32_t stochastic(uint32_t u, uint32_t random, BF16) {
  const uint32_t a = u & 0x7fffffffu;
  const uint32_t nan = (u & 0x80000000u) | 0x7fc00000u;
  return pick(a > 0x7f800000u, nan, u + random) >> 16;  // infinity has nothing below to carry
}

inline uint32_t stochastic(uint32_t u, uint32_t random, F16) {
  const uint32_t a = u & 0x7fffffffu;
  const bool small = a < 0x38800000u;  // below 2^-14
  const uint32_t normal = (a + (random >> 3) - 0x38000000u) >> 13;
  // A subnormal result counts 2^-24; 2^-40, rounded up, is what 16 bits can tell apart.
  const float t = float_of(pick(small, a, 0)) * 0x1p40f;
  const auto whole = static_cast<int32_t>(t);
  const auto units = static_cast<uint32_t>(whole) + (static_cast<float>(whole) < t);
  const uint32_t nan = 0x7e00u | ((a >> 13) & 0x3ffu);
  uint32_t r = pick(small, (units + random) >> 16, normal);
  r = pick(a >= 0x47800000u, 0x7c00u, r);  // from 2^16 on
  r = pick(a > 0x7f800000u, nan, r);
  return ((u >> 16) & 0x8000u) | r;
}

template <class D>
inline void stochastic_group(const char* __restrict src, char* __restrict dst, uint64_t seed,
                             uint64_t group) {
  PhiloxBlocks blocks;
  uint32_t random[kStochasticGroup], rounded[kStochasticGroup];
  philox(seed, group * kLanes, blocks);
  for (int w = 0; w < 4; ++w) {
    for (int b = 0; b < kLanes; ++b) random[2 * w * kLanes + b] = blocks.word[w][b] & 0xffffu;
    for (int b = 0; b < kLanes; ++b) random[(2 * w + 1) * kLanes + b] = blocks.word[w][b] >> 16;
  }
  const auto* from = reinterpret_cast<const Loose<uint32_t>*>(src);
  auto* to = reinterpret_cast<Loose<uint16_t>*>(dst);
  for (int i = 0; i < kStochasticGroup; ++i) rounded[i] = stochastic(from[i].value, random[i], D{});
  for (int i = 0; i < kStochasticGroup; ++i) to[i].value = static_cast<uint16_t>(rounded[i]);
}

template <class D>
inline void cast_stochastic_to(const char* src, char* dst, int64_t n, uint64_t seed,
                               uint64_t offset) {
  constexpr int64_t kGroup = kStochasticGroup, kRead = sizeof(float), kWritten = sizeof(D);
  while (n > 0) {
    const auto first = static_cast<int64_t>(offset % kGroup);
    const int64_t live = n < kGroup - first ? n : kGroup - first;
    if (live == kGroup) {
      stochastic_group<D>(src, dst, seed, offset / kGroup);
    } else {  // a group that the range begins or ends within
      char from[kGroup * kRead] = {}, to[kGroup * kWritten];
      memcpy(from + first * kRead, src, static_cast<size_t>(live * kRead));
      stochastic_group<D>(from, to, seed, offset / kGroup);
      memcpy(dst, to + first * kWritten, static_cast<size_t>(live * kWritten));
    }
    offset += static_cast<uint64_t>(live);  // may wrap, as the index of an element does
    src += live * kRead;
    dst += live * kWritten;
    n -= live;
  }
}

void cast_stochastic_kernel(const void* src, void* dst, mpcore_dtype dst_dtype, int64_t n,
                            uint64_t seed, uint64_t offset) {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  if (dst_dtype == MPCORE_DTYPE_F16) return cast_stochastic_to<F16>(from, to, n, seed, offset);
  cast_stochastic_to<BF16>(from, to, n, seed, offset);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_STOCHASTIC_INL_H_
