// AVX-512 F, BW, DQ, VL: Skylake-SP and later, Zen 4.
#include "isa/f32x16_avx512.h"
#include "kernels/table.inl.h"

namespace mpcore {
namespace {

struct Level {
  static constexpr const char* kName = "avx512";
  // Rows and vectors of a GEMM tile: 28 accumulators of 32 registers.
  static constexpr int kChainRows = 14, kChainVectors = 2;
  static constexpr int kPairRows = 7, kPairVectors = 2;
};

}  // namespace

constinit const KernelTable kAvx512Table = make_table<Level>();

}  // namespace mpcore
