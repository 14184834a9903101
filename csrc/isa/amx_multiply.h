// The macro-kernel of the tile products. Contract: dispatch/tile_kernels.h.
//
// Tiles 0..3 hold 2 x 2 tiles of totals, 4 and 5 A, 6 and 7 B. Between two blocks nothing waits: in
// the first step of a block each tile of totals is put away right before it is begun anew, and the
// rows that were put away are finished one by one during the steps that follow.
#ifndef MPCORE_ISA_AMX_MULTIPLY_H_
#define MPCORE_ISA_AMX_MULTIPLY_H_

#include <immintrin.h>
#include <stdint.h>

#include "dispatch/tile_kernels.h"
#include "isa/amx_pack.h"
#include "isa/f32x16_avx512.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// --- Output --------------------------------------------------------------------------------------

constexpr int kTotalsRow = 16;  // floats in a row of a tile of totals
constexpr int64_t kTotalsTile = 256;

inline __m512i bf16_line(F32x16 x, F32x16 y) {
  // The instruction flushes subnormals and keeps NaN payloads; see F32x16.
  constexpr int kQuietNan = 0x01, kSubnormal = 0x20, kSignalingNan = 0x80;
  constexpr int kUnfit = kQuietNan | kSubnormal | kSignalingNan;
  if ((_mm512_fpclass_ps_mask(x.v, kUnfit) | _mm512_fpclass_ps_mask(y.v, kUnfit)) == 0) [[likely]]
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(y.v, x.v));
  alignas(64) BF16 line[32];
  x.store(line);
  y.store(line + kLanes);
  return _mm512_load_si512(line);
}

inline __m512i f16_line(F32x16 x, F32x16 y) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_castph_si256(_mm512_cvtxps_ph(x.v))),
                            _mm256_castph_si256(_mm512_cvtxps_ph(y.v)), 1);
}

// Finishes rows of a block that was put away in `totals`.
class RowWriter {
 public:
  RowWriter(const TileOutput& output, const float* totals)
      : o_(output), totals_(totals), rows_(output.rows), d_(static_cast<char*>(output.d)) {
    if (rows_ == 0) return;
    left_ = first32(o_.cols);
    if (o_.bias == nullptr) return;
    bias_[0] = F32x16{_mm512_maskz_loadu_ps(static_cast<__mmask16>(left_), o_.bias)};
    bias_[1] = F32x16{_mm512_maskz_loadu_ps(static_cast<__mmask16>(left_ >> 16), o_.bias + kLanes)};
  }

  inline void write(int count) {
    for (; count > 0 && row_ < rows_; --count, ++row_, d_ += o_.d_row) write_row();
  }

 private:
  inline void write_row() {
    const float* from = totals_ + row_ / 16 * (2 * kTotalsTile) + row_ % 16 * kTotalsRow;
    F32x16 x = F32x16::load(from), y = F32x16::load(from + kTotalsTile);
    if (o_.bias != nullptr) {
      x = x + bias_[0];
      y = y + bias_[1];
    }
    switch (o_.d_dtype) {
      case MPCORE_DTYPE_BF16:
        return put(bf16_line(x, y));
      case MPCORE_DTYPE_F16:
        return put(f16_line(x, y));
      default:
        float* const d = reinterpret_cast<float*>(d_);
        if (o_.stream) {
          _mm512_stream_ps(d, x.v);
          _mm512_stream_ps(d + kLanes, y.v);
        } else {
          _mm512_mask_storeu_ps(d, static_cast<__mmask16>(left_), x.v);
          _mm512_mask_storeu_ps(d + kLanes, static_cast<__mmask16>(left_ >> 16), y.v);
        }
    }
  }
  inline void put(__m512i line) {
    if (o_.stream) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(d_), line);
    } else {
      _mm512_mask_storeu_epi16(d_, left_, line);
    }
  }

  const TileOutput& o_;
  const float* totals_;
  int row_ = 0;
  const int rows_;
  char* d_;
  __mmask32 left_ = 0;
  F32x16 bias_[2];
};

// --- Looking ahead -------------------------------------------------------------------------------

// Elements between what is looked at and what is asked for: with contiguous lines, the next lines.
constexpr int64_t kFetchAhead = 512;

// Goes through run.ahead evenly, step by step.
class LookAhead {
 public:
  explicit LookAhead(const TileRun& r)
      : line_stride_(r.ahead.line_stride),
        steps_(r.ahead.k / kStepDepth),
        row_(static_cast<const uint16_t*>(r.ahead.data)),
        rows_(r.ahead.count),
        each_(rows_ == 0 ? 0 : (rows_ * steps_ + r.panels * r.steps - 1) / (r.panels * r.steps)) {}

