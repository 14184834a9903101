// The tile path: packing, tasks, and what tiles cannot multiply. How a product is cut is decided in
// gemm_tile_blocking.cpp; blocks of 32 k are added in increasing k however that is, so the bits do
// not depend on it.
#include "api/gemm_tiles.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "api/check.h"
#include "api/gemm_panels.h"
#include "api/gemm_tile_blocking.h"
#include "api/gemm_tile_special.h"

namespace mpcore {
namespace {

constexpr int64_t kPackCols = 8 * kColumnBlock;      // of B, in a task of packing
constexpr double kSerialFlops = 1 << 21;             // below, a hand-over costs more than it saves
constexpr int64_t kDirectStride = int64_t{1} << 12;  // bytes; rows so far apart share L1 sets
constexpr int64_t kHalfPanel = 40 << 10;  // bytes of a panel of A that L1 holds beside the rest
constexpr int64_t kStreamBytes = int64_t{1} << 20;  // a D beyond this does not stay in L2
// Blocks of this size come on huge pages, and then do not fall on top of each other in L2: worth
// 10 to 15 % from the size of use on.
constexpr int64_t kHugePage = int64_t{2} << 20, kHugePageUse = int64_t{256} << 10;

class TileProduct {
 public:
  // `packed` is nullptr, or holds B.
  TileProduct(Session& session, const GemmProblem& problem, const PackedTiles* packed)
      : session_(session),
        g_(problem),
        special_(problem),
        tiles_(*session.kernels().tiles),
        packed_(packed),
        scheme_(tile_scheme(problem.a.dtype, problem.precision)),
        step_bytes_(step_bytes(scheme_)),
        serial_(multiplications(problem.m, problem.n, problem.k) < kSerialFlops),
        blocking_(tile_blocking(problem, scheme_, serial_ ? 1 : session.num_threads())),
        mode_(scheme_ == TileScheme::kBf16 ? FpMode::kFlushResults : FpMode::kIeee) {
    const int64_t size = dtype_size(g_.d.dtype);
    plain_ = g_.alpha == 1.0f && g_.beta == 0.0f && g_.residual.data == nullptr &&
             g_.pre_activation.data == nullptr && g_.activation == MPCORE_ACTIVATION_LINEAR &&
             g_.squares == nullptr && g_.non_finite == nullptr && g_.d.col_stride == 1;
    stream_ = g_.m * g_.n * size > kStreamBytes &&
              reinterpret_cast<uintptr_t>(g_.d.data) % 64 == 0 && g_.d.row_stride * size % 64 == 0;
    const int64_t row_bytes = g_.a.row_stride * 2;
    direct_ = scheme_ == TileScheme::kBf16 && !blocking_.ahead && g_.a.col_stride == 1 &&
              g_.k % kStepDepth == 0 && row_bytes < kDirectStride && row_bytes > -kDirectStride;
  }

  mpcore_status run() {
    if (const auto s = allocate()) return s;
    const TileBlocking& b = blocking_;
    const int64_t rows = b.ahead ? b.ahead_rows : g_.m, cols = b.ahead ? b.ahead_cols : g_.n;
    for (int64_t j = 0; j < g_.n; j += cols)
      for (int64_t i = 0; i < g_.m; i += rows)
        for (int64_t k = 0; k < g_.k; k += b.ahead_depth) {
          const Part part{i,
                          j,
                          k,
                          std::min(rows, g_.m - i),
                          std::min(cols, g_.n - j),
                          std::min(b.ahead_depth, g_.k - k)};
          if (b.ahead)
            if (const auto s = pack_ahead(part)) return s;
          if (const auto s = multiply(part)) return s;
        }
    return special_.compute(session_);
  }

 private:
  // What is computed between two hand-overs to the threads.
  struct Part {
    int64_t i, j, k, m, n, depth;
  };

  struct Lane {
    char* b;        // a block of B, unless packed ahead
    char* a;        // a panel of A, likewise
    float* totals;  // of a task that adds up k blocks
    float* strip;   // 32 rows that finish() will read
  };

  // A panel of A as a kernel reads it.
  struct PanelA {
    const char* data;
    int64_t row, tile, step;
  };

  struct PanelsB {
    const char* data;
    int64_t panel;  // bytes
  };

  // --- Memory ------------------------------------------------------------------------------------

