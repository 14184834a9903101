// Which products are ones for the tiles (see gemm_tiles.h), and how the tile path cuts them.
#ifndef MPCORE_API_GEMM_TILE_BLOCKING_H_
#define MPCORE_API_GEMM_TILE_BLOCKING_H_

#include <stdint.h>

#include "api/gemm_problem.h"
#include "dispatch/tile_kernels.h"

namespace mpcore {

// Columns of B that take the exact path together.
constexpr int64_t kColumnBlock = kSquareColumns;
static_assert(kColumnBlock % kPanelLines == 0);

// Two structures:
//  - "rows": a task packs a block of columns of B for itself, which then streams from L2, and walks
//    down the panels of A, read where they stand if they can be. k is not cut, except for few rows
//    of A and contiguous rows of B: then blocks are wide and flat.
//  - "blocks" (`ahead`): A and B are packed before the tasks, which add up k blocks in fp32 tiles
//    that stay in L2. What is packed at once is bounded.
// Rows are multiples of kPanelLines, columns of kColumnBlock, depths of kStepDepth.
struct TileBlocking {
  bool ahead = false;
  int64_t rows = 0, cols = 0;                               // of a task
  int64_t depth = 0;                                        // of a k block
  int64_t ahead_rows = 0, ahead_cols = 0, ahead_depth = 0;  // lines 0 for "rows"
};

TileBlocking tile_blocking(const GemmProblem& problem, TileScheme scheme, int64_t threads);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_TILE_BLOCKING_H_
