// The tile kernels of the amx level. A unit of its own: it compiles in a moment, the table of a
// whole level does not.
#include "isa/amx_multiply.h"
#include "isa/amx_pack.h"

namespace mpcore {
namespace {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

constexpr TileConfig kConfig;

void acquire_tiles(TileState* found) {
  _tile_storeconfig(found->config);
  _tile_loadconfig(&kConfig);
}

void release_tiles(const TileState& found) {
  constexpr int kPalette = 0;
  if (found.config[kPalette] == 0) {
    _tile_release();
  } else {
    _tile_loadconfig(found.config);
  }
}

// Calls f with the source of the scheme.
template <class F>
bool with_source(TileScheme scheme, F&& f) {
  switch (scheme) {
    case TileScheme::kBf16:
      return f(Bf16Source{});
    case TileScheme::kF16:
      return f(F16Source{});
    case TileScheme::kF32High:
      return f(F32HighSource{});
    case TileScheme::kF32Medium:
      break;
  }
  return f(F32MediumSource{});
}

bool pack_kernel(TileScheme scheme, TileOperand operand, const TileLines& lines, void* panels,
                 int64_t panel_bytes) {
  return with_source(scheme, [&](auto source) {
    return pack_lines<decltype(source)>(operand, lines, static_cast<char*>(panels), panel_bytes);
  });
}

bool scan_kernel(TileScheme scheme, const TileLines& lines) {
  return with_source(scheme, [&](auto source) { return scan_lines<decltype(source)>(lines); });
}

bool multiply_kernel(TileScheme scheme, const TileRun& run, TilePending& pending) {
  switch (scheme) {
    case TileScheme::kF16:
      return multiply_terms<FourTerms>(run, pending);
    case TileScheme::kF32High:
      return multiply_terms<SixTerms>(run, pending);
    default:
      return multiply_terms<OneTerm>(run, pending);
  }
}

}  // namespace

constinit const TileKernels kAmxTileTable = {.acquire = acquire_tiles,
                                             .release = release_tiles,
                                             .pack = pack_kernel,
                                             .scan = scan_kernel,
                                             .multiply = multiply_kernel,
                                             .drain = drain_kernel};

}  // namespace mpcore
