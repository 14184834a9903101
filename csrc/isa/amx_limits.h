// The rate of TDPBF16PS on random numbers: tiles of zeros run 15 to 20 % faster.
#ifndef MPCORE_ISA_AMX_LIMITS_H_
#define MPCORE_ISA_AMX_LIMITS_H_

#include <immintrin.h>
#include <stdint.h>

#include "isa/f32x16_avx512.h"
// After the vector it is written in.
#include "kernels/limits.inl.h"

namespace mpcore {
namespace {

constexpr int kTileRows = 16, kTileRowBytes = 64;

struct alignas(64) Tile {
  uint8_t bytes[kTileRows * kTileRowBytes];
};

inline Tile random_tile(uint32_t seed) {
  Tile tile;
  for (int row = 0; row < kTileRows; ++row) {
    const uint32_t s = seed + 2 * static_cast<uint32_t>(row);
    const __m512bh pairs = _mm512_cvtne2ps_pbh(random_lanes(s).v, random_lanes(s + 1).v);
    _mm512_store_si512(tile.bytes + row * kTileRowBytes, reinterpret_cast<__m512i>(pairs));
  }
  return tile;
}

struct alignas(64) ProbeConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// All tiles whole while it lives; then as they were found, since another library may count on it.
class WholeTiles {
 public:
  WholeTiles() {
    _tile_storeconfig(&found_);
    const ProbeConfig whole;
    _tile_loadconfig(&whole);
  }
  ~WholeTiles() {
    if (found_.palette == 0)
      _tile_release();
    else
      _tile_loadconfig(&found_);
  }
  WholeTiles(const WholeTiles&) = delete;
  WholeTiles& operator=(const WholeTiles&) = delete;

 private:
  ProbeConfig found_;
};

// Four products per step, two by two, as a kernel has them.
inline int64_t amx_bf16_peak(int64_t iterations) {
  const Tile a0 = random_tile(1), a1 = random_tile(101), b0 = random_tile(201),
             b1 = random_tile(301);
  const WholeTiles whole;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, a0.bytes, kTileRowBytes);
  _tile_loadd(5, a1.bytes, kTileRowBytes);
  _tile_loadd(6, b0.bytes, kTileRowBytes);
  _tile_loadd(7, b1.bytes, kTileRowBytes);
  for (int64_t i = 0; i < iterations * kPeakSteps; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  Tile sum;
  _tile_stored(0, sum.bytes, kTileRowBytes);
  keep(sum);
  constexpr int64_t kProducts = 4, kOperations = int64_t{2} * 16 * 16 * 32;
  return iterations * kPeakSteps * kProducts * kOperations;
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_AMX_LIMITS_H_
