// The matrix product by FMA over fp32 panels: the path every level has.
#ifndef MPCORE_API_GEMM_PANELS_H_
#define MPCORE_API_GEMM_PANELS_H_

#include <stdint.h>

#include "api/gemm_pack.h"
#include "api/gemm_problem.h"
#include "runtime/context.h"

namespace mpcore {

// Rows of A and D: `count` of them, those named by `index` or, without it, the first ones.
struct GemmRows {
  int64_t count;
  const int64_t* index = nullptr;

  int64_t operator[](int64_t i) const { return index != nullptr ? index[i] : i; }
};

// Computes the rows of the product; the others are not touched.
mpcore_status panel_product(Session& session, const GemmProblem& problem, const GemmRows& rows);

// The whole product on the calling thread, from inside a task that runs in gemm_mode(). The
// workspace, of that size, is the task's own.
int64_t panel_workspace_bytes(const GemmKernels& kernels, const GemmProblem& problem);
void panel_product_here(const GemmKernels& kernels, const GemmProblem& problem, void* workspace);

// B in panels as wide as the level's tiles, in its own dtype.
extern const PackFormat kPanelFormat;

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_PANELS_H_
