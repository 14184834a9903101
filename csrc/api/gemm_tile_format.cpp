// How the tile path keeps a B that is packed ahead: as the FMA path does, for what tiles cannot
// multiply; then panels of tiles over all of k; then a flag for each block of columns that holds
// special elements.
#include <algorithm>
#include <cstdint>

#include "api/check.h"
#include "api/gemm_panels.h"
#include "api/gemm_tile_blocking.h"
#include "api/gemm_tiles.h"

namespace mpcore {
namespace {

constexpr int64_t kAlignment = 64;

int64_t column_blocks(const PackedShape& shape) { return ceil_div(shape.n, kColumnBlock); }

// Bytes of a panel of tiles over all of k.
int64_t panel_bytes(const PackedShape& shape) {
  return ceil_div(shape.k, kStepDepth) * step_bytes(tile_scheme(shape.dtype, shape.precision));
}

// The parts as offsets; -1 if they do not fit in int64_t.
struct Layout {
  int64_t tiles, special, size;
};
Layout layout_of(const Session& session, const PackedShape& shape) {
  const int64_t panels = kPanelFormat.size(session, shape);
  const int64_t blocks = column_blocks(shape);
  int64_t bytes, size;
  if (panels < 0 ||
      __builtin_mul_overflow(blocks * (kColumnBlock / kPanelLines), panel_bytes(shape), &bytes) ||
      __builtin_add_overflow(panels, bytes + kAlignment + blocks, &size))
    return {-1, -1, -1};
  const int64_t tiles = ceil_div(panels, kAlignment) * kAlignment;
  return {tiles, tiles + bytes, tiles + bytes + blocks};
}

int64_t tiles_size(const Session& session, const PackedShape& shape) {
  return layout_of(session, shape).size;
}

mpcore_status pack_tiles(Session& session, const PackedShape& shape, const mpcore_matrix& b,
                         void* data) {
  if (const auto s = kPanelFormat.pack(session, shape, b, data)) return s;
  const Layout layout = layout_of(session, shape);
  char* const tiles = static_cast<char*>(data) + layout.tiles;
  char* const special = static_cast<char*>(data) + layout.special;
  const TileKernels& kernels = *session.kernels().tiles;
  const TileScheme scheme = tile_scheme(shape.dtype, shape.precision);
  const int64_t panel = panel_bytes(shape);
  return session.parallel_for(column_blocks(shape), FpMode::kIeee, [&](int64_t block) {
    const int64_t j = block * kColumnBlock;
    const TileLines lines{element(b, 0, j), b.col_stride, b.row_stride,
                          std::min(kColumnBlock, shape.n - j), shape.k};
    special[block] =
        kernels.pack(scheme, TileOperand::kB, lines, tiles + j / kPanelLines * panel, panel);
  });
}

}  // namespace

PackedTiles packed_tiles(const Session& session, const PackedShape& shape, const void* data) {
  const Layout layout = layout_of(session, shape);
  const char* const begin = static_cast<const char*>(data);
  return {begin, begin + layout.tiles, begin + layout.special};
}

const PackFormat kTileFormat = {.size = tiles_size, .pack = pack_tiles};

}  // namespace mpcore
