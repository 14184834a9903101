// Activations, bias gradients, softmax, and softmax cross-entropy. Arithmetic is fp32 and each
// output is rounded once; sums run in a fixed order. The floating-point mode is kIeee.
#ifndef MPCORE_KERNELS_NN_INL_H_
#define MPCORE_KERNELS_NN_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/math.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

void activation_kernel(mpcore_activation f, const void* x, void* y, mpcore_dtype dtype, int64_t n) {
  dispatch_activation(f, [&](auto tag) {
    dispatch_compute(dtype, [&](auto* type) {
      using T = Pointee<decltype(type)>;
      const T* from = static_cast<const T*>(x);
      T* to = static_cast<T*>(y);
      for_each_vector(n, [&](int64_t i, auto count) {
        store(activate<decltype(tag)::value>(load(from + i, count)), to + i, count);
      });
    });
  });
}

// Derivatives of the activations that their output does not determine, at z. From some magnitude on
// they are 0 or 1: infinity is brought down to where that is so.
inline F32x16 bounded(F32x16 z) { return max(F32x16::set(-32.0f), min(F32x16::set(32.0f), z)); }
inline F32x16 gelu_slope(F32x16 z) {
  const Normal n = normal(z);
  return fma(bounded(z), n.density, n.distribution);
}
inline F32x16 gelu_tanh_slope(F32x16 z) {
  const F32x16 x = bounded(z), argument = gelu_argument(x), s = sigmoid(argument);
  const F32x16 inner =
      fma(F32x16::set(3.0f * kGeluCubic), x * x, F32x16::set(kGeluLinear));  // of the argument
  return fma(x * inner, s * sigmoid(F32x16::zero() - argument), s);
}
inline F32x16 silu_slope(F32x16 z) {
  const F32x16 x = max(F32x16::set(-128.0f), min(F32x16::set(128.0f), z)), s = sigmoid(x);
  return fma(x, s * sigmoid(F32x16::zero() - x), s);
}

// dy times the derivative of the activation, from its output y; for GELU, GELU_TANH, and SILU y is
// their input.
template <mpcore_activation kActivation>
inline F32x16 activation_backward(F32x16 y, F32x16 dy) {
  const F32x16 one = F32x16::set(1.0f), zero = F32x16::zero();
  if constexpr (kActivation == MPCORE_ACTIVATION_RELU) {
    return select(less(zero, y), dy, zero);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_SIGMOID) {
    return dy * y * (one - y);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_TANH) {
    return dy * fma(zero - y, y, one);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_GELU) {
    return dy * gelu_slope(y);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_GELU_TANH) {
    return dy * gelu_tanh_slope(y);
  } else if constexpr (kActivation == MPCORE_ACTIVATION_SILU) {
    return dy * silu_slope(y);
  } else {
    return dy;
  }
}

// Columns whose sums are carried together: 2 KiB of the nearest cache.
constexpr int64_t kColumnBlock = 512;

// A leaf sums the fp32 dz of its rows in increasing order, in fp32, from 0; leaves are added to db
// in increasing order, in double. A column's sum depends on no other column.
template <mpcore_activation kActivation, bool kSums, class T>
inline void dense_backward_of(int64_t rows, int64_t cols, int64_t row_stride, const T* y,
                              const T* dy, T* dz, double* db) {
  alignas(64) float sum[kColumnBlock];
  for (int64_t first = 0; first < rows; first += kColumnSumRows) {
    const int64_t last = rows - first < kColumnSumRows ? rows : first + kColumnSumRows;
    for (int64_t left = 0; left < cols; left += kColumnBlock) {
      const int64_t width = cols - left < kColumnBlock ? cols - left : kColumnBlock;
      if constexpr (kSums)
        for (int64_t j = 0; j < kColumnBlock; ++j) sum[j] = 0.0f;
      for (int64_t i = first; i < last; ++i) {
        const int64_t at = i * row_stride + left;
        for_each_vector(width, [&](int64_t j, auto count) {
          const F32x16 g = load(dy + at + j, count);
          F32x16 out = g;
          if constexpr (kActivation != MPCORE_ACTIVATION_LINEAR)
            out = activation_backward<kActivation>(load(y + at + j, count), g);
          if (dz != nullptr) store(out, dz + at + j, count);
          if constexpr (kSums) (F32x16::load(sum + j) + out).store(sum + j);
        });
      }
      if constexpr (kSums)
        for (int64_t j = 0; j < width; ++j) db[left + j] += static_cast<double>(sum[j]);
    }
  }
}

