// The contract for products on matrix tiles: packing into panels of tiles, and one macro-kernel
// that multiplies a panel of A by a run of panels of B. Serial; allocates and checks nothing.
//
// Operands become one to three bf16 parts whose sum they are ("split"); the tile unit multiplies
// parts and accumulates in fp32. A panel is 32 lines (rows of A, columns of B), two tiles wide; a
// step is 32 k, and there is a tile of 1 KiB for each part, step, and sixteen lines. Panels of B
// are stored [step][part][tile], those of A [tile][step][part], so that half a panel is contiguous
// and can stay in L1 alone. k beyond the end and lines that do not exist are zero. Who fills a line
// never sees other lines.
#ifndef MPCORE_DISPATCH_TILE_KERNELS_H_
#define MPCORE_DISPATCH_TILE_KERNELS_H_

#include <stdint.h>

#include "mpcore/base.h"

namespace mpcore {

constexpr int64_t kPanelLines = 32;
constexpr int64_t kStepDepth = 32;
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kPartBytes = 2 * kTileBytes;  // of one part of one step

// What is read, into how many parts it goes, and which products of parts are summed, per 32 k, in
// the order that the kernels state.
enum class TileScheme : int32_t {
  kBf16,       // 1 part, 1 product: exact, the `pairs` order of GemmKernels
  kF16,        // 2 parts, 4 products: exact
  kF32High,    // 3 parts, 6 products: what is left out is below 2^-20 of a product
  kF32Medium,  // 1 part, rounded to bf16
};

constexpr int64_t parts_of(TileScheme scheme) {
  return scheme == TileScheme::kF16 ? 2 : scheme == TileScheme::kF32High ? 3 : 1;
}
constexpr int64_t step_bytes(TileScheme scheme) { return parts_of(scheme) * kPartBytes; }

enum class TileOperand : int32_t { kA, kB };

// `count` lines of k elements; strides count elements.
struct TileLines {
  const void* data;
  int64_t line_stride, k_stride;
  int64_t count, k;
};

// The tile configuration that a thread was found with.
struct TileState {
  alignas(64) unsigned char config[64];
};

// Where 32 columns of totals go. `rows` fp32 rows through the bias to D, one rounding; or, `rows`
// 0, the tiles as they are to `tiles`.
struct TileOutput {
  float* tiles;
  void* d;
  int64_t d_row;  // bytes
  mpcore_dtype d_dtype;
  const float* bias;  // of the 32 columns, or nullptr
  int32_t rows, cols;
  bool stream;  // past the caches: cols is 32, d and d_row are multiples of 64
};

// Totals that are still in the tile registers. multiply() puts them where they go while it computes
// the next ones, drain() at once.
struct TilePending {
  int32_t tiles = 0;  // 0: none, 2: sixteen rows, 4: thirty-two
  TileOutput output{};
};

// One panel of A times `panels` neighbouring panels of B over `steps` steps.
struct TileRun {
  const void* a;
  int64_t a_row, a_tile, a_step;  // bytes between rows of a tile, the two tiles, steps
  bool one_tile;                  // the panel has at most sixteen rows
  bool stream_half;               // the second tile of A is not worth a place in L1
  const void* b;
  int64_t b_panel;  // bytes
  int64_t steps, panels;
  const float* totals;  // nullptr: begin with zero; else tiles, kTotalFloats for each panel
  TileOutput output;    // of the first panel; cols counts those of the whole run
  // bf16 lines along k, whole steps of them, to look through for special elements meanwhile; they
  // are multiplied next, so this fetches them, too. count 0: none.
  TileLines ahead;
};
constexpr int64_t kTotalFloats = kPanelLines * kPanelLines;

struct TileKernels {
  // Configures the tiles of this thread; what it had goes to `found`, and comes back by release().
  // Between the two, nobody else may touch the tiles of the thread.
  void (*acquire)(TileState* found);
  void (*release)(const TileState& found);

  // Packs lines into ceil(count / 32) panels `panel_bytes` apart. Does an element need the exact
  // path: a subnormal, infinite, or NaN one, or, in f32, one too small or too large to split?
  bool (*pack)(TileScheme scheme, TileOperand operand, const TileLines& lines, void* panels,
               int64_t panel_bytes);
  // The same answer without packing.
  bool (*scan)(TileScheme scheme, const TileLines& lines);

  // Is there a special element in run.ahead?
  bool (*multiply)(TileScheme scheme, const TileRun& run, TilePending& pending);
  void (*drain)(TilePending& pending);
};

extern const TileKernels kAmxTileTable;

}  // namespace mpcore

#endif  // MPCORE_DISPATCH_TILE_KERNELS_H_
