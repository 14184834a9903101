// F32x16 as two 256-bit registers; needs AVX2, FMA, and F16C. Contract: kernels/vec.inl.h.
#ifndef MPCORE_ISA_F32X16_AVX2_H_
#define MPCORE_ISA_F32X16_AVX2_H_

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "kernels/element.inl.h"

namespace mpcore {
namespace {

constexpr bool kConverts64 = false;
constexpr const char* kF32Note = "256-bit vectors";
constexpr const char* kF16Note = "256-bit vectors, vcvtps2ph and vcvtph2ps";
constexpr const char* kBf16Note = "256-bit vectors, integer rounding";

inline void stream_line(void* dst, const void* src) {
  for (int i = 0; i < 2; ++i)
    _mm256_stream_si256(static_cast<__m256i*>(dst) + i,
                        _mm256_load_si256(static_cast<const __m256i*>(src) + i));
}
inline void stream_fence() { _mm_sfence(); }

struct Mask16 {
  __m256 lo, hi;  // all ones or all zeros per lane
};

struct F32x16 {
  __m256 lo, hi;

  static inline F32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static inline F32x16 set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }

  static inline F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static inline F32x16 load(const F16* p) {
    return {_mm256_cvtph_ps(half8(p)), _mm256_cvtph_ps(half8(p + 8))};
  }
  static inline F32x16 load(const BF16* p) { return {widen(half8(p)), widen(half8(p + 8))}; }
  template <class T>
  static inline F32x16 load(const T* p, int n) {
    T t[16] = {};
    memcpy(t, p, sizeof(T) * static_cast<size_t>(n));
    return load(t);
  }

  inline void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  inline void store(F16* p) const {
    put8(p, _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
    put8(p + 8, _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT));
  }
  inline void store(BF16* p) const {
    // packus works within 128-bit halves; the permute puts the quarters back in order.
    const __m256i packed = _mm256_packus_epi32(narrow(lo), narrow(hi));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  template <class T>
  inline void store(T* p, int n) const {
    T t[16];
    store(t);
    memcpy(p, t, sizeof(T) * static_cast<size_t>(n));
  }

 private:
  static inline __m128i half8(const void* p) {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
  }
  static inline void put8(void* p, __m128i x) { _mm_storeu_si128(static_cast<__m128i*>(p), x); }
  static inline __m256 widen(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
  }
  // bf16_bits() of each lane, in the low half of a 32-bit lane.
  static inline __m256i narrow(__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i top = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i sum = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_or_si256(_mm256_and_si256(top, _mm256_set1_epi32(0x8000)),
                                        _mm256_set1_epi32(0x7fc0));
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), nan,
                              _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  }
};

struct U32x16 {
  __m256i lo, hi;

  static inline U32x16 set(uint32_t x) {
    const __m256i v = _mm256_set1_epi32(static_cast<int32_t>(x));
    return {v, v};
  }
  static inline U32x16 load(const uint32_t* p) {
    const auto* from = reinterpret_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(from), _mm256_loadu_si256(from + 1)};
  }
  inline void store(uint32_t* p) const {
    auto* to = reinterpret_cast<__m256i*>(p);
    _mm256_storeu_si256(to, lo);
    _mm256_storeu_si256(to + 1, hi);
  }
};

inline U32x16 operator^(U32x16 x, U32x16 y) {
  return {_mm256_xor_si256(x.lo, y.lo), _mm256_xor_si256(x.hi, y.hi)};
}
inline void multiply_wide(U32x16 x, uint32_t y, U32x16& low, U32x16& high) {
  constexpr int kOdd = 0xaa;
  const __m256i factor = _mm256_set1_epi32(static_cast<int32_t>(y));
  const auto half = [&](__m256i v, __m256i& l, __m256i& h) {
    const __m256i even = _mm256_mul_epu32(v, factor);
    const __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(v, 32), factor);
    l = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), kOdd);
    h = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, kOdd);
  };
  half(x.lo, low.lo, high.lo);
  half(x.hi, low.hi, high.hi);
}

