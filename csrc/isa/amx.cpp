// AVX-512 with BF16 and FP16 conversions and AMX tiles: Sapphire Rapids and later.
#include "isa/amx_limits.h"
#include "isa/dot_limits.h"
#include "isa/f32x16_avx512.h"
#include "kernels/table.inl.h"

namespace mpcore {
namespace {

struct Level {
  static constexpr const char* kName = "amx";
  // Rows and vectors of a GEMM tile: 28 accumulators of 32 registers.
  static constexpr int kChainRows = 14, kChainVectors = 2;
  static constexpr int kPairRows = 7, kPairVectors = 2;
  static constexpr auto kDotBf16Peak = dot_bf16_peak;
  static constexpr auto kAmxBf16Peak = amx_bf16_peak;
  static constexpr const char* kGemmF32Note =
      "one fp32 FMA chain; at lower precision TDPBF16PS on sums of bf16";
  static constexpr const char* kGemmF16Note = "TDPBF16PS, each f16 as two bf16, exactly";
  static constexpr const char* kGemmBf16Note = "TDPBF16PS";
};

constexpr KernelTable make_amx_table() {
  KernelTable table = make_table<Level>();
  table.tiles = &kAmxTileTable;
  return table;
}

}  // namespace

constinit const KernelTable kAmxTable = make_amx_table();

}  // namespace mpcore
