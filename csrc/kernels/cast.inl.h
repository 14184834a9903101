// Conversion of n elements between dtypes, with one rounding. The floating-point mode is kIeee.
#ifndef MPCORE_KERNELS_CAST_INL_H_
#define MPCORE_KERNELS_CAST_INL_H_

#include <stdint.h>
#include <string.h>

#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

struct Bool {
  uint8_t byte;
};

// The float that a double rounds to by "round to odd": toward zero, with the lowest bit set when
// inexact. Rounding it once more to a format at least two bits narrower is then correct.
inline float odd_float(double x) {
  const float nearest = static_cast<float>(x);
  const double back = nearest;
  uint32_t bits = bits_of(nearest);
  const bool inexact = back < x || back > x;  // false for NaN
  const bool away = (back < 0 ? -back : back) > (x < 0 ? -x : x);
  bits = inexact ? (bits - (away ? 1u : 0u)) | 1u : bits;
  return float_of(bits);
}

// The double that an integer rounds to by "round to odd": below 2^53 exact, above with the bits
// that do not fit gathered into the lowest one kept.
inline double odd_double(int64_t x) {
  if (x < (int64_t{1} << 52) && x > -(int64_t{1} << 52)) return static_cast<double>(x);
  return static_cast<double>((x >> 12) | ((x & 0xfff) != 0)) * 4096.0;
}
inline double odd_double(uint64_t x) {
  if (x < (uint64_t{1} << 52)) return static_cast<double>(x);
  return static_cast<double>((x >> 12) | ((x & 0xfff) != 0)) * 4096.0;
}
// Narrower integers are exact in double.
template <class I>
inline double odd_double(I x) {
  return static_cast<double>(x);
}
inline double odd_double(Bool x) { return x.byte != 0 ? 1.0 : 0.0; }

// One element of a wide source on its way to f32, exact or rounded to odd...
template <class S>
inline float to_odd_float(S x) {
  return odd_float(odd_double(x));
}
// ... and correctly rounded to the destinations that are no halves.
template <class S>
inline float to_float(S x) {
  return static_cast<float>(x);
}
inline float to_float(Bool x) { return x.byte != 0 ? 1.0f : 0.0f; }
template <class S>
inline double to_double(S x) {
  return static_cast<double>(x);
}
inline double to_double(Bool x) { return odd_double(x); }

template <class T>
constexpr bool kIsCompute = false;
template <>
constexpr bool kIsCompute<float> = true;
template <>
constexpr bool kIsCompute<F16> = true;
template <>
constexpr bool kIsCompute<BF16> = true;

template <class D>
constexpr bool kIsHalf = false;
template <>
constexpr bool kIsHalf<F16> = true;
template <>
constexpr bool kIsHalf<BF16> = true;

// Pointers may be misaligned for their type, so elements travel through local arrays.
template <class S, class D>
inline void cast_elements(const void* src_bytes, void* dst_bytes, int64_t n) {
  const char* src = static_cast<const char*>(src_bytes);
  char* dst = static_cast<char*>(dst_bytes);
  for_each_vector(n, [&](int64_t i, auto count) {
    const char* from = src + i * static_cast<int64_t>(sizeof(S));
    char* to = dst + i * static_cast<int64_t>(sizeof(D));
    const size_t live = static_cast<size_t>(static_cast<int>(count));
    if constexpr (kIsCompute<S> && kIsCompute<D>) {
      F32x16 x = load(reinterpret_cast<const S*>(from), count);
      if constexpr (!kIsHalf<D>) x = select(is_nan(x), x + x, x);  // quiet; halves become so anyway
      store(x, reinterpret_cast<D*>(to), count);
    } else if constexpr (kIsCompute<S>) {  // to double: exact
      float x[kLanes];
      double y[kLanes];
      load(reinterpret_cast<const S*>(from), count).store(x);
      for (int j = 0; j < kLanes; ++j) y[j] = static_cast<double>(x[j]);
      memcpy(to, y, sizeof(double) * live);
    } else {
      S x[kLanes] = {};
      memcpy(x, from, sizeof(S) * live);
      if constexpr (kIsHalf<D>) {
        float y[kLanes];
        for (int j = 0; j < kLanes; ++j) y[j] = to_odd_float(x[j]);
        store(F32x16::load(y), reinterpret_cast<D*>(to), count);
      } else if constexpr (kIsCompute<D>) {
        float y[kLanes];
        for (int j = 0; j < kLanes; ++j) y[j] = to_float(x[j]);
        memcpy(to, y, sizeof(float) * live);
      } else {
        double y[kLanes];
        for (int j = 0; j < kLanes; ++j) y[j] = to_double(x[j]);
        memcpy(to, y, sizeof(double) * live);
      }
    }
  });
}

// A double NaN is signalling or not; a float conversion makes it quiet, a copy must too.
inline void copy_f64(const void* src, void* dst, int64_t n) {
  const char* from = static_cast<const char*>(src);
  char* to = static_cast<char*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t u;
    memcpy(&u, from + 8 * i, sizeof(u));
    if ((u & 0x7fffffffffffffffu) > 0x7ff0000000000000u) u |= 0x8000000000000u;
    memcpy(to + 8 * i, &u, sizeof(u));
  }
}

template <class S>
inline void cast_from(const void* src, void* dst, mpcore_dtype dst_dtype, int64_t n) {
  switch (dst_dtype) {
    case MPCORE_DTYPE_F16:
      return cast_elements<S, F16>(src, dst, n);
    case MPCORE_DTYPE_BF16:
      return cast_elements<S, BF16>(src, dst, n);
    case MPCORE_DTYPE_F64:
      return cast_elements<S, double>(src, dst, n);
    default:
      return cast_elements<S, float>(src, dst, n);
  }
}

void cast_kernel(const void* src, mpcore_dtype src_dtype, void* dst, mpcore_dtype dst_dtype,
                 int64_t n) {
  switch (src_dtype) {
    case MPCORE_DTYPE_F32:
      return cast_from<float>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_F16:
      return cast_from<F16>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_BF16:
      return cast_from<BF16>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_F64:
      if (dst_dtype == MPCORE_DTYPE_F64) return copy_f64(src, dst, n);
      return cast_from<double>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_I8:
      return cast_from<int8_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_I16:
      return cast_from<int16_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_I32:
      return cast_from<int32_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_I64:
      return cast_from<int64_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_U8:
      return cast_from<uint8_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_U16:
      return cast_from<uint16_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_U32:
      return cast_from<uint32_t>(src, dst, dst_dtype, n);
    case MPCORE_DTYPE_U64:
      return cast_from<uint64_t>(src, dst, dst_dtype, n);
    default:
      return cast_from<Bool>(src, dst, dst_dtype, n);
  }
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_CAST_INL_H_
