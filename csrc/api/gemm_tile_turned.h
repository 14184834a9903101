// The tile path for few rows of A and a B whose columns are contiguous, as in x·Wᵀ: the transposed
// product. Columns of B are then panels of the left operand and multiplied where they stand; of B,
// the large one, nothing is packed. Products commute, so the bits are those of tile_product(); not
// so where operands are split, as the order of the parts of A and B counts.
#ifndef MPCORE_API_GEMM_TILE_TURNED_H_
#define MPCORE_API_GEMM_TILE_TURNED_H_

#include "api/gemm_problem.h"
#include "dispatch/tile_kernels.h"
#include "runtime/context.h"

namespace mpcore {

// Is this product of tiles better computed this way?
bool prefers_turned(const GemmProblem& problem, TileScheme scheme);

mpcore_status turned_product(Session& session, const GemmProblem& problem);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_TILE_TURNED_H_