void dense_backward_kernel(mpcore_activation f, int64_t rows, int64_t cols, int64_t row_stride,
                           const void* y, const void* dy, void* dz, double* db,
                           mpcore_dtype dtype) {
  dispatch_activation(f, [&](auto tag) {
    dispatch_compute(dtype, [&](auto* type) {
      using T = Pointee<decltype(type)>;
      const auto run = [&](auto* backward) {
        backward(rows, cols, row_stride, static_cast<const T*>(y), static_cast<const T*>(dy),
                 static_cast<T*>(dz), db);
      };
      constexpr mpcore_activation kActivation = decltype(tag)::value;
      db != nullptr ? run(dense_backward_of<kActivation, true, T>)
                    : run(dense_backward_of<kActivation, false, T>);
    });
  });
}

// --- Softmax -------------------------------------------------------------------------------------

constexpr float kLaneIndex[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// A row as vectors in which the lanes past its end are -inf, which neither the maximum nor the sum
// of exponentials notices.
template <class T>
inline F32x16 load_logits(const T* p, Whole count) {
  return load(p, count);
}
template <class T>
inline F32x16 load_logits(const T* p, int count) {
  const Mask16 live = less(F32x16::load(kLaneIndex), F32x16::set(static_cast<float>(count)));
  return select(live, load(p, count), F32x16::set(-__builtin_inff()));
}

// Maximum of a row and the sum of e^(x - max) over it: sixteen lane sums, added by halving. A NaN
// or +inf, or a row of nothing but -inf, makes the sum NaN.
struct RowSum {
  float max, sum;
};
template <class T>
inline RowSum sum_exp(const T* x, int64_t cols) {
  F32x16 top = F32x16::set(-__builtin_inff());
  for_each_vector(cols, [&](int64_t j, auto count) { top = max(load_logits(x + j, count), top); });
  const float largest = reduce_max(top);
  const F32x16 shift = F32x16::set(largest);
  F32x16 sum = F32x16::zero();
  for_each_vector(
      cols, [&](int64_t j, auto count) { sum = sum + exp(load_logits(x + j, count) - shift); });
  return {largest, reduce_add(sum)};
}

void softmax_kernel(int64_t rows, int64_t cols, const void* x, void* y, mpcore_dtype dtype) {
  dispatch_compute(dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < rows; ++i) {
      const T* from = static_cast<const T*>(x) + i * cols;
      T* to = static_cast<T*>(y) + i * cols;
      const RowSum row = sum_exp(from, cols);
      const F32x16 shift = F32x16::set(row.max), sum = F32x16::set(row.sum);
      for_each_vector(cols, [&](int64_t j, auto count) {
        store(exp(load(from + j, count) - shift) / sum, to + j, count);
      });
    }
  });
}

void softmax_backward_kernel(int64_t rows, int64_t cols, const void* y, const void* dy, void* dx,
                             mpcore_dtype dtype) {
  dispatch_compute(dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < rows; ++i) {
      const T* p = static_cast<const T*>(y) + i * cols;
      const T* g = static_cast<const T*>(dy) + i * cols;
      T* to = static_cast<T*>(dx) + i * cols;
      F32x16 sum = F32x16::zero();
      for_each_vector(cols, [&](int64_t j, auto count) {
        sum = fma(load(p + j, count), load(g + j, count), sum);
      });
      const F32x16 dot = F32x16::set(reduce_add(sum));
      for_each_vector(cols, [&](int64_t j, auto count) {
        store(load(p + j, count) * (load(g + j, count) - dot), to + j, count);
      });
    }
  });
}

// y = (x - max) - log(sum).
void log_softmax_kernel(int64_t rows, int64_t cols, const void* x, void* y, mpcore_dtype dtype) {
  dispatch_compute(dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < rows; ++i) {
      const T* from = static_cast<const T*>(x) + i * cols;
      T* to = static_cast<T*>(y) + i * cols;
      const RowSum row = sum_exp(from, cols);
      const F32x16 shift = F32x16::set(row.max);
      const F32x16 log = F32x16::set(static_cast<float>(log_from_one(row.sum)));
      for_each_vector(cols, [&](int64_t j, auto count) {
        store((load(from + j, count) - shift) - log, to + j, count);
      });
    }
  });
}

void log_softmax_backward_kernel(int64_t rows, int64_t cols, const void* y, const void* dy,
                                 void* dx, mpcore_dtype dtype) {
  dispatch_compute(dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < rows; ++i) {
      const T* logs = static_cast<const T*>(y) + i * cols;
      const T* g = static_cast<const T*>(dy) + i * cols;
      T* to = static_cast<T*>(dx) + i * cols;
      F32x16 sum = F32x16::zero();
      for_each_vector(cols, [&](int64_t j, auto count) { sum = sum + load(g + j, count); });
      const F32x16 back = F32x16::set(0.0f - reduce_add(sum));
      for_each_vector(cols, [&](int64_t j, auto count) {
        store(fma(exp(load(logs + j, count)), back, load(g + j, count)), to + j, count);
      });
    }
  });
}

