// Philox4x32-10 (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011):
// sixteen blocks of four 32-bit words at once.
#ifndef MPCORE_KERNELS_PHILOX_INL_H_
#define MPCORE_KERNELS_PHILOX_INL_H_

#include <stdint.h>

#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// Sixteen blocks; word[w][b] is word w of block b.
struct PhiloxBlocks {
  uint32_t word[4][kLanes];
};

// The blocks `first` to `first` + 15 under the key `seed`. `first`, a multiple of 16, counts in the
// low 64 bits of the 128-bit counter; the upper ones are 0. Low words come first.
inline void philox(uint64_t seed, uint64_t first, PhiloxBlocks& out) {
  static constexpr uint32_t kLane[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  U32x16 w0 = U32x16::load(kLane) ^ U32x16::set(static_cast<uint32_t>(first));
  U32x16 w1 = U32x16::set(static_cast<uint32_t>(first >> 32));
  U32x16 w2 = U32x16::set(0), w3 = w2;
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    U32x16 low0, high0, low1, high1;
    multiply_wide(w0, 0xd2511f53u, low0, high0);
    multiply_wide(w2, 0xcd9e8d57u, low1, high1);
    w0 = high1 ^ w1 ^ U32x16::set(key0);
    w1 = low1;
    w2 = high0 ^ w3 ^ U32x16::set(key1);
    w3 = low0;
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  w0.store(out.word[0]);
  w1.store(out.word[1]);
  w2.store(out.word[2]);
  w3.store(out.word[3]);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_PHILOX_INL_H_
