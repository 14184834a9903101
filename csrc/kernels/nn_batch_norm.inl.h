// Batch normalisation: statistics and gradients of columns, in leaves of at most kColumnSumRows
// rows. Arithmetic is fp32; what a column gives depends on no other column. The floating-point mode
// is kIeee.
#ifndef MPCORE_KERNELS_NN_BATCH_NORM_INL_H_
#define MPCORE_KERNELS_NN_BATCH_NORM_INL_H_

#include <stdint.h>

#include "kernels/nn_norm.inl.h"

namespace mpcore {
namespace {

// Columns whose sums are carried together: 1 KiB each of the nearest cache.
constexpr int64_t kNormColumns = 256;

// add(j, count, sum) adds an element of each column to its sums, for the rows in increasing order.
template <int kSums, class Row>
inline void sum_columns(int64_t rows, int64_t cols, float (&sums)[kSums][kNormColumns], Row&& add) {
  for (int s = 0; s < kSums; ++s)
    for (int64_t j = 0; j < kNormColumns; ++j) sums[s][j] = 0.0f;
  for (int64_t i = 0; i < rows; ++i) {
    for_each_vector(cols, [&](int64_t j, auto count) {
      F32x16 sum[kSums];
      for (int s = 0; s < kSums; ++s) sum[s] = F32x16::load(sums[s] + j);
      add(i, j, count, sum);
      for (int s = 0; s < kSums; ++s) sum[s].store(sums[s] + j);
    });
  }
}

// The mean of the leaf as its rows' sum gives it, and the sums of differences to it and of their
// squares.
void column_moments_kernel(int64_t rows, int64_t cols, const void* x, float* mean, float* rest,
                           float* squares, mpcore_dtype dtype) {
  dispatch_compute(dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    const F32x16 n = F32x16::set(static_cast<float>(rows));
    alignas(64) float total[1][kNormColumns], around[2][kNormColumns];
    for (int64_t left = 0; left < cols; left += kNormColumns) {
      const int64_t width = cols - left < kNormColumns ? cols - left : kNormColumns;
      const T* from = static_cast<const T*>(x) + left;
      sum_columns(rows, width, total, [&](int64_t i, int64_t j, auto count, F32x16* sum) {
        sum[0] = sum[0] + load(from + i * cols + j, count);
      });
      for_each_vector(width, [&](int64_t j, auto count) {
        store(F32x16::load(total[0] + j) / n, mean + left + j, count);
      });
      sum_columns(rows, width, around, [&](int64_t i, int64_t j, auto count, F32x16* sum) {
        const F32x16 d = load(from + i * cols + j, count) - load(mean + left + j, count);
        sum[0] = sum[0] + d;
        sum[1] = fma(d, d, sum[1]);
      });
      memcpy(rest + left, around[0], sizeof(float) * static_cast<size_t>(width));
      memcpy(squares + left, around[1], sizeof(float) * static_cast<size_t>(width));
    }
  });
}

void column_norm_kernel(const ColumnNorm& c) {
  dispatch_compute(c.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < c.rows; ++i) {
      const T* x = static_cast<const T*>(c.x) + i * c.cols;
      T* y = static_cast<T*>(c.y) + i * c.cols;
      for_each_vector(c.cols, [&](int64_t j, auto count) {
        const F32x16 d = load(x + j, count) - load_or(c.mean, j, 0.0f, count);
        const F32x16 h = d * load(c.rstd + j, count);
        const F32x16 gamma = load_or(c.gamma, j, kNoFactor, count);
        store(fma(h, gamma, load_or(c.beta, j, kNoTerm, count)), y + j, count);
      });
    }
  });
}

// Sums of dy h and of dy, h = (x - mean) rstd, over the rows of a leaf.
void column_norm_sums_kernel(const ColumnNormSums& c) {
  dispatch_compute(c.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    alignas(64) float sums[2][kNormColumns];
    for (int64_t left = 0; left < c.cols; left += kNormColumns) {
      const int64_t width = c.cols - left < kNormColumns ? c.cols - left : kNormColumns;
      const T* x = static_cast<const T*>(c.x) + left;
      const T* dy = static_cast<const T*>(c.dy) + left;
      sum_columns(c.rows, width, sums, [&](int64_t i, int64_t j, auto count, F32x16* sum) {
        const F32x16 d = load(x + i * c.cols + j, count) - load(c.mean + left + j, count);
        const F32x16 g = load(dy + i * c.cols + j, count);
        sum[0] = fma(g, d * load(c.rstd + left + j, count), sum[0]);
        sum[1] = sum[1] + g;
      });
      memcpy(c.dgamma + left, sums[0], sizeof(float) * static_cast<size_t>(width));
      memcpy(c.dbeta + left, sums[1], sizeof(float) * static_cast<size_t>(width));
    }
  });
}

// dx = (dy - shift - h slope) factor.
void column_norm_backward_kernel(const ColumnNormBackward& c) {
  dispatch_compute(c.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    const F32x16 zero = F32x16::zero();
    for (int64_t i = 0; i < c.rows; ++i) {
      const T* x = static_cast<const T*>(c.x) + i * c.cols;
      const T* dy = static_cast<const T*>(c.dy) + i * c.cols;
      T* dx = static_cast<T*>(c.dx) + i * c.cols;
      for_each_vector(c.cols, [&](int64_t j, auto count) {
        const F32x16 d = load(x + j, count) - load(c.mean + j, count);
        const F32x16 h = d * load(c.rstd + j, count);
        const F32x16 g = load(dy + j, count) - load(c.shift + j, count);
        store(fma(zero - h, load(c.slope + j, count), g) * load(c.factor + j, count), dx + j,
              count);
      });
    }
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NN_BATCH_NORM_INL_H_
