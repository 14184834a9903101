// The last step of a product: alpha, beta, bias, activation, residual, and the one rounding.
#ifndef MPCORE_KERNELS_GEMM_EPILOGUE_INL_H_
#define MPCORE_KERNELS_GEMM_EPILOGUE_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/math.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// `n` elements of a row from column j on, as fp32.
template <class Count>
inline F32x16 read_row(const mpcore_matrix& x, int64_t i, int64_t j, Count n) {
  return dispatch_compute(x.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    const T* p = static_cast<const T*>(x.data) + i * x.row_stride + j * x.col_stride;
    if (x.col_stride == 1) return load(p, n);
    T gathered[kLanes] = {};
    for (int l = 0; l < n; ++l) memcpy(&gathered[l], p + l * x.col_stride, sizeof(T));
    return F32x16::load(gathered);
  });
}

template <class Count>
inline void write_row(F32x16 value, const mpcore_matrix& x, int64_t i, int64_t j, Count n) {
  dispatch_compute(x.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    T* p = static_cast<T*>(x.data) + i * x.row_stride + j * x.col_stride;
    if (x.col_stride == 1) return store(value, p, n);
    T rounded[kLanes];
    value.store(rounded);
    for (int l = 0; l < n; ++l) memcpy(p + l * x.col_stride, &rounded[l], sizeof(T));
  });
}

// What `value` becomes when it is stored in the dtype; lanes from n on are 0.
inline F32x16 as_stored(F32x16 value, mpcore_dtype dtype, int n) {
  return dispatch_compute(dtype, [&](auto* tag) {
    Pointee<decltype(tag)> rounded[kLanes];
    value.store(rounded);
    return F32x16::load(rounded, n);
  });
}

// The sum of the squares of the lanes, in double, by halving.
inline double sum_squares_of(F32x16 x) {
  float v[kLanes];
  x.store(v);
  double s[kLanes];
  for (int i = 0; i < kLanes; ++i) s[i] = static_cast<double>(v[i]) * static_cast<double>(v[i]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) s[i] += s[i + half];
  return s[0];
}

// Finishes row i of the range. Adds y - y of what was written to `check`: 0 if finite, else NaN.
template <mpcore_activation kActivation>
inline void finish_row(const GemmEpilogue& e, int64_t i, F32x16& check) {
  const float* total = e.total + i * e.total_stride;
  const F32x16 alpha = F32x16::set(e.alpha), beta = F32x16::set(e.beta);
  for_each_vector(e.cols, [&](int64_t j, auto n) {
    F32x16 z = load(total + j, n) * alpha;
    if (e.beta != 0.0f) z = fma(beta, read_row(e.d, i, j, n), z);
    if (e.bias != nullptr) z = z + load(e.bias + j, n);
    if (e.pre_activation.data != nullptr) write_row(z, e.pre_activation, i, j, n);
    F32x16 y = activate<kActivation>(z);
    if (e.residual.data != nullptr) y = y + read_row(e.residual, i, j, n);
    write_row(y, e.d, i, j, n);
    if (e.squares == nullptr && !e.check_finite) return;
    y = as_stored(y, e.d.dtype, n);
    check = check + (y - y);
    if (e.squares != nullptr)
      e.squares[i * e.squares_stride + (e.column + j) / kSquareColumns] += sum_squares_of(y);
  });
}

// The same where there is nothing but alpha, bias, and activation, and rows of D are contiguous.
template <mpcore_activation kActivation, class T>
inline void finish_plain(const GemmEpilogue& e) {
  const F32x16 alpha = F32x16::set(e.alpha);
  for (int64_t i = 0; i < e.rows; ++i) {
    const float* total = e.total + i * e.total_stride;
    T* d = static_cast<T*>(e.d.data) + i * e.d.row_stride;
    for_each_vector(e.cols, [&](int64_t j, auto n) {
      F32x16 z = load(total + j, n) * alpha;
      if (e.bias != nullptr) z = z + load(e.bias + j, n);
      store(activate<kActivation>(z), d + j, n);
    });
  }
}

inline bool is_plain(const GemmEpilogue& e) {
  return e.d.col_stride == 1 && e.beta == 0.0f && e.residual.data == nullptr &&
         e.pre_activation.data == nullptr && e.squares == nullptr && !e.check_finite;
}

bool epilogue_kernel(const GemmEpilogue& e) {
  F32x16 check = F32x16::zero();
  dispatch_activation(e.activation, [&](auto activation) {
    constexpr mpcore_activation kActivation = decltype(activation)::value;
    if (is_plain(e))
      return dispatch_compute(
          e.d.dtype, [&](auto* tag) { finish_plain<kActivation, Pointee<decltype(tag)>>(e); });
    for (int64_t i = 0; i < e.rows; ++i) finish_row<kActivation>(e, i, check);
  });
  return reduce_add(check) == 0.0f;
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_GEMM_EPILOGUE_INL_H_