// The loss is evaluated in double from fp32 sums and rounded once.
inline void store_loss(double value, float* loss) {
  const float rounded = static_cast<float>(value);
  memcpy(loss, &rounded, sizeof(rounded));
}

template <class T>
inline void label_xent_row(const T* x, int64_t cols, int64_t label, float scale, float* loss,
                           T* dx) {
  const RowSum row = sum_exp(x, cols);
  const F32x16 logit = F32x16::load(x + label, 1);
  if (loss != nullptr) {
    float picked[kLanes];
    logit.store(picked);
    const double margin = static_cast<double>(row.max) - static_cast<double>(picked[0]);
    store_loss(log_from_one(row.sum) + margin, loss);
  }
  if (dx == nullptr) return;
  const F32x16 shift = F32x16::set(row.max), sum = F32x16::set(row.sum);
  const F32x16 weight = F32x16::set(scale);
  for_each_vector(cols, [&](int64_t j, auto count) {
    store(weight * (exp(load(x + j, count) - shift) / sum), dx + j, count);
  });
  store(weight * (exp(logit - shift) / sum - F32x16::set(1.0f)), dx + label, 1);
}

// Of a distribution: loss = sum_j t_j (log(sum) - (x_j - max)), dx_j = scale (p_j sum(t) - t_j).
// target(j, count) is a vector of t, zero past the end. Where t is 0, x may be anything.
template <class T, class Target>
inline void target_xent_row(const T* x, int64_t cols, Target&& target, float scale, float* loss,
                            T* dx) {
  const RowSum row = sum_exp(x, cols);
  const F32x16 shift = F32x16::set(row.max), zero = F32x16::zero();
  F32x16 mass = zero, moment = zero;
  for_each_vector(cols, [&](int64_t j, auto count) {
    const F32x16 t = target(j, count);
    mass = mass + t;
    moment = moment + select(less(zero, abs(t)), t * (load(x + j, count) - shift), zero);
  });
  const float total = reduce_add(mass);
  if (loss != nullptr)
    store_loss(log_from_one(row.sum) * static_cast<double>(total) -
                   static_cast<double>(reduce_add(moment)),
               loss);
  if (dx == nullptr) return;
  const F32x16 weight = F32x16::set(scale), sum = F32x16::set(row.sum), all = F32x16::set(total);
  for_each_vector(cols, [&](int64_t j, auto count) {
    const F32x16 p = exp(load(x + j, count) - shift) / sum;
    store(weight * (p * all - target(j, count)), dx + j, count);
  });
}

template <class T>
inline void softmax_xent_row(const SoftmaxXent& s, int64_t i) {
  const T* x = static_cast<const T*>(s.x) + i * s.cols;
  T* dx = s.dx == nullptr ? nullptr : static_cast<T*>(s.dx) + i * s.cols;
  float* loss = s.loss == nullptr ? nullptr : s.loss + i;
  float scale = 0.0f;
  if (dx != nullptr) memcpy(&scale, s.scale + i, sizeof(scale));
  const F32x16 kept = F32x16::set(1.0f - s.smoothing);
  const F32x16 spread = F32x16::set(s.smoothing / static_cast<float>(s.cols));
  if (s.targets != nullptr) {
    const float* t = s.targets + i * s.cols;
    const auto target = [&](int64_t j, auto count) {
      return first_lanes(fma(load(t + j, count), kept, spread), count);
    };
    return target_xent_row(x, s.cols, target, scale, loss, dx);
  }
  int64_t label;
  memcpy(&label, s.labels + i, sizeof(label));
  if (s.smoothing == 0.0f) return label_xent_row(x, s.cols, label, scale, loss, dx);
  const auto target = [&](int64_t j, auto count) {
    const F32x16 place = F32x16::set(static_cast<float>(label - j));
    const Mask16 here = less(abs(F32x16::load(kLaneIndex) - place), F32x16::set(0.5f));
    return first_lanes(select(here, kept + spread, spread), count);
  };
  target_xent_row(x, s.cols, target, scale, loss, dx);
}

void softmax_xent_kernel(const SoftmaxXent& s) {
  dispatch_compute(s.dtype, [&](auto* type) {
    using T = Pointee<decltype(type)>;
    for (int64_t i = 0; i < s.rows; ++i) softmax_xent_row<T>(s, i);
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NN_INL_H_
