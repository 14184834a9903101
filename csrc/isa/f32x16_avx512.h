// F32x16 as one 512-bit register; needs AVX-512 F, BW, DQ, VL. Where the unit is compiled with
// AVX512_BF16 or AVX512_FP16, rounding stores use their conversion instructions. Contract:
// kernels/vec.inl.h.
#ifndef MPCORE_ISA_F32X16_AVX512_H_
#define MPCORE_ISA_F32X16_AVX512_H_

#include <immintrin.h>
#include <stdint.h>

#include "kernels/element.inl.h"

namespace mpcore {
namespace {

constexpr bool kConverts64 = true;
constexpr const char* kF32Note = "512-bit vectors";
#if defined(__AVX512FP16__)
constexpr const char* kF16Note = "512-bit vectors, vcvtps2phx and vcvtph2ps";
#else
constexpr const char* kF16Note = "512-bit vectors, vcvtps2ph and vcvtph2ps";
#endif
#if defined(__AVX512BF16__)
constexpr const char* kBf16Note = "512-bit vectors, vcvtne2ps2bf16 with a fix-up for subnormals";
#else
constexpr const char* kBf16Note = "512-bit vectors, integer rounding";
#endif

inline void stream_line(void* dst, const void* src) {
  _mm512_stream_si512(static_cast<__m512i*>(dst), _mm512_load_si512(src));
}
inline void stream_fence() { _mm_sfence(); }

struct Mask16 {
  __mmask16 bits;
};

struct F32x16 {
  __m512 v;

  static inline F32x16 zero() { return {_mm512_setzero_ps()}; }
  static inline F32x16 set(float x) { return {_mm512_set1_ps(x)}; }

  static inline F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static inline F32x16 load(const float* p, int n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
  static inline F32x16 load(const F16* p) { return from_f16(half16(p)); }
  static inline F32x16 load(const F16* p, int n) {
    return from_f16(_mm256_maskz_loadu_epi16(first(n), p));
  }
  static inline F32x16 load(const BF16* p) { return from_bf16(half16(p)); }
  static inline F32x16 load(const BF16* p, int n) {
    return from_bf16(_mm256_maskz_loadu_epi16(first(n), p));
  }

  inline void store(float* p) const { _mm512_storeu_ps(p, v); }
  inline void store(float* p, int n) const { _mm512_mask_storeu_ps(p, first(n), v); }
  inline void store(F16* p) const { put16(p, to_f16()); }
  inline void store(F16* p, int n) const { _mm256_mask_storeu_epi16(p, first(n), to_f16()); }
  inline void store(BF16* p) const { put16(p, to_bf16()); }
  inline void store(BF16* p, int n) const { _mm256_mask_storeu_epi16(p, first(n), to_bf16()); }

 private:
  static inline __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static inline __m256i half16(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static inline void put16(void* p, __m256i x) { _mm256_storeu_si256(static_cast<__m256i*>(p), x); }
  static inline F32x16 from_f16(__m256i h) { return {_mm512_cvtph_ps(h)}; }
  static inline F32x16 from_bf16(__m256i h) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16))};
  }

  inline __m256i to_f16() const {
#if defined(__AVX512FP16__)
    return _mm256_castph_si256(_mm512_cvtxps_ph(v));
#else
    return _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
#endif
  }

  // bf16_bits() of each lane, in the upper half of it.
  inline __m512i bf16_above() const {
    const __m512i u = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i sum = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i nan =
        _mm512_or_si512(_mm512_and_si512(u, _mm512_set1_epi32(static_cast<int32_t>(0x80000000u))),
                        _mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_epi32(sum, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), nan);
  }

  inline __m256i to_bf16() const {
#if defined(__AVX512BF16__)
    if (unfit_for_bf16() == 0) [[likely]]
      return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(v));
#endif
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bf16_above(), 16));
  }

#if defined(__AVX512BF16__)
  // The instructions flush subnormals and keep NaN payloads, so those lanes take the long way.
  inline __mmask16 unfit_for_bf16() const {
    constexpr int kQuietNan = 0x01, kSubnormal = 0x20, kSignalingNan = 0x80;
    return _mm512_fpclass_ps_mask(v, kQuietNan | kSubnormal | kSignalingNan);
  }
#endif

  friend inline void store_block(const F32x16 (&x)[4], BF16* p);
};

