// The matrix product on matrix tiles (AMX): bf16 exactly in the `pairs` order; f16 and f32 by bf16
// parts.
#ifndef MPCORE_API_GEMM_TILES_H_
#define MPCORE_API_GEMM_TILES_H_

#include "api/gemm_problem.h"
#include "runtime/context.h"

namespace mpcore {

// Is this product one for the tiles? Depends on the level, dtype, precision, and k alone.
bool tiles_can(const Session& session, const GemmProblem& problem);

// Rows of A, and blocks of kSquareColumns columns of B, with elements that tiles cannot multiply
// take the panel path; whether they do depends on nothing else.
mpcore_status tile_product(Session& session, const GemmProblem& problem);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_TILES_H_