  mpcore_status allocate() {
    const TileBlocking& b = blocking_;
    const int64_t lanes = serial_ ? 1 : session_.num_threads();
    whole_totals_ = b.ahead && b.ahead_depth < g_.k;
    const bool task_totals = !whole_totals_ && b.depth < g_.k;
    block_bytes_ = b.ahead || packed_ != nullptr ? 0 : b.cols / kPanelLines * panel_size(b.depth);
    panel_bytes_ = b.ahead ? 0 : panel_size(b.depth);
    totals_bytes_ = task_totals ? b.rows * b.cols * int64_t{sizeof(float)} : 0;
    lane_bytes_ =
        block_bytes_ + panel_bytes_ + totals_bytes_ + kPanelLines * b.cols * int64_t{sizeof(float)};
    const int64_t panel = panel_size(b.ahead_depth);
    const int64_t ahead_a = b.ahead_rows / kPanelLines * panel;
    const int64_t ahead_b = packed_ != nullptr ? 0 : b.ahead_cols / kPanelLines * panel;
    const int64_t totals = whole_totals_ ? b.ahead_rows * b.ahead_cols * int64_t{sizeof(float)} : 0;
    const int64_t bytes = lanes * lane_bytes_ + ahead_a + ahead_b + totals + special_.bytes();
    lanes_ = static_cast<char*>(
        session_.workspace(bytes >= kHugePageUse ? std::max(bytes, kHugePage) : bytes));
    if (lanes_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    ahead_a_ = lanes_ + lanes * lane_bytes_;
    ahead_b_ = ahead_a_ + ahead_a;
    totals_ = reinterpret_cast<float*>(ahead_b_ + ahead_b);
    special_.use(ahead_b_ + ahead_b + totals, packed_ != nullptr ? packed_->special : nullptr);
    return MPCORE_OK;
  }

  Lane lane(int64_t index) const {
    char* const p = lanes_ + index * lane_bytes_;
    char* const totals = p + block_bytes_ + panel_bytes_;
    return {p, p + block_bytes_, reinterpret_cast<float*>(totals),
            reinterpret_cast<float*>(totals + totals_bytes_)};
  }

  // --- Packing -----------------------------------------------------------------------------------

  TileLines lines_of_a(int64_t i, int64_t k, int64_t count, int64_t depth) const {
    return {element(g_.a, i, k), g_.a.row_stride, g_.a.col_stride, count, depth};
  }

  void note_rows(int64_t i, int64_t k, int64_t count, int64_t depth) {
    for (int64_t row = i; row < i + count; ++row)
      if (tiles_.scan(scheme_, lines_of_a(row, k, 1, depth))) special_.add_row(row);
  }

  void pack_a(int64_t i, int64_t k, int64_t count, int64_t depth, char* to) {
    if (tiles_.pack(scheme_, TileOperand::kA, lines_of_a(i, k, count, depth), to, 0))
      note_rows(i, k, count, depth);
  }

  // Columns [j, j + cols) of B. All at once: the longer the runs that are read, the sooner the
  // CPU fetches ahead by itself.
  void pack_b(int64_t j, int64_t k, int64_t cols, int64_t depth, char* to) {
    const auto lines = [&](int64_t c, int64_t count) {
      return TileLines{element(g_.b, k, c), g_.b.col_stride, g_.b.row_stride, count, depth};
    };
    if (!tiles_.pack(scheme_, TileOperand::kB, lines(j, cols), to, panel_size(depth))) return;
    for (int64_t c = j; c < j + cols; c += kColumnBlock)
      if (tiles_.scan(scheme_, lines(c, std::min(kColumnBlock, j + cols - c))))
        special_.add_block(c);
  }

  mpcore_status pack_ahead(const Part& p) {
    const int64_t panel = panel_size(p.depth);
    const int64_t a_panels = ceil_div(p.m, kPanelLines);
    const int64_t b_blocks = packed_ != nullptr ? 0 : ceil_div(p.n, kPackCols);
    return for_each(a_panels + b_blocks, [&](int64_t t) {
      if (t < a_panels) {
        const int64_t i = t * kPanelLines;
        pack_a(p.i + i, p.k, std::min(kPanelLines, p.m - i), p.depth, ahead_a_ + t * panel);
      } else {
        const int64_t j = (t - a_panels) * kPackCols;
        pack_b(p.j + j, p.k, std::min(kPackCols, p.n - j), p.depth,
               ahead_b_ + j / kPanelLines * panel);
      }
    });
  }

  // --- Products ----------------------------------------------------------------------------------

  mpcore_status multiply(const Part& p) {
    const int64_t down = ceil_div(p.m, blocking_.rows), across = ceil_div(p.n, blocking_.cols);
    const int64_t count = down * across;
    std::atomic<int64_t> next{0};
    const auto work = [&](int64_t index) {
      TileState found;
      tiles_.acquire(&found);
      for (int64_t t; (t = next.fetch_add(1, std::memory_order_relaxed)) < count;)
        task(p, t % down * blocking_.rows, t / down * blocking_.cols, lane(index));
      tiles_.release(found);
    };
    if (serial_) return session_.serial(mode_, [&] { work(0); });
    return session_.parallel_for(std::min<int64_t>(session_.num_threads(), count), mode_, work);
  }

  void task(const Part& p, int64_t i0, int64_t j0, const Lane& lane) {
    const int64_t m = std::min(blocking_.rows, p.m - i0), n = std::min(blocking_.cols, p.n - j0);
    float* const totals =
        whole_totals_
            ? totals_ + (i0 / kPanelLines * whole_panels() + j0 / kPanelLines) * kTotalFloats
            : lane.totals;
    const int64_t totals_row =
        (whole_totals_ ? whole_panels() : blocking_.cols / kPanelLines) * kTotalFloats;
    // One lane alone goes through A in its first column of tasks.
    const bool look = j0 == 0 || session_.num_threads() > 1;
    TilePending pending;
    for (int64_t q = 0; q < p.depth; q += blocking_.depth) {
      const int64_t depth = std::min(blocking_.depth, p.depth - q);
      const bool first = p.k + q == 0, last = p.k + q + depth == g_.k;
      const PanelsB b = panels_b(p, j0, n, q, depth, lane);
      for (int64_t i = 0; i < m; i += kPanelLines) {
        const int64_t rows = std::min(kPanelLines, m - i);
        const PanelA a = panel_a(p, i0 + i, q, rows, depth, lane, look && i == 0);
        float* const tiles = totals + i / kPanelLines * totals_row;
        const int64_t next = std::min(kPanelLines, m - i - rows);
        TileLines ahead{};
        if (look && is_direct(next)) ahead = lines_of_a(p.i + i0 + i + rows, q, next, depth);
        const TileRun run{.a = a.data,
                          .a_row = a.row,
                          .a_tile = a.tile,
                          .a_step = a.step,
                          .one_tile = rows <= kPanelLines / 2,
                          .stream_half = panel_size(depth) > kHalfPanel,
                          .b = b.data,
                          .b_panel = b.panel,
                          .steps = ceil_div(depth, kStepDepth),
                          .panels = ceil_div(n, kPanelLines),
                          .totals = first ? nullptr : tiles,
                          .output = {},
                          .ahead = ahead};
        const bool special =
            last ? multiply_last(run, p.i + i0 + i, p.j + j0, rows, n, lane, pending)
                 : multiply_into(run, tiles, n, pending);
        if (special) note_rows(p.i + i0 + i + rows, q, next, depth);
      }
    }
    tiles_.drain(pending);
  }

  int64_t whole_panels() const { return blocking_.ahead_cols / kPanelLines; }

  int64_t panel_size(int64_t depth) const { return ceil_div(depth, kStepDepth) * step_bytes_; }

  // Columns j..j + n of the part, k from q on, packed here if nobody has done so.
  PanelsB panels_b(const Part& p, int64_t j, int64_t n, int64_t q, int64_t depth,
                   const Lane& lane) {
    const auto from = [&](const char* panels, int64_t column, int64_t k, int64_t panel) {
      return PanelsB{panels + column / kPanelLines * panel + k / kStepDepth * step_bytes_, panel};
    };
    if (packed_ != nullptr) return from(packed_->tiles, p.j + j, p.k + q, panel_size(g_.k));
    if (blocking_.ahead) return from(ahead_b_, j, q, panel_size(p.depth));
    pack_b(p.j + j, q, n, depth, lane.b);
    return {lane.b, panel_size(depth)};
  }

  bool is_direct(int64_t rows) const { return direct_ && rows % (kPanelLines / 2) == 0; }

  // Rows i..i + rows of the part, k from q on. The first panel of a task nobody has looked at.
  PanelA panel_a(const Part& p, int64_t i, int64_t q, int64_t rows, int64_t depth, const Lane& lane,
                 bool first) {
    const int64_t step = step_bytes_ / 2;
    if (blocking_.ahead) {
      const int64_t panel = panel_size(p.depth);
      return {ahead_a_ + i / kPanelLines * panel + q / kStepDepth * step, 64, panel / 2, step};
    }
    if (is_direct(rows)) {
      const TileLines lines = lines_of_a(p.i + i, q, rows, depth);
      if (first && tiles_.scan(scheme_, lines)) note_rows(p.i + i, q, rows, depth);
      const int64_t row = g_.a.row_stride * 2;
      return {static_cast<const char*>(lines.data), row, row * kPanelLines / 2, 2 * kStepDepth};
    }
    pack_a(p.i + i, q, rows, depth, lane.a);
    return {lane.a, 64, panel_size(depth) / 2, step};
  }

  bool multiply_into(TileRun run, float* tiles, int64_t n, TilePending& pending) {
    run.output = {.tiles = tiles,
                  .d = nullptr,
                  .d_row = 0,
                  .d_dtype = MPCORE_DTYPE_F32,
                  .bias = nullptr,
                  .rows = 0,
                  .cols = static_cast<int32_t>(n),
                  .stream = false};
    return tiles_.multiply(scheme_, run, pending);
  }

  // The last k block of rows i..i + rows and columns j..j + n of D.
  bool multiply_last(TileRun run, int64_t i, int64_t j, int64_t rows, int64_t n, const Lane& lane,
                     TilePending& pending) {
    const bool plain = plain_ && !special_.any(i, rows, j, n);
    const int64_t strip_row = blocking_.cols * int64_t{sizeof(float)};
    run.output = {.tiles = nullptr,
                  .d = plain ? element(g_.d, i, j) : lane.strip,
                  .d_row = plain ? g_.d.row_stride * dtype_size(g_.d.dtype) : strip_row,
                  .d_dtype = plain ? g_.d.dtype : MPCORE_DTYPE_F32,
                  .bias = plain && g_.bias != nullptr ? g_.bias + j : nullptr,
                  .rows = static_cast<int32_t>(rows),
                  .cols = static_cast<int32_t>(n),
                  .stream = plain && stream_ && n % kPanelLines == 0};
    if (!plain) tiles_.drain(pending);  // the strip is finished before it is used again
    const bool special = tiles_.multiply(scheme_, run, pending);
    if (plain) return special;
    tiles_.drain(pending);
    finish(i, j, rows, n, lane.strip);
    return special;
  }

  // Everything of a strip but what is special.
  void finish(int64_t i, int64_t j, int64_t rows, int64_t n, const float* strip) const {
    special_.for_ordinary(i, j, rows, n, [&](int64_t r, int64_t c, int64_t count, int64_t cols) {
      g_.finish(session_.kernels().gemm, i + r, j + c, count, cols, strip + r * blocking_.cols + c,
                blocking_.cols);
    });
  }

  // Shares tasks of packing among the threads, or runs them here when the product is small.
  template <class Task>
  mpcore_status for_each(int64_t n_tasks, const Task& task) {
    if (!serial_) return session_.parallel_for(n_tasks, mode_, task);
    return session_.serial(mode_, [&] {
      for (int64_t t = 0; t < n_tasks; ++t) task(t);
    });
  }

  Session& session_;
  const GemmProblem& g_;
  SpecialElements special_;
  const TileKernels& tiles_;
  const PackedTiles* const packed_;
  const TileScheme scheme_;
  const int64_t step_bytes_;
  const bool serial_;
  const TileBlocking blocking_;
  const FpMode mode_;
  bool plain_;   // D is the totals, a bias, and one rounding
  bool stream_;  // D goes past the caches
  bool direct_;  // A is multiplied where it stands
  bool whole_totals_ = false;
  int64_t lane_bytes_ = 0, block_bytes_ = 0, panel_bytes_ = 0, totals_bytes_ = 0;
  char *lanes_ = nullptr, *ahead_a_ = nullptr, *ahead_b_ = nullptr;
  float* totals_ = nullptr;  // of all that is packed ahead, if k is not packed at once
};

}  // namespace

mpcore_status tile_product(Session& session, const GemmProblem& problem) {
  if (problem.packed_b == nullptr) return TileProduct(session, problem, nullptr).run();
  const PackedTiles packed = packed_tiles(
      session, {problem.k, problem.n, problem.b.dtype, problem.precision}, problem.packed_b);
  GemmProblem with_panels = problem;
  with_panels.packed_b = packed.panels;
  return TileProduct(session, with_panels, &packed).run();
}

}  // namespace mpcore
