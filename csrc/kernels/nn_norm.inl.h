// Layer, RMS, and batch normalisation. Statistics are fp32, from differences to the mean, whose own
// rounding is taken out again; every sum runs in a fixed order. The floating-point mode is kIeee.
#ifndef MPCORE_KERNELS_NN_NORM_INL_H_
#define MPCORE_KERNELS_NN_NORM_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// A vector of a row of parameters; where there is none, what changes nothing.
template <class Count>
inline F32x16 load_or(const float* p, int64_t i, float neutral, Count count) {
  return p == nullptr ? F32x16::set(neutral) : load(p + i, count);
}
constexpr float kNoFactor = 1.0f, kNoTerm = -0.0f;  // x + -0 is x, also for -0

// Sums over a row: vectors take turns in four chains, those of the rest make a fifth; the chains
// are added pairwise, their lanes by halving. add(j, count, chain) adds vector j to the chain.
template <int kSums, class Add>
inline void sum_row(int64_t cols, float (&sums)[kSums], Add&& add) {
  constexpr int kChains = 4;
  constexpr int64_t kStep = kChains * kLanes;
  F32x16 chain[kChains][kSums], rest[kSums];
  for (int s = 0; s < kSums; ++s) {
    rest[s] = F32x16::zero();
    for (int c = 0; c < kChains; ++c) chain[c][s] = F32x16::zero();
  }
  int64_t j = 0;
  for (; j + kStep <= cols; j += kStep)
    for (int c = 0; c < kChains; ++c) add(j + c * kLanes, Whole{}, chain[c]);
  for_each_vector(cols - j, [&](int64_t i, auto count) { add(j + i, count, rest); });
  for (int s = 0; s < kSums; ++s)
    sums[s] = reduce_add(((chain[0][s] + chain[1][s]) + (chain[2][s] + chain[3][s])) + rest[s]);
}

inline float reciprocal_root(float x) { return 1.0f / __builtin_sqrtf(x); }
inline float load_float(const float* p) {
  float x;
  memcpy(&x, p, sizeof(x));
  return x;
}
inline void store_float(float x, float* p) {
  if (p != nullptr) memcpy(p, &x, sizeof(x));
}

// --- Rows: layer and RMS normalisation -----------------------------------------------------------

struct RowStatistics {
  float mean, rstd;
};
template <bool kCenter, class T>
inline RowStatistics row_statistics(const T* x, int64_t cols, float epsilon) {
  const float n = static_cast<float>(cols);
  float sums[2] = {0.0f, 0.0f}, mean = 0.0f;
  if constexpr (kCenter) {
    float total[1];
    sum_row(cols, total,
            [&](int64_t j, auto count, F32x16* sum) { sum[0] = sum[0] + load(x + j, count); });
    mean = total[0] / n;
  }
  const F32x16 shift = F32x16::set(mean);
  sum_row(cols, sums, [&](int64_t j, auto count, F32x16* sum) {
    F32x16 d = load(x + j, count);
    if constexpr (kCenter) {
      d = first_lanes(d - shift, count);
      sum[0] = sum[0] + d;
    }
    sum[1] = fma(d, d, sum[1]);
  });
  const float missed = sums[0] / n;  // what rounding left in the mean
  const float variance = sums[1] / n - missed * missed;
  return {mean + missed, reciprocal_root((variance < 0.0f ? 0.0f : variance) + epsilon)};
}

template <bool kCenter, class T>
inline void row_norm_of(const RowNorm& r) {
  for (int64_t i = 0; i < r.rows; ++i) {
    const T* x = static_cast<const T*>(r.x) + i * r.cols;
    T* y = static_cast<T*>(r.y) + i * r.cols;
    const RowStatistics row = row_statistics<kCenter>(x, r.cols, r.epsilon);
    if (r.mean != nullptr) store_float(row.mean, r.mean + i);
    if (r.rstd != nullptr) store_float(row.rstd, r.rstd + i);
    const F32x16 mean = F32x16::set(row.mean), rstd = F32x16::set(row.rstd);
    for_each_vector(r.cols, [&](int64_t j, auto count) {
      const F32x16 gamma = load_or(r.gamma, j, kNoFactor, count);
      const F32x16 beta = load_or(r.beta, j, kNoTerm, count);
      F32x16 d = load(x + j, count);
      if constexpr (kCenter) d = d - mean;
      store(fma(d * rstd, gamma, beta), y + j, count);
    });
  }
}

void row_norm_kernel(const RowNorm& r) {
  dispatch_compute(r.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    r.center ? row_norm_of<true, T>(r) : row_norm_of<false, T>(r);
  });
}

// With h = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)); without
// centering mean(g) is left out. The sums of dy h and dy over the rows are added to dgamma, dbeta.
template <bool kCenter, class T>
inline void row_norm_backward_of(const RowNormBackward& r) {
  const float n = static_cast<float>(r.cols);
  for (int64_t i = 0; i < r.rows; ++i) {
    const T* x = static_cast<const T*>(r.x) + i * r.cols;
    const T* dy = static_cast<const T*>(r.dy) + i * r.cols;
    const F32x16 rstd = F32x16::set(load_float(r.rstd + i));
    const F32x16 mean = kCenter ? F32x16::set(load_float(r.mean + i)) : F32x16::zero();
    const auto normalized = [&](int64_t j, auto count) {
      const F32x16 value = load(x + j, count);
      return (kCenter ? first_lanes(value - mean, count) : value) * rstd;
    };
    float sums[2];
    sum_row(r.cols, sums, [&](int64_t j, auto count, F32x16* sum) {
      const F32x16 d = load(dy + j, count), h = normalized(j, count);
      if (r.dgamma != nullptr) store(fma(d, h, load(r.dgamma + j, count)), r.dgamma + j, count);
      if (r.dbeta != nullptr) store(load(r.dbeta + j, count) + d, r.dbeta + j, count);
      const F32x16 g = d * load_or(r.gamma, j, kNoFactor, count);
      if constexpr (kCenter) sum[0] = sum[0] + g;
      sum[1] = fma(g, h, sum[1]);
    });
    if (r.dx == nullptr) continue;
    T* dx = static_cast<T*>(r.dx) + i * r.cols;
    const F32x16 shift = F32x16::set(sums[0] / n), slope = F32x16::set(0.0f - sums[1] / n);
    for_each_vector(r.cols, [&](int64_t j, auto count) {
      F32x16 g = load(dy + j, count) * load_or(r.gamma, j, kNoFactor, count);
      if constexpr (kCenter) g = g - shift;
      store(fma(normalized(j, count), slope, g) * rstd, dx + j, count);
    });
  }
}

void row_norm_backward_kernel(const RowNormBackward& r) {
  dispatch_compute(r.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    r.center ? row_norm_backward_of<true, T>(r) : row_norm_backward_of<false, T>(r);
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NN_NORM_INL_H_
