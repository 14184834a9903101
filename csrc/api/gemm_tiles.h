// The matrix product on matrix tiles (AMX): bf16 exactly in the `pairs` order; f16 and f32 by bf16
// parts.
#ifndef MPCORE_API_GEMM_TILES_H_
#define MPCORE_API_GEMM_TILES_H_

#include "api/gemm_pack.h"
#include "api/gemm_problem.h"
#include "dispatch/tile_kernels.h"
#include "runtime/context.h"

namespace mpcore {

// Are these products ones for the tiles?
bool tiles_can(const Session& session, mpcore_dtype dtype, mpcore_matmul_precision precision,
               int64_t k);
TileScheme tile_scheme(mpcore_dtype dtype, mpcore_matmul_precision precision);

// Rows of A, and blocks of kSquareColumns columns of B, with elements that tiles cannot multiply
// take the panel path; whether they do depends on nothing else.
mpcore_status tile_product(Session& session, const GemmProblem& problem);

// B packed ahead for tile_product().
extern const PackFormat kTileFormat;
struct PackedTiles {
  const void* panels;   // in kPanelFormat
  const char* tiles;    // panels over all of k
  const char* special;  // for each block of kSquareColumns columns: does it take the panel path?
};
PackedTiles packed_tiles(const Session& session, const PackedShape& shape, const void* data);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_TILES_H_
