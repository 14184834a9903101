// The matrix product by FMA over fp32 panels: the path every level has.
#ifndef MPCORE_API_GEMM_PANELS_H_
#define MPCORE_API_GEMM_PANELS_H_

#include <stdint.h>

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

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_PANELS_H_