inline void store_block(const F32x16 (&x)[4], BF16* p) {
#if defined(__AVX512BF16__)
  // One test for the four.
  if ((x[0].unfit_for_bf16() | x[1].unfit_for_bf16() | x[2].unfit_for_bf16() |
       x[3].unfit_for_bf16()) == 0) [[likely]] {
    for (int j = 0; j < 4; j += 2)
      _mm512_storeu_si512(p + 16 * j,
                          reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x[j + 1].v, x[j].v)));
    return;
  }
#endif
  alignas(64) static constexpr uint16_t kUpperHalves[32] = {
      1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const __m512i upper = _mm512_load_si512(kUpperHalves);
  for (int j = 0; j < 4; j += 2)
    _mm512_storeu_si512(p + 16 * j,
                        _mm512_permutex2var_epi16(x[j].bf16_above(), upper, x[j + 1].bf16_above()));
}

struct U32x16 {
  __m512i v;

  static inline U32x16 set(uint32_t x) { return {_mm512_set1_epi32(static_cast<int32_t>(x))}; }
  static inline U32x16 load(const uint32_t* p) { return {_mm512_loadu_si512(p)}; }
  inline void store(uint32_t* p) const { _mm512_storeu_si512(p, v); }
};

inline U32x16 operator^(U32x16 x, U32x16 y) { return {_mm512_xor_si512(x.v, y.v)}; }
inline void multiply_wide(U32x16 x, uint32_t y, U32x16& low, U32x16& high) {
  constexpr __mmask16 kOdd = 0xaaaa;
  const __m512i factor = _mm512_set1_epi32(static_cast<int32_t>(y));
  const __m512i even = _mm512_mul_epu32(x.v, factor);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(x.v, 32), factor);
  low.v = _mm512_mask_blend_epi32(kOdd, even, _mm512_slli_epi64(odd, 32));
  high.v = _mm512_mask_blend_epi32(kOdd, _mm512_srli_epi64(even, 32), odd);
}

inline F32x16 operator+(F32x16 x, F32x16 y) { return {_mm512_add_ps(x.v, y.v)}; }
inline F32x16 operator-(F32x16 x, F32x16 y) { return {_mm512_sub_ps(x.v, y.v)}; }
inline F32x16 operator*(F32x16 x, F32x16 y) { return {_mm512_mul_ps(x.v, y.v)}; }
inline F32x16 operator/(F32x16 x, F32x16 y) { return {_mm512_div_ps(x.v, y.v)}; }
inline F32x16 fma(F32x16 x, F32x16 y, F32x16 z) { return {_mm512_fmadd_ps(x.v, y.v, z.v)}; }
inline F32x16 sqrt(F32x16 x) { return {_mm512_sqrt_ps(x.v)}; }
inline F32x16 max(F32x16 x, F32x16 y) { return {_mm512_max_ps(x.v, y.v)}; }
inline F32x16 min(F32x16 x, F32x16 y) { return {_mm512_min_ps(x.v, y.v)}; }
inline F32x16 abs(F32x16 x) { return {_mm512_abs_ps(x.v)}; }
inline F32x16 round_even(F32x16 x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline F32x16 pow2(F32x16 n) {
  const __m512i e = _mm512_add_epi32(_mm512_cvttps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(e, 23))};
}

inline Mask16 less(F32x16 x, F32x16 y) { return {_mm512_cmp_ps_mask(x.v, y.v, _CMP_LT_OQ)}; }
inline Mask16 is_nan(F32x16 x) { return {_mm512_cmp_ps_mask(x.v, x.v, _CMP_UNORD_Q)}; }
inline F32x16 select(Mask16 m, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(m.bits, y.v, x.v)};
}

inline void transpose(F32x16 (&x)[16]) {
  __m512 t[16];
  // Within each quarter of the lanes: 4 x 4 blocks.
  for (int i = 0; i < 16; i += 4) {
    const __m512 a = _mm512_unpacklo_ps(x[i].v, x[i + 1].v);
    const __m512 b = _mm512_unpackhi_ps(x[i].v, x[i + 1].v);
    const __m512 c = _mm512_unpacklo_ps(x[i + 2].v, x[i + 3].v);
    const __m512 d = _mm512_unpackhi_ps(x[i + 2].v, x[i + 3].v);
    t[i] = _mm512_shuffle_ps(a, c, 0x44);
    t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
    t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
    t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
  }
  // Then the quarters among each other.
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
    const __m512 b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
    const __m512 d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    x[i].v = _mm512_shuffle_f32x4(a, c, 0x88);
    x[i + 4].v = _mm512_shuffle_f32x4(b, d, 0x88);
    x[i + 8].v = _mm512_shuffle_f32x4(a, c, 0xdd);
    x[i + 12].v = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_F32X16_AVX512_H_
