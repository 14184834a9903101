// A product is cut into super blocks (bounded workspace), each packed once and computed as a grid
// of tasks; a task walks its k blocks so that a panel of B stays in L1 and a block of A in L2. What
// a task computes depends on its place alone, so the bits do not depend on the number of threads.
#include "api/gemm_panels.h"

#include <algorithm>
#include <cstdint>

#include "api/check.h"

namespace mpcore {
namespace {

// Workspace is bounded by one super block: 2 * kSuper * kSuperK + kSuper^2 floats, 48 MiB.
constexpr int64_t kSuper = 2048, kSuperK = 2048;
constexpr int64_t kBlockK = 256;    // a panel of B: 256 x 32 floats, 32 KiB of L1
constexpr int64_t kTaskRows = 336;  // a block of A: 336 x 256 floats, 344 KiB of L2
constexpr int64_t kTaskCols = 512;  // halved down to kSquareColumns where tasks are few
constexpr int64_t kSerialFlops = int64_t{1} << 18;  // below, a hand-over costs more than it saves

constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

class PanelProduct {
 public:
  PanelProduct(Session& session, const GemmProblem& problem, const GemmRows& rows)
      : session_(session),
        g_(problem),
        rows_(rows),
        kernels_(session.kernels().gemm),
        order_(problem.a.dtype == MPCORE_DTYPE_BF16 ? kernels_.pairs : kernels_.chain),
        mode_(problem.a.dtype == MPCORE_DTYPE_BF16 ? FpMode::kFlushResults : FpMode::kIeee) {}

  mpcore_status run() {
    if (rows_.count == 0 || g_.n == 0) return MPCORE_OK;
    if (const auto s = allocate()) return s;
    for (int64_t j = 0; j < g_.n; j += kSuper)
      for (int64_t i = 0; i < rows_.count; i += kSuper)
        if (const auto s = super_block(i, j)) return s;
    return MPCORE_OK;
  }

