#include "api/gemm_tile_blocking.h"

#include <algorithm>

#include "api/check.h"
#include "api/gemm_tiles.h"

namespace mpcore {
namespace {

constexpr int64_t kWholeDepth = 1024;  // k times parts: a panel of A, half in L1, half in L2
constexpr int64_t kThinRows = 128;     // so few rows use a packed B too little to pack it ahead
constexpr int64_t kThinDepth = 8192;
constexpr int64_t kBlockBytes = 1 << 20;  // of B, half of L2
constexpr int64_t kThinBlockBytes = 128 << 10;
constexpr int64_t kWideCols = 1024;  // rows of B so long are read as fast as memory allows,
constexpr int64_t kWideBlockBytes = 256 << 10;  // which for few rows of A is what counts
constexpr int64_t kSplitWholeDepth = 1536;      // more products for each panel that is loaded
constexpr int64_t kAheadRows = 384, kAheadCols = 512;  // fp32 totals in L2
constexpr int64_t kAheadDepth = 384, kSplitAheadDepth = 512;
constexpr int64_t kAheadBytes = int64_t{64} << 20;
constexpr int64_t kAheadLines = 4096;

constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }
constexpr int64_t round_down(int64_t x, int64_t y) { return x / y * y; }

}  // namespace

bool tiles_can(const Session& session, mpcore_dtype dtype, mpcore_matmul_precision precision,
               int64_t k) {
  return session.kernels().tiles != nullptr && k > 0 &&
         (dtype != MPCORE_DTYPE_F32 || precision != MPCORE_MATMUL_PRECISION_HIGHEST);
}

TileScheme tile_scheme(mpcore_dtype dtype, mpcore_matmul_precision precision) {
  if (dtype == MPCORE_DTYPE_BF16) return TileScheme::kBf16;
  if (dtype == MPCORE_DTYPE_F16) return TileScheme::kF16;
  return precision == MPCORE_MATMUL_PRECISION_HIGH ? TileScheme::kF32High : TileScheme::kF32Medium;
}

TileBlocking tile_blocking(const GemmProblem& g, TileScheme scheme, int64_t threads) {
  const int64_t parts = parts_of(scheme);
  const int64_t m = round_up(g.m, kPanelLines), n = round_up(g.n, kColumnBlock);
  const int64_t k = round_up(g.k, kStepDepth);
  const int64_t whole_depth = parts == 1 ? kWholeDepth : kSplitWholeDepth;
  const int64_t ahead_depth = parts == 1 ? kAheadDepth : kSplitAheadDepth;
  TileBlocking b;
  if (g.m <= kThinRows && g.packed_b == nullptr && g.b.col_stride == 1) {
    b.cols = std::min(kWideCols, n);
    b.rows = m;
    b.depth = std::min(k, round_down(kWideBlockBytes / (b.cols * parts * 2), kStepDepth));
    b.ahead_depth = k;
  } else if (k * parts <= whole_depth || (g.m <= kThinRows && k * parts <= kThinDepth)) {
    const int64_t bytes = g.m > kThinRows ? kBlockBytes : kThinBlockBytes;
    b.cols = std::clamp(round_down(bytes / (k * parts * 2), kColumnBlock), kColumnBlock, n);
    b.rows = m;
    b.depth = b.ahead_depth = k;
  } else {
    b.ahead = true;
    b.rows = std::min(kAheadRows, m);
    b.cols = std::min(kAheadCols, n);
    b.depth = std::min(round_down(ahead_depth / parts, kStepDepth), k);
    b.ahead_rows = std::min(kAheadLines, m);
    b.ahead_cols = std::min(kAheadLines, n);
    const int64_t fits = kAheadBytes / ((b.ahead_rows + b.ahead_cols) * parts * 2);
    b.ahead_depth = std::min(k, std::max(b.depth, round_down(fits, b.depth)));
  }
  if (threads == 1) return b;
  // As many tasks as threads, or a multiple: cutting further costs more than it evens out.
  const int64_t down = ceil_div(m, b.rows), across = ceil_div(n, b.cols);
  const int64_t wanted = round_up(down * across, threads);
  if (down * across < 4 * threads)
    b.cols = std::max(kColumnBlock, round_up(ceil_div(n, ceil_div(wanted, down)), kColumnBlock));
  const auto tasks = [&] { return ceil_div(m, b.rows) * ceil_div(n, b.cols); };
  while (tasks() < threads && b.rows > kPanelLines) b.rows = round_up(b.rows / 2, kPanelLines);
  return b;
}

}  // namespace mpcore
