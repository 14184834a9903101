// What every kernel is written in: F32x16, sixteen fp32 lanes, supplied by the level's header
// (isa/f32x16_<level>.h, included first). This file documents it and adds what follows from it.
//
//   F32x16::zero()  F32x16::set(float)
//   F32x16::load(p)            16 elements from const float* / F16* / BF16*, any alignment
//   F32x16::load(p, n)         the first n (0..16); the other lanes are 0 and are not read
//   x.store(p)  x.store(p, n)  to float* / F16* / BF16*, rounded to nearest even (NaN: see element)
//   x + y  x - y  x * y  x / y   sqrt(x)  fma(x, y, z) = x * y + z with one rounding
//   max(x, y) = x > y ? x : y    min(x, y) = x < y ? x : y    (so y where either is NaN)
//   abs(x)  round_even(x)  pow2(n) = 2^n for integral n in [-126, 127]
//   less(x, y) -> Mask16    is_nan(x) -> Mask16    select(mask, x, y) = mask ? x : y per lane
//
//   transpose(x)               of sixteen vectors, as the rows of a square
//
// Every operation is IEEE with one rounding, so each level computes the same bits.
//
// U32x16, for random numbers: set(x), load(p), x.store(p), x ^ y, and multiply_wide(x, y, low,
// high), the 64-bit products of the lanes with a number in two halves. For casts:
//
//   kConverts64                does it convert between double and 64-bit integers?
//   stream_line(dst, src)      copies 64 bytes, both 64-byte aligned, past the caches
//   stream_fence()             orders them before the stores that follow
//
// kF32Note, kF16Note, kBf16Note: what elements are computed with and converted by, in words.
#ifndef MPCORE_KERNELS_VEC_INL_H_
#define MPCORE_KERNELS_VEC_INL_H_

#include <stdint.h>

#include "kernels/element.inl.h"
#include "mpcore/base.h"

namespace mpcore {
namespace {

constexpr int kLanes = 16;

// Sum and maximum over the lanes by halving: lane i with i + 8, then i + 4, i + 2, i + 1.
inline float reduce_add(F32x16 x) {
  float v[kLanes];
  x.store(v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] += v[i + half];
  return v[0];
}

inline float reduce_max(F32x16 x) {
  float v[kLanes];
  x.store(v);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) v[i] = v[i] > v[i + half] ? v[i] : v[i + half];
  return v[0];
}

// Calls body(i, count) for the vectors of [0, n): count is the constant 16 for whole ones, so that
// loads and stores specialise; the tail runs the same text with its own count.
struct Whole {
  constexpr operator int() const { return kLanes; }
};
template <class Body>
inline void for_each_vector(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, static_cast<int>(n - i));
}

template <class T>
inline F32x16 load(const T* p, Whole) {
  return F32x16::load(p);
}
template <class T>
inline F32x16 load(const T* p, int n) {
  return F32x16::load(p, n);
}
template <class T>
inline void store(F32x16 x, T* p, Whole) {
  x.store(p);
}
template <class T>
inline void store(F32x16 x, T* p, int n) {
  x.store(p, n);
}

// x with the lanes from `count` on zero.
inline F32x16 first_lanes(F32x16 x, Whole) { return x; }
inline F32x16 first_lanes(F32x16 x, int count) {
  float v[kLanes];
  x.store(v);
  return F32x16::load(v, count);
}

// Stores 64 elements. A level may have a better one for one of the types.
template <class T>
inline void store_block(const F32x16 (&x)[4], T* p) {
  for (int j = 0; j < 4; ++j) x[j].store(p + j * kLanes);
}

// Calls f(T*) with the element type of a compute dtype: dispatch_compute(dtype, [&](auto* tag) {
//   using T = Pointee<decltype(tag)>; ... });
template <class F>
inline auto dispatch_compute(mpcore_dtype dtype, F&& f) {
  switch (dtype) {
    case MPCORE_DTYPE_F16:
      return f(static_cast<F16*>(nullptr));
    case MPCORE_DTYPE_BF16:
      return f(static_cast<BF16*>(nullptr));
    default:
      return f(static_cast<float*>(nullptr));
  }
}

// Pointee<decltype(tag)> names the element type inside such a lambda.
template <class P>
struct PointeeOf;
template <class T>
struct PointeeOf<T*> {
  using type = T;
};
template <class P>
using Pointee = typename PointeeOf<P>::type;

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_VEC_INL_H_
