// The bf16 order of mpcore_gemm is that of the TDPBF16PS instruction, bit for bit, on every level:
// the same product computed by the instruction itself. Exits with 77 (skipped) without AMX.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "mpcore/mpcore.h"

namespace {

constexpr int kTile = 16, kDepth = 32;  // a tile product: 16 x 32 times 32 x 16

bool amx_granted() {
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (1u << 22)) == 0 || (d & (1u << 24)) == 0)
    return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64};
  uint8_t rows[16] = {16, 16, 16};
};

// total[16][16] += a[16][k] * b[k][16], k a multiple of 32, pairs of k interleaved for the tile.
[[gnu::target("amx-tile,amx-bf16")]] void amx_product(int k, const uint16_t* a, const uint16_t* b,
                                                      float* total) {
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_loadd(0, total, kTile * 4);
  for (int p = 0; p < k; p += kDepth) {
    uint16_t pairs[kDepth / 2][kTile][2];
    for (int q = 0; q < kDepth; ++q)
      for (int j = 0; j < kTile; ++j) pairs[q / 2][j][q % 2] = b[(p + q) * kTile + j];
    _tile_loadd(1, a + p, k * 2);
    _tile_loadd(2, pairs, kTile * 4);
    _tile_dpbf16ps(0, 1, 2);
  }
  _tile_stored(0, total, kTile * 4);
  _tile_release();
}

std::vector<uint16_t> random_bf16(std::mt19937& random, size_t n, int low_exponent, int high) {
  std::uniform_int_distribution<uint32_t> bits(0, 0xffff), exponent(low_exponent, high);
  std::vector<uint16_t> x(n);
  for (auto& v : x) v = static_cast<uint16_t>((bits(random) & 0x807fu) | (exponent(random) << 7));
  return x;
}

// Counts differing outputs over all levels, for normal operands with exponents in [low, high].
long compare(std::mt19937& random, int k, int low, int high) {
  const auto a = random_bf16(random, kTile * k, low, high);
  const auto b = random_bf16(random, k * kTile, low, high);
  float expected[kTile * kTile] = {};
  amx_product(k, a.data(), b.data(), expected);
  long wrong = 0;
  for (int32_t level = 0; level < mpcore_isa_count(); ++level) {
    const char* name;
    int32_t available;
    mpcore_isa_describe(level, &name, &available, nullptr);
    if (!available) continue;
    if (mpcore_set_isa(nullptr, name) != MPCORE_OK) return -1;
    float actual[kTile * kTile];
    mpcore_gemm_args g = {};
    g.struct_size = sizeof(g);
    g.batch = 1;
    g.m = g.n = kTile;
    g.k = k;
    g.alpha = 1.0f;
    g.a = {const_cast<uint16_t*>(a.data()), k, 1, 0, MPCORE_DTYPE_BF16, 0};
    g.b = {const_cast<uint16_t*>(b.data()), kTile, 1, 0, MPCORE_DTYPE_BF16, 0};
    g.d = {actual, kTile, 1, 0, MPCORE_DTYPE_F32, 0};
    if (mpcore_gemm(nullptr, &g) != MPCORE_OK) {
      std::fprintf(stderr, "%s\n", mpcore_last_error());
      return -1;
    }
    for (int i = 0; i < kTile * kTile; ++i)
      wrong += std::memcmp(&expected[i], &actual[i], sizeof(float)) != 0;
  }
  return wrong;
}

}  // namespace

int main() {
  if (!amx_granted()) {
    std::puts("skipped: this CPU or operating system does not offer AMX BF16");
    return 77;
  }
  std::mt19937 random(20240229);
  long wrong = 0, runs = 0;
  for (int k : {32, 64, 96, 320, 2080}) {
    for (int repeat = 0; repeat < 20; ++repeat, ++runs) {
      wrong += compare(random, k, 117, 137);  // ordinary: 2^-10 .. 2^10
      wrong += compare(random, k, 50, 75);    // sums around 2^-126, where results are flushed
    }
  }
  std::printf("%ld products of 16 x 16, %ld outputs differ\n", 2 * runs, wrong);
  return wrong == 0 ? 0 : 1;
}
