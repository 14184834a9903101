// AVX-512 with BF16 conversions: Cooper Lake, Sapphire Rapids, Zen 4.
#include "isa/dot_limits.h"
#include "isa/f32x16_avx512.h"
#include "kernels/table.inl.h"

namespace mpcore {
namespace {

struct Level {
  static constexpr const char* kName = "avx512_bf16";
  // Rows and vectors of a GEMM tile: 28 accumulators of 32 registers.
  static constexpr int kChainRows = 14, kChainVectors = 2;
  static constexpr int kPairRows = 7, kPairVectors = 2;
  static constexpr auto kDotBf16Peak = dot_bf16_peak;
};

}  // namespace

constinit const KernelTable kAvx512Bf16Table = make_table<Level>();

}  // namespace mpcore
