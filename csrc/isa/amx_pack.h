// Packing for the tile kernels: conversion to bf16 parts, transposition, and the search for
// elements that tiles cannot multiply. Contract: dispatch/tile_kernels.h.
//
// A tile of A holds [line][16 pairs of k], one of B [pair of k][16 lines]. Sources come along k
// (consecutive elements of a line are neighbours) or across (neighbours are of different lines);
// one of the two needs a 16 x 16 transposition of pairs, the other none.
#ifndef MPCORE_ISA_AMX_PACK_H_
#define MPCORE_ISA_AMX_PACK_H_

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#include "dispatch/tile_kernels.h"

namespace mpcore {
namespace {

constexpr int kTileLines = 16;

inline __m512i bits_of(__m512 x) { return _mm512_castps_si512(x); }
inline __m512 floats_of(__m512i x) { return _mm512_castsi512_ps(x); }
inline __mmask16 first16(int64_t n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
inline __mmask32 first32(int64_t n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1; }

// --- Sources -------------------------------------------------------------------------------------
// A source loads 32 elements as sixteen pairs, split into parts, and notes what it saw. along():
// pairs of one line, from p on. across(): elements of sixteen lines, from p0 for the even k and
// from p1 for the odd one.

struct Bf16Source {
  using T = uint16_t;
  static constexpr int kParts = 1;
  __m512i largest = _mm512_setzero_si512(), smallest = _mm512_set1_epi16(-1);

  inline void see(__m512i x) {
    const __m512i magnitude = _mm512_add_epi16(x, x);
    largest = _mm512_max_epu16(largest, magnitude);
    // One less, so that zero is the largest of all.
    smallest = _mm512_min_epu16(smallest, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));
  }
  inline bool special() const {
    return (_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(static_cast<int16_t>(0xff00))) |
            _mm512_cmplt_epu16_mask(smallest, _mm512_set1_epi16(0xff))) != 0;
  }
  inline void along(const T* p, __mmask32 mask, __m512i (&parts)[1]) {
    parts[0] = _mm512_maskz_loadu_epi16(mask, p);
    see(parts[0]);
  }
  inline void across(const T* p0, __mmask16 mask0, const T* p1, __mmask16 mask1,
                     __m512i (&parts)[1]) {
    const __m512i even = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask0, p0));
    const __m512i odd = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask1, p1));
    parts[0] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
    see(parts[0]);
  }
};

inline __m512i upper_halves(__m512 x, __m512 y) {
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21,
                                                      23, 25, 27, 29, 31, 33, 35, 37, 39, 41, 43,
                                                      45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  return _mm512_permutex2var_epi16(bits_of(x), _mm512_load_si512(kUpper), bits_of(y));
}
inline __m512i upper_pairs(__m512 even, __m512 odd) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
  return _mm512_or_si512(_mm512_srli_epi32(bits_of(even), 16),
                         _mm512_and_si512(bits_of(odd), upper));
}
inline __m512 truncated(__m512 x) {
  return floats_of(
      _mm512_and_si512(bits_of(x), _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u))));
}

inline __m512 load_floats(const float* p, __mmask16 mask) { return _mm512_maskz_loadu_ps(mask, p); }
inline __m512 load_floats(const uint16_t* p, __mmask16 mask) {  // f16
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, p));
}

// Parts are the upper halves of what the parts before left over: the differences are exact.
// Magnitudes, as bits, must be zero or in [kSmallest, kTooLarge).
template <class Element, int kPartCount, uint32_t kSmallest, uint32_t kTooLarge>
struct SplitSource {
  using T = Element;
  static constexpr int kParts = kPartCount;
  __m512i largest = _mm512_setzero_si512(), smallest = _mm512_set1_epi32(-1);

