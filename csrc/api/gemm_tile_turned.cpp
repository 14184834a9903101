#include "api/gemm_tile_turned.h"

#include <algorithm>
#include <cstdint>

#include "api/check.h"
#include "api/gemm_tile_blocking.h"
#include "api/gemm_tile_special.h"
#include "api/gemm_tiles.h"

namespace mpcore {
namespace {

constexpr int64_t kTurnedRows = 32;      // with more, packing B is worth while
constexpr int64_t kTurnedDepth = 16384;  // bounds the workspace, which holds whole lines
constexpr double kSerialProducts = 1 << 21;
constexpr int64_t kRangesPerThread = 4;

class TurnedProduct {
 public:
  TurnedProduct(Session& session, const GemmProblem& problem)
      : session_(session),
        g_(problem),
        special_(problem),
        tiles_(*session.kernels().tiles),
        scheme_(tile_scheme(problem.a.dtype, problem.precision)),
        mode_(scheme_ == TileScheme::kBf16 ? FpMode::kFlushResults : FpMode::kIeee),
        steps_(ceil_div(problem.k, kStepDepth)),
        panel_bytes_(steps_ * step_bytes(scheme_)),
        panels_(ceil_div(problem.m, kPanelLines)),
        direct_(scheme_ == TileScheme::kBf16 && problem.k % kStepDepth == 0) {
    const bool serial = multiplications(g_.m, g_.n, g_.k) < kSerialProducts;
    const int64_t threads = serial ? 1 : session.num_threads();
    ranges_ = std::min(blocks(), threads == 1 ? 1 : kRangesPerThread * threads);
  }

  mpcore_status run() {
    const int64_t rows_bytes = panels_ * panel_bytes_;
    rows_ = static_cast<char*>(
        session_.workspace(rows_bytes + ranges_ * range_bytes() + special_.bytes()));
    if (rows_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    special_.use(rows_ + rows_bytes + ranges_ * range_bytes(), nullptr);
    if (const auto s = session_.serial(mode_, [&] { pack_rows(); })) return s;
    const auto work = [&](int64_t t) {
      multiply(blocks() * t / ranges_ * kColumnBlock,
               std::min(g_.n, blocks() * (t + 1) / ranges_ * kColumnBlock),
               rows_ + rows_bytes + t * range_bytes());
    };
    if (const auto s = session_.parallel_for(ranges_, mode_, work)) return s;
    return special_.compute(session_);
  }

 private:
  // Memory of a range: a panel of columns of B, and totals of a block, [column][row] and turned.
  int64_t range_bytes() const {
    return panel_bytes_ + kColumnBlock * (stride() + g_.m) * int64_t{sizeof(float)};
  }
  int64_t stride() const { return panels_ * kPanelLines; }
  int64_t blocks() const { return ceil_div(g_.n, kColumnBlock); }

  TileLines rows(int64_t i, int64_t count) const {
    return {element(g_.a, i, 0), g_.a.row_stride, g_.a.col_stride, count, g_.k};
  }
  TileLines columns(int64_t j, int64_t count) const {
    return {element(g_.b, 0, j), g_.b.col_stride, g_.b.row_stride, count, g_.k};
  }

  void pack_rows() {
    if (!tiles_.pack(scheme_, TileOperand::kB, rows(0, g_.m), rows_, panel_bytes_)) return;
    for (int64_t i = 0; i < g_.m; ++i)
      if (tiles_.scan(scheme_, rows(i, 1))) special_.add_row(i);
  }

  bool is_direct(int64_t count) const { return direct_ && count % (kPanelLines / 2) == 0; }

  // Columns [begin, end) of D; `begin` begins a block.
  void multiply(int64_t begin, int64_t end, char* memory) {
    auto* const totals = reinterpret_cast<float*>(memory + panel_bytes_);
    TileState found;
    tiles_.acquire(&found);
    TilePending pending;
    for (int64_t j = begin, count; j < end; j += count) {
      count = std::min(kPanelLines, end - j);
      const int64_t next = std::min(kPanelLines, end - j - count);
      TileRun run = panel(j, count, memory, j == begin);
      if (is_direct(next)) run.ahead = columns(j + count, next);
      float* const block = totals + j % kColumnBlock * stride();
      run.output = {.tiles = nullptr,
                    .d = block,
                    .d_row = stride() * int64_t{sizeof(float)},
                    .d_dtype = MPCORE_DTYPE_F32,
                    .bias = nullptr,
                    .rows = static_cast<int32_t>(count),
                    .cols = static_cast<int32_t>(g_.m),
                    .stream = false};
      if (tiles_.multiply(scheme_, run, pending)) special_.add_block(j + count);
      if ((j + count) % kColumnBlock != 0 && next > 0) continue;
      tiles_.drain(pending);
      finish(j / kColumnBlock * kColumnBlock, j + count, totals);
    }
    tiles_.release(found);
  }

  // The product of `count` columns from j on. The first panel of a range nobody has looked at.
  TileRun panel(int64_t j, int64_t count, char* memory, bool first) {
    const TileLines lines = columns(j, count);
    TileRun run{.a = memory,
                .a_row = 64,
                .a_tile = panel_bytes_ / 2,
                .a_step = step_bytes(scheme_) / 2,
                .one_tile = count <= kPanelLines / 2,
                .stream_half = false,
                .b = rows_,
                .b_panel = panel_bytes_,
                .steps = steps_,
                .panels = panels_,
                .totals = nullptr,
                .output = {},
                .ahead = {}};
    if (!is_direct(count)) {
      if (tiles_.pack(scheme_, TileOperand::kA, lines, memory, 0)) special_.add_block(j);
      return run;
    }
    if (first && tiles_.scan(scheme_, lines)) special_.add_block(j);
    run.a = lines.data;
    run.a_row = lines.line_stride * 2;
    run.a_tile = run.a_row * kPanelLines / 2;
    run.a_step = 2 * kStepDepth;
    return run;
  }

  // Columns [j, end) of D, a block, but for what is special.
  void finish(int64_t j, int64_t end, const float* totals) const {
    const GemmKernels& kernels = session_.kernels().gemm;
    float* const turned = const_cast<float*>(totals) + kColumnBlock * stride();
    kernels.pack({.src = totals,
                  .dtype = MPCORE_DTYPE_F32,
                  .lines = nullptr,
                  .line_stride = stride(),
                  .k_stride = 1,
                  .count = end - j,
                  .k = g_.m,
                  .k_padded = g_.m,
                  .width = kColumnBlock,
                  .panels = turned});
    special_.for_ordinary(
        0, j, g_.m, end - j, [&](int64_t r, int64_t c, int64_t count, int64_t cols) {
          g_.finish(kernels, r, j + c, count, cols, turned + r * kColumnBlock + c, kColumnBlock);
        });
  }

  Session& session_;
  const GemmProblem& g_;
  SpecialElements special_;
  const TileKernels& tiles_;
  const TileScheme scheme_;
  const FpMode mode_;
  const int64_t steps_, panel_bytes_, panels_;
  const bool direct_;  // columns of B are multiplied where they stand
  int64_t ranges_;
  char* rows_ = nullptr;  // A, packed
};

}  // namespace

bool prefers_turned(const GemmProblem& g, TileScheme scheme) {
  return parts_of(scheme) == 1 && g.packed_b == nullptr && g.b.row_stride == 1 &&
         g.m <= kTurnedRows && g.k <= kTurnedDepth;
}

mpcore_status turned_product(Session& session, const GemmProblem& problem) {
  return TurnedProduct(session, problem).run();
}

}  // namespace mpcore
