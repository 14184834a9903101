// F64x16: sixteen double lanes as a plain array that the compiler turns into the level's vectors.
// For what is done in double: updates of f64 parameters. The operations are those of F32x16.
#ifndef MPCORE_KERNELS_F64X16_INL_H_
#define MPCORE_KERNELS_F64X16_INL_H_

#include <stdint.h>
#include <string.h>

#include "kernels/cast.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

struct F64x16 {
  double lane[kLanes];

  template <class F>
  static inline F64x16 make(F&& f) {
    F64x16 r;
    for (int i = 0; i < kLanes; ++i) r.lane[i] = f(i);
    return r;
  }
  static inline F64x16 zero() { return set(0.0); }
  static inline F64x16 set(double x) {
    return make([&](int) { return x; });
  }
};

inline F64x16 operator+(const F64x16& x, const F64x16& y) {
  return F64x16::make([&](int i) { return x.lane[i] + y.lane[i]; });
}
inline F64x16 operator-(const F64x16& x, const F64x16& y) {
  return F64x16::make([&](int i) { return x.lane[i] - y.lane[i]; });
}
inline F64x16 operator*(const F64x16& x, const F64x16& y) {
  return F64x16::make([&](int i) { return x.lane[i] * y.lane[i]; });
}
inline F64x16 operator/(const F64x16& x, const F64x16& y) {
  return F64x16::make([&](int i) { return x.lane[i] / y.lane[i]; });
}
inline F64x16 sqrt(const F64x16& x) {
  return F64x16::make([&](int i) { return __builtin_sqrt(x.lane[i]); });
}
inline F64x16 max(const F64x16& x, const F64x16& y) {
  return F64x16::make([&](int i) { return x.lane[i] > y.lane[i] ? x.lane[i] : y.lane[i]; });
}
inline F64x16 min(const F64x16& x, const F64x16& y) {
  return F64x16::make([&](int i) { return x.lane[i] < y.lane[i] ? x.lane[i] : y.lane[i]; });
}

// A number in every lane, rounded once where the lanes are fp32.
template <class V>
inline V constant(double x) {
  if constexpr (__is_same(V, F32x16)) {
    return F32x16::set(static_cast<float>(x));
  } else {
    return V::set(x);
  }
}

// load_as<V>(p, count): elements of any float type in the lanes of V; what is not read is 0.
template <class V, class T, class Count>
inline V load_as(const T* p, Count count) {
  if constexpr (__is_same(V, F32x16)) {
    return load(p, count);
  } else {
    float x[kLanes];
    load(p, count).store(x);
    return F64x16::make([&](int i) { return static_cast<double>(x[i]); });
  }
}
template <class V, class Count>
inline V load_as(const double* p, Count count) {
  F64x16 r = F64x16::zero();
  memcpy(r.lane, p, sizeof(double) * static_cast<size_t>(static_cast<int>(count)));
  return r;
}

template <class Count>
inline void store(const F64x16& x, double* p, Count count) {
  memcpy(p, x.lane, sizeof(double) * static_cast<size_t>(static_cast<int>(count)));
}
// To a half with one rounding, by way of the float rounded to odd.
template <class T, class Count>
inline void store(const F64x16& x, T* p, Count count) {
  float y[kLanes];
  for (int i = 0; i < kLanes; ++i) y[i] = odd_float(x.lane[i]);
  store(F32x16::load(y), p, count);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_F64X16_INL_H_