  inline void look() {
    for (int64_t i = 0; i < each_ && rows_ > 0; ++i) {
      const uint16_t* const line = row_ + step_ * kStepDepth;
      source_.see(_mm512_loadu_si512(line));
      _mm_prefetch(line + kFetchAhead, _MM_HINT_T0);
      if (++step_ < steps_) continue;
      step_ = 0;
      row_ += line_stride_;
      --rows_;
    }
  }
  inline bool special() const { return source_.special(); }

 private:
  const int64_t line_stride_, steps_;
  const uint16_t* row_;
  int64_t rows_, step_ = 0;
  const int64_t each_;
  Bf16Source source_;
};

// --- Products ------------------------------------------------------------------------------------

// Which parts are multiplied, in this order in each step. Neighbours share one part, which stays
// in its registers.
struct OneTerm {
  static constexpr int kParts = 1, kCount = 1;
  static constexpr int kA[] = {0}, kB[] = {0};
};
struct FourTerms {  // hi hi, hi lo, lo lo, lo hi
  static constexpr int kParts = 2, kCount = 4;
  static constexpr int kA[] = {0, 0, 1, 1}, kB[] = {0, 1, 1, 0};
};
struct SixTerms {  // without mid low, low mid, low low
  static constexpr int kParts = 3, kCount = 6;
  static constexpr int kA[] = {2, 1, 1, 0, 0, 0}, kB[] = {0, 0, 1, 1, 0, 2};
};

// Puts one tile of totals away and begins it anew: from zero, or from `load`.
#define MPCORE_TURN_TILE(tile)                                                             \
  if constexpr (kFirst) {                                                                  \
    if (tile < turn.tiles) _tile_stored(tile, turn.store + tile * kTotalsTile, kRowBytes); \
    if (turn.load != nullptr) {                                                            \
      _tile_loadd(tile, turn.load + tile * kTotalsTile, kRowBytes);                        \
    } else {                                                                               \
      _tile_zero(tile);                                                                    \
    }                                                                                      \
  }

template <class Terms, bool kTwoTiles>
class Multiplier {
 public:
  static bool run(const TileRun& r, TilePending& pending) {
    alignas(64) float buffer[kTotalFloats];
    TileOutput output = r.output;
    const float* load = r.totals;
    const char* b = static_cast<const char*>(r.b);
    const int32_t cols = output.cols;
    const int64_t d_bytes = kPanelLines * (output.d_dtype == MPCORE_DTYPE_F32 ? 4 : 2);
    LookAhead ahead(r);
    begin(r, b);
    for (int64_t panel = 0; panel < r.panels; ++panel) {
      const int64_t left = cols - panel * kPanelLines;
      output.cols = static_cast<int32_t>(left < kPanelLines ? left : kPanelLines);
      const char* const b_next = panel + 1 < r.panels ? b + r.b_panel : b;
      block(r, b, b_next, load, pending, buffer, ahead);
      b = b_next;
      pending.tiles = kTwoTiles ? 4 : 2;
      pending.output = output;
      if (load != nullptr) load += kTotalFloats;
      if (output.rows == 0) {
        output.tiles += kTotalFloats;
      } else {
        output.d = static_cast<char*>(output.d) + d_bytes;
        if (output.bias != nullptr) output.bias += kPanelLines;
      }
    }
    return ahead.special();
  }

 private:
  static constexpr int kRowBytes = 4 * kTotalsRow;

  // What becomes of the tiles of totals when a block begins.
  struct Turn {
    int tiles;  // this many are put away
    float* store;
    const float* load;
  };

  // Totals of one pair of panels, left in the registers. The operands of the first product are
  // there; those of the next block are fetched.
  static inline void block(const TileRun& r, const char* b, const char* b_next, const float* load,
                           const TilePending& pending, float* buffer, LookAhead& ahead) {
    const char* a = static_cast<const char*>(r.a);
    const bool rows = pending.output.rows != 0;
    const Turn turn{pending.tiles, rows ? buffer : pending.output.tiles, load};
    RowWriter writer(pending.output, buffer);
    const int rows_each = static_cast<int>((pending.output.rows + r.steps - 1) / r.steps);
    const int64_t b_step = Terms::kParts * kPartBytes;
    if (r.steps == 1) {
      terms<0, true>(r, a, b, a, b_next, turn);
      writer.write(rows_each);
      ahead.look();
      return;
    }
    terms<0, true>(r, a, b, a + r.a_step, b + b_step, turn);
    writer.write(rows_each);
    ahead.look();
    for (int64_t step = 2; step < r.steps; ++step) {
      a += r.a_step;
      b += b_step;
      terms<0, false>(r, a, b, a + r.a_step, b + b_step, turn);
      writer.write(rows_each);
      ahead.look();
    }
    terms<0, false>(r, a + r.a_step, b + b_step, static_cast<const char*>(r.a), b_next, turn);
    writer.write(rows_each);
    ahead.look();
  }

