// F32x16 as a plain array: the definition of every operation, on any CPU. Contract:
// kernels/vec.inl.h.
#ifndef MPCORE_ISA_F32X16_SCALAR_H_
#define MPCORE_ISA_F32X16_SCALAR_H_

#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels/element.inl.h"

namespace mpcore {
namespace {

constexpr bool kConverts64 = true;
constexpr const char* kF32Note = "plain C++";
constexpr const char* kF16Note = "plain C++, integer conversions";
constexpr const char* kBf16Note = "plain C++, integer conversions";

inline void stream_line(void* dst, const void* src) {
#if defined(__SSE2__)  // every x86-64 has it
  for (int i = 0; i < 4; ++i)
    _mm_stream_si128(static_cast<__m128i*>(dst) + i,
                     _mm_load_si128(static_cast<const __m128i*>(src) + i));
#else
  memcpy(dst, src, 64);
#endif
}
inline void stream_fence() {
#if defined(__SSE2__)
  _mm_sfence();
#endif
}

struct Mask16 {
  bool lane[16];
};

struct F32x16 {
  float lane[16];

  template <class F>
  static inline F32x16 make(F&& f) {
    F32x16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
    return r;
  }

  static inline F32x16 zero() { return set(0.0f); }
  static inline F32x16 set(float x) {
    return make([&](int) { return x; });
  }

  static inline F32x16 load(const float* p, int n = 16) {
    F32x16 r = zero();
    memcpy(r.lane, p, sizeof(float) * static_cast<size_t>(n));
    return r;
  }
  template <class H>  // F16 or BF16
  static inline F32x16 load(const H* p, int n = 16) {
    H h[16] = {};
    memcpy(h, p, sizeof(H) * static_cast<size_t>(n));
    return make([&](int i) { return float_of(h[i]); });
  }

  inline void store(float* p, int n = 16) const {
    memcpy(p, lane, sizeof(float) * static_cast<size_t>(n));
  }
  inline void store(F16* p, int n = 16) const {
    uint16_t h[16];
    for (int i = 0; i < 16; ++i) h[i] = f16_bits(lane[i]);
    memcpy(p, h, sizeof(F16) * static_cast<size_t>(n));
  }
  inline void store(BF16* p, int n = 16) const {
    uint16_t h[16];
    for (int i = 0; i < 16; ++i) h[i] = bf16_bits(lane[i]);
    memcpy(p, h, sizeof(BF16) * static_cast<size_t>(n));
  }
};

struct U32x16 {
  uint32_t lane[16];

  static inline U32x16 set(uint32_t x) {
    U32x16 r;
    for (int i = 0; i < 16; ++i) r.lane[i] = x;
    return r;
  }
  static inline U32x16 load(const uint32_t* p) {
    U32x16 r;
    memcpy(r.lane, p, sizeof(r.lane));
    return r;
  }
  inline void store(uint32_t* p) const { memcpy(p, lane, sizeof(lane)); }
};

inline U32x16 operator^(U32x16 x, U32x16 y) {
  for (int i = 0; i < 16; ++i) x.lane[i] ^= y.lane[i];
  return x;
}
inline void multiply_wide(U32x16 x, uint32_t y, U32x16& low, U32x16& high) {
  for (int i = 0; i < 16; ++i) {
    const uint64_t product = uint64_t{x.lane[i]} * y;
    low.lane[i] = static_cast<uint32_t>(product);
    high.lane[i] = static_cast<uint32_t>(product >> 32);
  }
}

inline F32x16 operator+(F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return x.lane[i] + y.lane[i]; });
}
inline F32x16 operator-(F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return x.lane[i] - y.lane[i]; });
}
inline F32x16 operator*(F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return x.lane[i] * y.lane[i]; });
}
inline F32x16 operator/(F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return x.lane[i] / y.lane[i]; });
}
inline F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
  return F32x16::make([&](int i) { return __builtin_fmaf(x.lane[i], y.lane[i], z.lane[i]); });
}
inline F32x16 sqrt(F32x16 x) {
  return F32x16::make([&](int i) { return __builtin_sqrtf(x.lane[i]); });
}
inline F32x16 max(F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return x.lane[i] > y.lane[i] ? x.lane[i] : y.lane[i]; });
}
inline F32x16 min(F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return x.lane[i] < y.lane[i] ? x.lane[i] : y.lane[i]; });
}
inline F32x16 abs(F32x16 x) {
  return F32x16::make([&](int i) { return float_of(bits_of(x.lane[i]) & 0x7fffffffu); });
}
inline F32x16 round_even(F32x16 x) {
  return F32x16::make([&](int i) { return __builtin_rintf(x.lane[i]); });
}
inline F32x16 pow2(F32x16 n) {
  return F32x16::make([&](int i) {
    return float_of(static_cast<uint32_t>(static_cast<int32_t>(n.lane[i]) + 127) << 23);
  });
}

template <class F>
inline Mask16 make_mask(F&& f) {
  Mask16 m;
  for (int i = 0; i < 16; ++i) m.lane[i] = f(i);
  return m;
}
inline Mask16 less(F32x16 x, F32x16 y) {
  return make_mask([&](int i) { return x.lane[i] < y.lane[i]; });
}
inline Mask16 is_nan(F32x16 x) {
  return make_mask([&](int i) { return (bits_of(x.lane[i]) & 0x7fffffffu) > 0x7f800000u; });
}
inline F32x16 select(Mask16 m, F32x16 x, F32x16 y) {
  return F32x16::make([&](int i) { return m.lane[i] ? x.lane[i] : y.lane[i]; });
}

inline void transpose(F32x16 (&x)[16]) {
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < i; ++j) {
      const float upper = x[j].lane[i];
      x[j].lane[i] = x[i].lane[j];
      x[i].lane[j] = upper;
    }
  }
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_F32X16_SCALAR_H_