 private:
  mpcore_status allocate() {
    const int64_t m = round_up(std::min(rows_.count, kSuper), order_.mr);
    const int64_t n = round_up(std::min(g_.n, kSuper), order_.nr);
    const int64_t k = round_up(std::min(g_.k, kSuperK), order_.k_step);
    const int64_t totals = g_.k > kBlockK ? m * n : 0;  // else a tile is finished at once
    const int64_t floats = m * k + k * n + totals;
    packed_a_ = static_cast<float*>(session_.workspace(floats * int64_t{sizeof(float)}));
    if (packed_a_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    packed_b_ = packed_a_ + m * k;
    total_ = packed_b_ + k * n;
    return MPCORE_OK;
  }

  // D[i0 : i0 + kSuper, j0 : j0 + kSuper].
  mpcore_status super_block(int64_t i0, int64_t j0) {
    const int64_t m = std::min(kSuper, rows_.count - i0), n = std::min(kSuper, g_.n - j0);
    int64_t p0 = 0;
    do {  // once for k == 0, so that the epilogue runs
      const int64_t k = std::min(kSuperK, g_.k - p0);
      if (k > 0)
        if (const auto s = pack(i0, j0, p0, m, n, k)) return s;
      if (const auto s = multiply(i0, j0, p0, m, n, k)) return s;
      p0 += kSuperK;
    } while (p0 < g_.k);
    return MPCORE_OK;
  }

  mpcore_status pack(int64_t i0, int64_t j0, int64_t p0, int64_t m, int64_t n, int64_t k) {
    const int64_t padded = round_up(k, order_.k_step);
    const int64_t a_panels = ceil_div(m, order_.mr), b_panels = ceil_div(n, order_.nr);
    const auto pack_panel = [&](int64_t panel) {
      if (panel < a_panels) {
        const int64_t i = panel * order_.mr;
        pack_rows(i0 + i, p0, std::min<int64_t>(order_.mr, m - i), k, padded,
                  packed_a_ + i * padded);
      } else {
        const int64_t j = (panel - a_panels) * order_.nr;
        const int64_t cols = std::min<int64_t>(order_.nr, n - j);
        clear_edges(packed_b_ + j * padded, cols, order_.nr, k, padded);
        kernels_.pack(element(g_.b, p0, j0 + j), g_.b.dtype, g_.b.col_stride, g_.b.row_stride, cols,
                      k, order_.nr, packed_b_ + j * padded);
      }
    };
    return for_each(a_panels + b_panels, m, n, k, pack_panel);
  }

  // Rows i..i + count of the chosen ones; a run of neighbours is packed at once.
  void pack_rows(int64_t i, int64_t p0, int64_t count, int64_t k, int64_t padded, float* panel) {
    clear_edges(panel, count, order_.mr, k, padded);
    for (int64_t first = 0, run; first < count; first += run) {
      for (run = 1; first + run < count && follows(i + first + run);) ++run;
      kernels_.pack(element(g_.a, rows_[i + first], p0), g_.a.dtype, g_.a.row_stride,
                    g_.a.col_stride, run, k, order_.mr, panel + first);
    }
  }
  // Zeros where a panel has no lines, or no k.
  static void clear_edges(float* panel, int64_t count, int64_t width, int64_t k, int64_t padded) {
    if (count < width) std::fill_n(panel, k * width, 0.0f);
    std::fill_n(panel + k * width, (padded - k) * width, 0.0f);
  }
  bool follows(int64_t i) const { return rows_[i] == rows_[i - 1] + 1; }

  // The grid of tasks over a packed super block.
  mpcore_status multiply(int64_t i0, int64_t j0, int64_t p0, int64_t m, int64_t n, int64_t k) {
    const int64_t rows = round_up(std::min(kTaskRows, m), order_.mr);
    const int64_t down = ceil_div(m, rows);
    int64_t cols = kTaskCols;
    while (cols > kSquareColumns && down * ceil_div(n, cols) < 4 * session_.num_threads())
      cols /= 2;
    const int64_t across = ceil_div(n, cols);
    const auto task = [&](int64_t t) {
      const int64_t i = t % down * rows, j = t / down * cols;
      multiply_block(i0, j0, p0, i, std::min(rows, m - i), j, std::min(cols, n - j), k,
                     round_up(n, order_.nr));
    };
    return for_each(down * across, m, n, k, task);
  }

  void multiply_block(int64_t i0, int64_t j0, int64_t p0, int64_t i_begin, int64_t m,
                      int64_t j_begin, int64_t n, int64_t k, int64_t total_cols) {
    const int64_t padded = round_up(k, order_.k_step);
    const bool last_super = p0 + kSuperK >= g_.k;
    alignas(64) float tile[kMaxGemmTile];
    int64_t q0 = 0;
    do {
      const int64_t q = std::min(kBlockK, padded - q0);
      const bool last = last_super && q0 + kBlockK >= padded;
      for (int64_t j = j_begin; j < j_begin + n; j += order_.nr) {
        for (int64_t i = i_begin; i < i_begin + m; i += order_.mr) {
          const int64_t rows = std::min<int64_t>(order_.mr, i_begin + m - i);
          float* total = g_.k > kBlockK ? total_ + i * total_cols + j * order_.mr : tile;
          add_tile(q, rows, packed_a_ + i * padded + q0 * order_.mr,
                   packed_b_ + j * padded + q0 * order_.nr, total, p0 + q0 > 0);
          if (last)
            finish(i0 + i, j0 + j, rows, std::min<int64_t>(order_.nr, j_begin + n - j), total);
        }
      }
      q0 += kBlockK;
    } while (q0 < padded);
  }

  void add_tile(int64_t k, int64_t rows, const float* a, const float* b, float* total,
                bool load_total) const {
    if (k == 0) {
      std::fill(total, total + rows * order_.nr, 0.0f);
    } else {
      order_.tile(k, static_cast<int32_t>(rows), a, b, total, load_total);
    }
  }

  void finish(int64_t i, int64_t j, int64_t rows, int64_t cols, const float* total) const {
    for (int64_t first = 0, run; first < rows; first += run) {
      for (run = 1; first + run < rows && follows(i + first + run);) ++run;
      g_.finish(kernels_, rows_[i + first], j, run, cols, total + first * order_.nr, order_.nr);
    }
  }

  // Shares n_tasks among the threads, or runs them here when the block is small.
  template <class Task>
  mpcore_status for_each(int64_t n_tasks, int64_t m, int64_t n, int64_t k, const Task& task) {
    if (m * n < kSerialFlops && m * n * k < kSerialFlops)
      return session_.serial(mode_, [&] {
        for (int64_t t = 0; t < n_tasks; ++t) task(t);
      });
    return session_.parallel_for(n_tasks, mode_, task);
  }

  Session& session_;
  const GemmProblem& g_;
  const GemmRows& rows_;
  const GemmKernels& kernels_;
  const GemmOrder& order_;
  const FpMode mode_;  // packing, the conversions of which are exact, does not notice it
  float *packed_a_ = nullptr, *packed_b_ = nullptr, *total_ = nullptr;
};

}  // namespace

mpcore_status panel_product(Session& session, const GemmProblem& problem, const GemmRows& rows) {
  return PanelProduct(session, problem, rows).run();
}

}  // namespace mpcore
