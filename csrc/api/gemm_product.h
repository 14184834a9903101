// One product by whichever path is its own: what mpcore_gemm and the other columns run.
#ifndef MPCORE_API_GEMM_PRODUCT_H_
#define MPCORE_API_GEMM_PRODUCT_H_

#include "api/gemm_problem.h"
#include "runtime/context.h"

namespace mpcore {

// d = a b, which callers make more of.
inline GemmProblem plain_product(int64_t m, int64_t n, int64_t k, const mpcore_matrix& a,
                                 const mpcore_matrix& b, const mpcore_matrix& d,
                                 mpcore_matmul_precision precision) {
  const mpcore_matrix none{nullptr, 0, 0, 0, d.dtype, 0};
  return {.m = m,
          .n = n,
          .k = k,
          .a = a,
          .b = b,
          .d = d,
          .residual = none,
          .pre_activation = none,
          .packed_b = nullptr,
          .alpha = 1.0f,
          .beta = 0.0f,
          .bias = nullptr,
          .activation = MPCORE_ACTIVATION_LINEAR,
          .precision = precision,
          .squares = nullptr,
          .squares_stride = 0,
          .non_finite = nullptr};
}

mpcore_status multiply(Session& session, const GemmProblem& problem);

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_PRODUCT_H_