inline F32x16 operator+(F32x16 x, F32x16 y) {
  return {_mm256_add_ps(x.lo, y.lo), _mm256_add_ps(x.hi, y.hi)};
}
inline F32x16 operator-(F32x16 x, F32x16 y) {
  return {_mm256_sub_ps(x.lo, y.lo), _mm256_sub_ps(x.hi, y.hi)};
}
inline F32x16 operator*(F32x16 x, F32x16 y) {
  return {_mm256_mul_ps(x.lo, y.lo), _mm256_mul_ps(x.hi, y.hi)};
}
inline F32x16 operator/(F32x16 x, F32x16 y) {
  return {_mm256_div_ps(x.lo, y.lo), _mm256_div_ps(x.hi, y.hi)};
}
inline F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
  return {_mm256_fmadd_ps(x.lo, y.lo, z.lo), _mm256_fmadd_ps(x.hi, y.hi, z.hi)};
}
inline F32x16 sqrt(F32x16 x) { return {_mm256_sqrt_ps(x.lo), _mm256_sqrt_ps(x.hi)}; }
inline F32x16 max(F32x16 x, F32x16 y) {
  return {_mm256_max_ps(x.lo, y.lo), _mm256_max_ps(x.hi, y.hi)};
}
inline F32x16 min(F32x16 x, F32x16 y) {
  return {_mm256_min_ps(x.lo, y.lo), _mm256_min_ps(x.hi, y.hi)};
}
inline F32x16 abs(F32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.lo), _mm256_andnot_ps(sign, x.hi)};
}
inline F32x16 round_even(F32x16 x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.lo, kMode), _mm256_round_ps(x.hi, kMode)};
}
inline F32x16 pow2(F32x16 n) {
  const auto half = [](__m256 h) {
    const __m256i e = _mm256_add_epi32(_mm256_cvttps_epi32(h), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
  };
  return {half(n.lo), half(n.hi)};
}

inline Mask16 less(F32x16 x, F32x16 y) {
  return {_mm256_cmp_ps(x.lo, y.lo, _CMP_LT_OQ), _mm256_cmp_ps(x.hi, y.hi, _CMP_LT_OQ)};
}
inline Mask16 is_nan(F32x16 x) {
  return {_mm256_cmp_ps(x.lo, x.lo, _CMP_UNORD_Q), _mm256_cmp_ps(x.hi, x.hi, _CMP_UNORD_Q)};
}
inline F32x16 select(Mask16 m, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, m.lo), _mm256_blendv_ps(y.hi, x.hi, m.hi)};
}

inline void transpose8(const __m256 (&x)[8], __m256 (&y)[8]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256 a = _mm256_unpacklo_ps(x[i], x[i + 1]), b = _mm256_unpackhi_ps(x[i], x[i + 1]);
    const __m256 c = _mm256_unpacklo_ps(x[i + 2], x[i + 3]);
    const __m256 d = _mm256_unpackhi_ps(x[i + 2], x[i + 3]);
    t[i] = _mm256_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
  }
  for (int i = 0; i < 4; ++i) {
    y[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
    y[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
  }
}

// By 8 x 8 blocks.
inline void transpose(F32x16 (&x)[16]) {
  __m256 in[8], out[4][8];
  for (int block = 0; block < 4; ++block) {
    for (int i = 0; i < 8; ++i) {
      const F32x16& row = x[block / 2 * 8 + i];
      in[i] = block % 2 == 0 ? row.lo : row.hi;
    }
    transpose8(in, out[block]);
  }
  for (int i = 0; i < 8; ++i) {
    x[i] = {out[0][i], out[2][i]};
    x[i + 8] = {out[1][i], out[3][i]};
  }
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_F32X16_AVX2_H_
