// AVX2, FMA, F16C: Haswell (2013) and later, Zen.
#include "isa/f32x16_avx2.h"
#include "kernels/table.inl.h"

namespace mpcore {
namespace {

struct Level {
  static constexpr const char* kName = "avx2";
  // Rows and vectors of a GEMM tile: 12 accumulators of 16 registers.
  static constexpr int kChainRows = 6, kChainVectors = 1;
  static constexpr int kPairRows = 3, kPairVectors = 1;
};

}  // namespace

constinit const KernelTable kAvx2Table = make_table<Level>();

}  // namespace mpcore
