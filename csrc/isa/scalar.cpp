// The level every CPU has.
#include "isa/f32x16_scalar.h"
#include "kernels/table.inl.h"

namespace mpcore {
namespace {

struct Level {
  static constexpr const char* kName = "scalar";
  // Rows and vectors of a GEMM tile: small, since there are few registers to fill.
  static constexpr int kChainRows = 4, kChainVectors = 1;
  static constexpr int kPairRows = 4, kPairVectors = 1;
};

}  // namespace

constinit const KernelTable kScalarTable = make_table<Level>();

}  // namespace mpcore