  static inline void load_second_a(const TileRun& r, const char* a) {
    if (r.stream_half) {
      _tile_stream_loadd(5, a + r.a_tile, r.a_row);
    } else {
      _tile_loadd(5, a + r.a_tile, r.a_row);
    }
  }

  static inline void begin(const TileRun& r, const char* b) {
    const char* const a = static_cast<const char*>(r.a) + Terms::kA[0] * kTileBytes;
    b += Terms::kB[0] * kPartBytes;
    _tile_loadd(4, a, r.a_row);
    _tile_stream_loadd(6, b, 64);
    if constexpr (kTwoTiles) load_second_a(r, a);
    _tile_stream_loadd(7, b + kTileBytes, 64);
  }

  // The terms of a step from kTerm on. a and b are the step's, a_next and b_next the next one's.
  template <int kTerm, bool kFirst>
  static inline void terms(const TileRun& r, const char* a, const char* b, const char* a_next,
                           const char* b_next, const Turn& turn) {
    constexpr bool kLast = kTerm + 1 == Terms::kCount;
    constexpr int kNext = kLast ? 0 : kTerm + 1;
    constexpr bool kNewA = kLast || Terms::kA[kNext] != Terms::kA[kTerm];
    constexpr bool kNewB = kLast || Terms::kB[kNext] != Terms::kB[kTerm];
    product<kFirst && kTerm == 0, kNewA, kNewB>(
        r, (kLast ? a_next : a) + Terms::kA[kNext] * kTileBytes,
        (kLast ? b_next : b) + Terms::kB[kNext] * kPartBytes, turn);
    if constexpr (!kLast) terms<kTerm + 1, kFirst>(r, a, b, a_next, b_next, turn);
  }

  // Four products. Each operand that the next ones do not use is replaced right after its last use
  // here: tile loads wait for that, so any other order leaves gaps.
  template <bool kFirst, bool kNewA, bool kNewB>
  static inline void product(const TileRun& r, const char* a, const char* b, const Turn& turn) {
    MPCORE_TURN_TILE(0)
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (!kTwoTiles) {
      if constexpr (kNewB) _tile_stream_loadd(6, b, 64);
      MPCORE_TURN_TILE(1)
      _tile_dpbf16ps(1, 4, 7);
      if constexpr (kNewA) _tile_loadd(4, a, r.a_row);
      if constexpr (kNewB) _tile_stream_loadd(7, b + kTileBytes, 64);
      if constexpr (kFirst) {
        if (turn.tiles == 4) {
          _tile_stored(2, turn.store + 2 * kTotalsTile, kRowBytes);
          _tile_stored(3, turn.store + 3 * kTotalsTile, kRowBytes);
        }
      }
    } else if constexpr (kNewA) {
      MPCORE_TURN_TILE(1)
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(4, a, r.a_row);
      MPCORE_TURN_TILE(2)
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kNewB) _tile_stream_loadd(6, b, 64);
      MPCORE_TURN_TILE(3)
      _tile_dpbf16ps(3, 5, 7);
      load_second_a(r, a);
      if constexpr (kNewB) _tile_stream_loadd(7, b + kTileBytes, 64);
    } else {
      MPCORE_TURN_TILE(2)
      _tile_dpbf16ps(2, 5, 6);
      _tile_stream_loadd(6, b, 64);
      MPCORE_TURN_TILE(1)
      _tile_dpbf16ps(1, 4, 7);
      MPCORE_TURN_TILE(3)
      _tile_dpbf16ps(3, 5, 7);
      _tile_stream_loadd(7, b + kTileBytes, 64);
    }
  }
};

void drain_kernel(TilePending& pending) {
  if (pending.tiles == 0) return;
  alignas(64) float buffer[kTotalFloats];
  const TileOutput& output = pending.output;
  float* const store = output.rows == 0 ? output.tiles : buffer;
  _tile_stored(0, store, 4 * kTotalsRow);
  _tile_stored(1, store + kTotalsTile, 4 * kTotalsRow);
  if (pending.tiles == 4) {
    _tile_stored(2, store + 2 * kTotalsTile, 4 * kTotalsRow);
    _tile_stored(3, store + 3 * kTotalsTile, 4 * kTotalsRow);
  }
  if (output.rows != 0) RowWriter(output, buffer).write(output.rows);
  pending = {};
}

#undef MPCORE_TURN_TILE

template <class Terms>
bool multiply_terms(const TileRun& run, TilePending& pending) {
  return run.one_tile ? Multiplier<Terms, false>::run(run, pending)
                      : Multiplier<Terms, true>::run(run, pending);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_ISA_AMX_MULTIPLY_H_