  inline void see(__m512 x) {
    const __m512i magnitude = bits_of(_mm512_abs_ps(x));
    largest = _mm512_max_epu32(largest, magnitude);
    if constexpr (kSmallest > 0)
      smallest = _mm512_min_epu32(smallest, _mm512_sub_epi32(magnitude, _mm512_set1_epi32(1)));
  }
  inline bool special() const {
    const auto limit = [](uint32_t x) { return _mm512_set1_epi32(static_cast<int32_t>(x)); };
    bool found = _mm512_cmpge_epu32_mask(largest, limit(kTooLarge)) != 0;
    if constexpr (kSmallest > 0)
      found |= _mm512_cmplt_epu32_mask(smallest, limit(kSmallest - 1)) != 0;
    return found;
  }
  inline void along(const T* p, __mmask32 mask, __m512i (&parts)[kParts]) {
    __m512 x = load_floats(p, static_cast<__mmask16>(mask));
    __m512 y = load_floats(p + 16, static_cast<__mmask16>(mask >> 16));
    see(x);
    see(y);
    for (int i = 0; i < kParts; ++i) {
      parts[i] = upper_halves(x, y);
      x = _mm512_sub_ps(x, truncated(x));
      y = _mm512_sub_ps(y, truncated(y));
    }
  }
  inline void across(const T* p0, __mmask16 mask0, const T* p1, __mmask16 mask1,
                     __m512i (&parts)[kParts]) {
    __m512 x = load_floats(p0, mask0), y = load_floats(p1, mask1);
    see(x);
    see(y);
    for (int i = 0; i < kParts; ++i) {
      parts[i] = upper_pairs(x, y);
      x = _mm512_sub_ps(x, truncated(x));
      y = _mm512_sub_ps(y, truncated(y));
    }
  }
};

constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kSplittable = (127 - 100) << 23;  // 2^-100: the third part is a normal number
constexpr uint32_t kRoundsToInfinity = 0x7f7f8000;   // in bf16

using F16Source = SplitSource<uint16_t, 2, 0, kInfinity>;
using F32HighSource = SplitSource<float, 3, kSplittable, kInfinity>;

// Rounded to nearest even: the rest is dropped.
struct F32MediumSource : SplitSource<float, 1, kSplittable, kRoundsToInfinity> {
  using Base = SplitSource<float, 1, kSplittable, kRoundsToInfinity>;
  static inline __m512 rounded(__m512 x) {  // its upper half is what counts
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits_of(x), 16), _mm512_set1_epi32(1));
    return floats_of(
        _mm512_add_epi32(bits_of(x), _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))));
  }
  inline void along(const T* p, __mmask32 mask, __m512i (&parts)[1]) {
    const __m512 x = load_floats(p, static_cast<__mmask16>(mask));
    const __m512 y = load_floats(p + 16, static_cast<__mmask16>(mask >> 16));
    see(x);
    see(y);
    parts[0] = upper_halves(rounded(x), rounded(y));
  }
  inline void across(const T* p0, __mmask16 mask0, const T* p1, __mmask16 mask1,
                     __m512i (&parts)[1]) {
    const __m512 x = load_floats(p0, mask0), y = load_floats(p1, mask1);
    see(x);
    see(y);
    parts[0] = upper_pairs(rounded(x), rounded(y));
  }
};

// --- Tiles ---------------------------------------------------------------------------------------

