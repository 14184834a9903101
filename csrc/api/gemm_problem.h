// One product of a call whose arguments have been checked, as every path sees it.
#ifndef MPCORE_API_GEMM_PROBLEM_H_
#define MPCORE_API_GEMM_PROBLEM_H_

#include <stdint.h>

#include <atomic>

#include "api/check.h"
#include "dispatch/kernel_table.h"
#include "mpcore/gemm.h"
#include "runtime/fpenv.h"

namespace mpcore {

inline void* element(const mpcore_matrix& x, int64_t i, int64_t j) {
  return static_cast<char*>(x.data) + (i * x.row_stride + j * x.col_stride) * dtype_size(x.dtype);
}

// Sums of squares that a row of n columns has; see GemmEpilogue.
constexpr int64_t square_leaves(int64_t n) { return ceil_div(n, kSquareColumns); }

// As a double, since it may pass 2^63.
inline double multiplications(int64_t m, int64_t n, int64_t k) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// The order of summation of a dtype, and the floating-point mode it needs. Packing, the conversions
// of which are exact, does not notice the mode.
inline const GemmOrder& gemm_order(const GemmKernels& kernels, mpcore_dtype dtype) {
  return dtype == MPCORE_DTYPE_BF16 ? kernels.pairs : kernels.chain;
}
inline FpMode gemm_mode(mpcore_dtype dtype) {
  return dtype == MPCORE_DTYPE_BF16 ? FpMode::kFlushResults : FpMode::kIeee;
}

struct GemmProblem {
  int64_t m, n, k;
  mpcore_matrix a, b, d, residual, pre_activation;
  const void* packed_b;  // b packed ahead, in place of b.data; or nullptr
  float alpha, beta;
  const float* bias;  // n values or nullptr
  mpcore_activation activation;
  mpcore_matmul_precision precision;  // never DEFAULT
  double* squares;                    // nullptr, or a sum for each leaf of each row, zero at first
  int64_t squares_stride;             // leaves between rows: square_leaves(n)
  std::atomic<bool>* non_finite;      // nullptr, or set once an element of d is not finite

  // Columns [j, j + cols) of the product; j is a multiple of kSquareColumns.
  GemmProblem columns(int64_t j, int64_t cols) const {
    GemmProblem part = *this;
    part.n = cols;
    for (mpcore_matrix* x : {&part.b, &part.d, &part.residual, &part.pre_activation})
      if (x->data != nullptr) x->data = element(*x, 0, j);
    // A whole number of panels: no level has wider ones than kSquareColumns.
    if (packed_b != nullptr)
      part.packed_b = static_cast<const char*>(packed_b) + j * k * dtype_size(b.dtype);
    if (bias != nullptr) part.bias += j;
    if (squares != nullptr) part.squares += j / kSquareColumns;
    return part;
  }

  // Finishes D[i : i + rows, j : j + cols] from its totals; j is a multiple of sixteen. With
  // squares, two threads must not be in the same kSquareColumns columns of a row.
  void finish(const GemmKernels& kernels, int64_t i, int64_t j, int64_t rows, int64_t cols,
              const float* total, int64_t total_stride) const {
    const auto from = [&](mpcore_matrix x) {
      if (x.data != nullptr) x.data = element(x, i, j);
      return x;
    };
    const bool finite =
        kernels.epilogue({.total = total,
                          .total_stride = total_stride,
                          .rows = rows,
                          .cols = cols,
                          .alpha = alpha,
                          .beta = beta,
                          .d = from(d),
                          .residual = from(residual),
                          .pre_activation = from(pre_activation),
                          .bias = bias != nullptr ? bias + j : nullptr,
                          .activation = activation,
                          .squares = squares != nullptr ? squares + i * squares_stride : nullptr,
                          .squares_stride = squares_stride,
                          .column = j,
                          .check_finite = non_finite != nullptr});
    if (!finite) non_finite->store(true, std::memory_order_relaxed);
  }
};

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_PROBLEM_H_
