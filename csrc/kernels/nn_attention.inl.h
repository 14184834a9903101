// The softmax between the two products of attention, and its backward. The mode is kIeee.
#ifndef MPCORE_KERNELS_NN_ATTENTION_INL_H_
#define MPCORE_KERNELS_NN_ATTENTION_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/nn.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// A score that does not count: e to the power of what it lies below any other is 0.
constexpr float kMaskedScore = -0x1p+127f;

// 0 where a byte is, else 1.
inline F32x16 load_mask(const uint8_t* p, int count) {
  uint8_t bytes[kLanes] = {};
  float v[kLanes];
  memcpy(bytes, p, static_cast<size_t>(count));
  for (int l = 0; l < kLanes; ++l) v[l] = bytes[l] != 0 ? 1.0f : 0.0f;
  return F32x16::load(v);
}

// Adds bias and mask to a row of scores; those from `visible` on do not count.
inline void mask_scores(float* scores, int64_t cols, const float* bias, const uint8_t* mask,
                        int64_t visible) {
  const F32x16 masked = F32x16::set(kMaskedScore), one = F32x16::set(1.0f);
  for_each_vector(cols, [&](int64_t j, auto count) {
    F32x16 s = load(scores + j, count);
    if (bias != nullptr) s = s + load(bias + j, count);
    if (mask != nullptr) s = select(less(load_mask(mask + j, count), one), masked, s);
    store(s, scores + j, count);
  });
  for (int64_t j = visible; j < cols; ++j) scores[j] = kMaskedScore;
}

void attention_kernel(const AttentionRows& r) {
  dispatch_compute(r.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < r.rows; ++i) {
      float* const scores = r.scores + i * r.cols;
      const int64_t visible = r.visible + i < r.cols ? r.visible + i : r.cols;
      mask_scores(scores, r.cols, r.bias == nullptr ? nullptr : r.bias + i * r.bias_stride,
                  r.mask == nullptr ? nullptr : r.mask + i * r.mask_stride, visible);
      const RowSum row = sum_exp(scores, r.cols);
      const F32x16 shift = F32x16::set(row.max), sum = F32x16::set(row.sum);
      T* const to = static_cast<T*>(r.probabilities) + i * r.cols;
      for_each_vector(r.cols, [&](int64_t j, auto count) {
        store(exp(load(scores + j, count) - shift) / sum, to + j, count);
      });
    }
  });
}

void attention_backward_kernel(const AttentionRows& r) {
  const F32x16 scale = F32x16::set(r.scale);
  dispatch_compute(r.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < r.rows; ++i) {
      const float* const gradients = r.scores + i * r.cols;
      const T* const p = static_cast<const T*>(r.probabilities) + i * r.cols;
      T* const to = static_cast<T*>(r.dscores) + i * r.cols;
      F32x16 sum = F32x16::zero();
      for_each_vector(r.cols, [&](int64_t j, auto count) {
        sum = fma(load(p + j, count), load(gradients + j, count), sum);
      });
      const F32x16 mean = F32x16::set(reduce_add(sum));
      for_each_vector(r.cols, [&](int64_t j, auto count) {
        const F32x16 slope = load(p + j, count) * (load(gradients + j, count) - mean);
        store(scale * slope, to + j, count);
      });
    }
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NN_ATTENTION_INL_H_