// 16 x 16 dwords: within each 128 bits first, then the 128-bit blocks.
inline void transpose(char* tile) {
  __m512i r[16], t[16];
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(tile + 64 * i);
  for (int i = 0; i < 16; i += 4) {
    const __m512i ab_low = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    const __m512i ab_high = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    const __m512i cd_low = _mm512_unpacklo_epi32(r[i + 2], r[i + 3]);
    const __m512i cd_high = _mm512_unpackhi_epi32(r[i + 2], r[i + 3]);
    t[i] = _mm512_unpacklo_epi64(ab_low, cd_low);
    t[i + 1] = _mm512_unpackhi_epi64(ab_low, cd_low);
    t[i + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
    t[i + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
  }
  for (int i = 0; i < 4; ++i) {  // column i of each of the four blocks
    const __m512i low = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
    const __m512i high = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
    const __m512i low2 = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
    const __m512i high2 = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    r[i] = _mm512_shuffle_i32x4(low, low2, 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    r[i + 4] = _mm512_shuffle_i32x4(high, high2, 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(tile + 64 * i, r[i]);
}

inline int64_t limit(int64_t n, int64_t most) { return n > most ? most : n > 0 ? n : 0; }

// Calls body(k, depth, p) for each step of the lines.
template <class T, class Body>
inline void for_each_step(const TileLines& x, Body&& body) {
  for (int64_t k = 0; k < x.k; k += kStepDepth)
    body(k, limit(x.k - k, kStepDepth), static_cast<const T*>(x.data) + k * x.k_stride);
}

// Calls put(line, part, row, pairs) with every row of the tiles of one step, before transposition;
// `line` is the first of a tile. Lines from x.count on, up to `padded`, are zero. Sources across k
// are read row by row as far as the lines go, since their rows may share a few sets of L1.
template <class Source, class Put>
inline void load_step(Source& source, const TileLines& x, int64_t padded, int64_t k, int64_t depth,
                      const typename Source::T* p, Put&& put) {
  using T = typename Source::T;
  __m512i parts[Source::kParts];
  const auto put_parts = [&](int64_t line, int row) {
    for (int part = 0; part < Source::kParts; ++part) put(line, part, row, parts[part]);
  };
  if (x.k_stride != 1 && x.line_stride == 1) {
    const int64_t fetch = x.k - k > kStepDepth ? kStepDepth * x.k_stride : 0;
    for (int i = 0; i < kTileLines; ++i) {
      const T* const even = p + 2 * i * x.k_stride;
      const T* const odd = even + x.k_stride;
      for (int64_t line = 0; line < padded; line += kTileLines) {
        const __mmask16 mask = first16(x.count - line);
        _mm_prefetch(even + line + fetch, _MM_HINT_T1);
        _mm_prefetch(odd + line + fetch, _MM_HINT_T1);
        source.across(even + line, 2 * i < depth ? mask : 0, odd + line,
                      2 * i + 1 < depth ? mask : 0, parts);
        put_parts(line, i);
      }
    }
    return;
  }
  T gathered[kStepDepth];
  for (int64_t line = 0; line < padded; ++line) {
    const T* from = p + line * x.line_stride;
    if (x.k_stride != 1 && line < x.count) {
      for (int64_t q = 0; q < depth; ++q) memcpy(&gathered[q], from + q * x.k_stride, sizeof(T));
      from = gathered;
    }
    source.along(from, line < x.count ? first32(depth) : 0, parts);
    put_parts(line / kTileLines * kTileLines, static_cast<int>(line % kTileLines));
  }
}

template <class Source>
bool pack_lines(TileOperand operand, const TileLines& x, char* panels, int64_t panel_bytes) {
  Source source;
  const bool is_b = operand == TileOperand::kB;
  const bool across = x.k_stride != 1 && x.line_stride == 1;
  const int64_t padded = (x.count + kPanelLines - 1) / kPanelLines * kPanelLines;
  const int64_t steps = (x.k + kStepDepth - 1) / kStepDepth;
  const int64_t part_bytes = is_b ? kPartBytes : kTileBytes;
  const int64_t tile_bytes = is_b ? kTileBytes : steps * Source::kParts * kTileBytes;
  for_each_step<typename Source::T>(x, [&](int64_t k, int64_t depth, const auto* p) {
    char* const step = panels + k / kStepDepth * Source::kParts * part_bytes;
    const auto tile = [&](int64_t line, int part) {
      return step + line / kPanelLines * panel_bytes +
             line % kPanelLines / kTileLines * tile_bytes + part * part_bytes;
    };
    load_step(source, x, padded, k, depth, p, [&](int64_t line, int part, int row, __m512i pairs) {
      _mm512_storeu_si512(tile(line, part) + row * 64, pairs);
    });
    if (across == is_b) return;
    for (int64_t line = 0; line < padded; line += kTileLines)
      for (int part = 0; part < Source::kParts; ++part) transpose(tile(line, part));
  });
  return source.special();
}

template <class Source>
bool scan_lines(const TileLines& x) {
  Source source;
  for_each_step<typename Source::T>(x, [&](int64_t k, int64_t depth, const auto* p) {
    load_step(source, x, x.count, k, depth, p, [](int64_t, int, int, __m512i) {});
  });
  return source.special();
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_AMX_PACK_H_
