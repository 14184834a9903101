// Which of three ways a product takes depends on shapes and strides; each gives the same bits.
//
//   thin    few rows, rows of B contiguous: B is read once, where it is
//   lean    one block of rows: each task packs the panel of B it is about to use
//   shared  else: a super block (bounded workspace) is packed once, for a grid of tasks
//
// In the last two a task walks its k blocks, so that the block of A and the panel of B stay in L2.
// What a task computes depends on its place alone, so the bits do not depend on the number of
// threads.
#include "api/gemm_panels.h"

#include <algorithm>
#include <cstdint>

#include "api/check.h"

namespace mpcore {
namespace {

// Workspace is bounded by a super block: 2 * kSuper * kSuperK + kSuper^2 floats, 48 MiB; thin
// products take as much as A and D in fp32.
constexpr int64_t kSuper = 2048, kSuperK = 2048;
constexpr int64_t kCacheLine = 64;
constexpr int64_t kTaskRows = 168;       // a block of A: 168 x 512 floats, 344 KiB of L2
constexpr int64_t kTaskCols = 512;       // halved down to kSquareColumns where tasks are few
constexpr int64_t kThinRows = 16;        // B is streamed up to here
constexpr int64_t kThinDepth = 32;       // rows of B that are streamed side by side
constexpr int64_t kThinCols = 4096;      // of a task
constexpr int64_t kPanelsPerTask = 8;    // to pack: whole cache lines of a B with contiguous rows
constexpr double kSerialWork = 1 << 18;  // below, a hand-over costs more than it saves

constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

// The same number of blocks with lengths as equal as multiples of `step` can be.
constexpr int64_t balanced(int64_t length, int64_t longest, int64_t step) {
  return length == 0 ? step : round_up(ceil_div(length, ceil_div(length, longest)), step);
}

// Part of a product, in rows, columns, and k.
struct Range {
  int64_t begin, size;
};

class PanelProduct {
 public:
  PanelProduct(const GemmKernels& kernels, const GemmProblem& problem, const GemmRows& rows,
               int32_t num_threads)
      : g_(problem),
        rows_(rows),
        kernels_(kernels),
        order_(gemm_order(kernels, problem.a.dtype)),
        num_threads_(num_threads),
        thin_cols_(!is_thin()               ? 0
                   : g_.packed_b != nullptr ? g_.n
                                            : g_.n / order_.nr * order_.nr) {
    const int64_t m = round_up(std::min(rows_.count, kSuper), order_.mr);
    const int64_t n = round_up(std::min(g_.n - thin_cols_, kSuper), order_.nr);
    const int64_t k = round_up(std::min(g_.k, kSuperK), order_.k_step);
    const bool blocks = n > 0;  // or all of it is thin
    size_ = {.a = blocks ? m * k : 0,
             .b = is_lean() ? most_tasks(n) * order_.k_block * order_.nr : k * n,
             .total = g_.k > order_.k_block ? m * n : 0,
             .thin_a = thin_cols_ > 0 ? rows_.count * g_.k : 0,
             .thin_total = rows_.count * thin_stride()};
  }

  int64_t workspace_bytes() const {
    return (size_.a + size_.b + size_.total + size_.thin_a + size_.thin_total) *
           int64_t{sizeof(float)};
  }

  // for_each(n, body) calls body(i) for i in [0, n) on any threads and returns a status.
  template <class ForEach>
  mpcore_status run(void* workspace, const ForEach& for_each) {
    packed_a_ = static_cast<float*>(workspace);
    packed_b_ = packed_a_ + size_.a;
    total_ = packed_b_ + size_.b;
    thin_a_ = total_ + size_.total;
    thin_total_ = thin_a_ + size_.thin_a;
    if (thin_cols_ > 0)
      if (const auto s = run_thin(for_each)) return s;
    for (int64_t j = thin_cols_; j < g_.n; j += kSuper)
      for (int64_t i = 0; i < rows_.count; i += kSuper)
        if (const auto s = super_block({i, std::min(kSuper, rows_.count - i)},
                                       {j, std::min(kSuper, g_.n - j)}, for_each))
          return s;
    return MPCORE_OK;
  }

 private:
  bool is_thin() const {
    return rows_.count <= kThinRows && g_.k > 0 && (g_.packed_b != nullptr || g_.b.col_stride == 1);
  }
  bool is_lean() const { return rows_.count <= kTaskRows; }
  // Panels of B that were packed ahead hold its own dtype: only float32 ones are ready for use.
  bool is_ready() const { return g_.packed_b != nullptr && g_.b.dtype == MPCORE_DTYPE_F32; }
  int64_t thin_rows() const { return balanced(rows_.count, order_.mr, 1); }
  int64_t thin_stride() const { return round_up(thin_cols_, order_.nr); }
  const void* packed_panel(int64_t j, int64_t p) const {
    return static_cast<const char*>(g_.packed_b) +
           (j * g_.k + p * order_.nr) * dtype_size(g_.b.dtype);
  }

  // --- Thin --------------------------------------------------------------------------------------

  template <class ForEach>
  mpcore_status run_thin(const ForEach& for_each) {
    for (int64_t i = 0; i < rows_.count; i += thin_rows()) {
      const int64_t rows = std::min<int64_t>(thin_rows(), rows_.count - i);
      pack_a(i, rows, {0, g_.k}, g_.k, static_cast<int32_t>(rows), thin_a_ + i * g_.k);
    }
    const int64_t wanted = ceil_div(thin_cols_, 4 * num_threads_);
    const int64_t unit = std::max<int64_t>(kSquareColumns, order_.nr);
    const int64_t cols = std::clamp(round_up(wanted, unit), unit, kThinCols);
    return for_each(ceil_div(thin_cols_, cols), [&](int64_t t) {
      thin_task({t * cols, std::min(cols, thin_cols_ - t * cols)});
    });
  }

  void thin_task(const Range& cols) {
    if (g_.packed_b != nullptr) {
      for (int64_t j = cols.begin; j < cols.begin + cols.size; j += order_.nr)
        multiply_thin({j, order_.nr}, {0, g_.k}, packed_panel(j, 0), order_.nr);
    } else {
      for (int64_t p = 0; p < g_.k; p += kThinDepth)
        multiply_thin(cols, {p, std::min(kThinDepth, g_.k - p)}, element(g_.b, p, cols.begin),
                      g_.b.row_stride);
    }
    finish(0, cols.begin, rows_.count, cols.size, thin_total_ + cols.begin, thin_stride());
  }

  // All rows times a part of B.
  void multiply_thin(const Range& cols, const Range& depth, const void* b, int64_t b_stride) {
    for (int64_t i = 0; i < rows_.count; i += thin_rows()) {
      const int64_t rows = std::min<int64_t>(thin_rows(), rows_.count - i);
      order_.thin({.k = depth.size,
                   .rows = static_cast<int32_t>(rows),
                   .a = thin_a_ + i * g_.k + depth.begin * rows,
                   .b = b,
                   .dtype = g_.b.dtype,
                   .b_stride = b_stride,
                   .cols = cols.size,
                   .total = thin_total_ + i * thin_stride() + cols.begin,
                   .total_stride = thin_stride(),
                   .load_total = depth.begin > 0});
    }
  }

  // --- Blocks ------------------------------------------------------------------------------------

  template <class ForEach>
  mpcore_status super_block(const Range& rows, const Range& cols, const ForEach& for_each) {
    int64_t p = 0;
    do {  // once for k == 0, so that the epilogue runs
      const Range depth{p, std::min(kSuperK, g_.k - p)};
      if (depth.size > 0)
        if (const auto s = pack(rows, cols, depth, for_each)) return s;
      if (const auto s = multiply(rows, cols, depth, for_each)) return s;
      p += kSuperK;
    } while (p < g_.k);
    return MPCORE_OK;
  }

  template <class ForEach>
  mpcore_status pack(const Range& rows, const Range& cols, const Range& depth,
                     const ForEach& for_each) {
    const int64_t padded = round_up(depth.size, order_.k_step);
    const int64_t a_lines = kPanelsPerTask * order_.mr, b_lines = kPanelsPerTask * order_.nr;
    const int64_t a_tasks = ceil_div(rows.size, a_lines);
    const int64_t b_tasks = is_lean() || is_ready() ? 0 : ceil_div(cols.size, b_lines);
    return for_each(a_tasks + b_tasks, [&](int64_t task) {
      if (task < a_tasks) {
        const int64_t i = task * a_lines;
        pack_a(rows.begin + i, std::min(a_lines, rows.size - i), depth, padded, order_.mr,
               packed_a_ + i * padded);
      } else {
        const int64_t j = (task - a_tasks) * b_lines;
        pack_b(cols.begin + j, std::min(b_lines, cols.size - j), depth, padded,
               packed_b_ + j * padded);
      }
    });
  }

  void pack_a(int64_t i, int64_t count, const Range& depth, int64_t padded, int32_t width,
              float* panels) const {
    kernels_.pack({.src = element(g_.a, rows_.index != nullptr ? 0 : i, depth.begin),
                   .dtype = g_.a.dtype,
                   .lines = rows_.index != nullptr ? rows_.index + i : nullptr,
                   .line_stride = g_.a.row_stride,
                   .k_stride = g_.a.col_stride,
                   .count = count,
                   .k = depth.size,
                   .k_padded = padded,
                   .width = width,
                   .panels = panels});
  }

  void pack_b(int64_t j, int64_t count, const Range& depth, int64_t padded, float* panels) const {
    GemmPack pack{.src = nullptr,
                  .dtype = g_.b.dtype,
                  .lines = nullptr,
                  .line_stride = 1,
                  .k_stride = order_.nr,
                  .count = order_.nr,
                  .k = depth.size,
                  .k_padded = padded,
                  .width = order_.nr,
                  .panels = panels};
    if (g_.packed_b != nullptr) {
      for (int64_t panel = 0; panel < count; panel += order_.nr) {
        pack.src = packed_panel(j + panel, depth.begin);
        pack.panels = panels + panel * padded;
        kernels_.pack(pack);
      }
    } else {
      pack.src = element(g_.b, depth.begin, j);
      pack.line_stride = g_.b.col_stride;
      pack.k_stride = g_.b.row_stride;
      pack.count = count;
      kernels_.pack(pack);
    }
  }

  int64_t task_rows(int64_t m) const { return balanced(m, kTaskRows, order_.mr); }
  int64_t task_cols(int64_t m, int64_t n) const {
    const int64_t down = ceil_div(m, task_rows(m));
    int64_t cols = kTaskCols;
    while (cols > kSquareColumns && down * ceil_div(n, cols) < 4 * num_threads_) cols /= 2;
    return cols;
  }
  // Across n columns of one block of rows: the loop above stops below twice what it aims at.
  int64_t most_tasks(int64_t n) const {
    return std::min<int64_t>(ceil_div(n, kSquareColumns), 8 * num_threads_);
  }

  // The grid of tasks over a super block.
  template <class ForEach>
  mpcore_status multiply(const Range& rows, const Range& cols, const Range& depth,
                         const ForEach& for_each) {
    const int64_t height = task_rows(rows.size), width = task_cols(rows.size, cols.size);
    const int64_t down = ceil_div(rows.size, height), across = ceil_div(cols.size, width);
    return for_each(down * across, [&](int64_t t) {
      const int64_t i = t % down * height, j = t / down * width;
      multiply_block(rows, cols, depth, {i, std::min(height, rows.size - i)},
                     {j, std::min(width, cols.size - j)},
                     packed_b_ + t / down * order_.k_block * order_.nr);
    });
  }

  // `down` and `along` are the task's part of the super block; `own` is its place for a panel of B.
  void multiply_block(const Range& rows, const Range& cols, const Range& depth, const Range& down,
                      const Range& along, float* own) {
    const int64_t padded = round_up(depth.size, order_.k_step);
    const int64_t block = balanced(padded, order_.k_block, order_.k_step);
    const bool one_block = g_.k <= order_.k_block;  // then a tile is finished at once
    const int64_t total_cols = round_up(cols.size, order_.nr);
    alignas(64) float tile[kMaxGemmTile];
    int64_t q = 0;
    do {
      const int64_t k = std::min(block, padded - q);
      const bool last = depth.begin + depth.size == g_.k && q + block >= padded;
      for (int64_t j = along.begin; j < along.begin + along.size; j += order_.nr) {
        const int64_t count = std::min<int64_t>(order_.nr, along.begin + along.size - j);
        const float* b = panel_of_b(cols.begin, {j, count}, depth, {q, k}, own);
        // The panel that follows in packed memory comes in by parts, with the first tiles.
        const float* next = b + (is_ready() ? g_.k : is_lean() ? 0 : padded) * order_.nr;
        int64_t parts = order_.nr * int64_t{sizeof(float)} / kCacheLine;
        for (int64_t i = down.begin; i < down.begin + down.size; i += order_.mr) {
          const int64_t height = std::min<int64_t>(order_.mr, down.begin + down.size - i);
          float* total = one_block ? tile : total_ + i * total_cols + j * order_.mr;
          add_tile(k, height, packed_a_ + i * padded + q * order_.mr, b, total, depth.begin + q > 0,
                   parts > 0 ? next : b);
          next += k * kCacheLine / int64_t{sizeof(float)};
          --parts;
          if (last) finish(rows.begin + i, cols.begin + j, height, count, total, order_.nr);
        }
      }
      q += block;
    } while (q < padded);
  }

  // The part `along` k of a super block's panel that begins at column panel.begin.
  const float* panel_of_b(int64_t j0, const Range& panel, const Range& depth, const Range& along,
                          float* own) const {
    const int64_t p = depth.begin + along.begin;
    if (is_ready()) return static_cast<const float*>(packed_panel(j0 + panel.begin, p));
    if (!is_lean())
      return packed_b_ + panel.begin * round_up(depth.size, order_.k_step) +
             along.begin * order_.nr;
    const int64_t k = std::min(along.size, depth.size - along.begin);
    if (k > 0) pack_b(j0 + panel.begin, panel.size, {p, k}, along.size, own);
    return own;
  }

  void add_tile(int64_t k, int64_t rows, const float* a, const float* b, float* total,
                bool load_total, const float* next) const {
    if (k == 0) {
      std::fill(total, total + rows * order_.nr, 0.0f);
    } else {
      order_.tile(k, static_cast<int32_t>(rows), a, b, total, load_total, next);
    }
  }

  // Rows i..i + count of the chosen ones; neighbours are finished together.
  void finish(int64_t i, int64_t j, int64_t count, int64_t cols, const float* total,
              int64_t stride) const {
    for (int64_t first = 0, run; first < count; first += run) {
      for (run = 1; first + run < count && follows(i + first + run);) ++run;
      g_.finish(kernels_, rows_[i + first], j, run, cols, total + first * stride, stride);
    }
  }
  bool follows(int64_t i) const { return rows_[i] == rows_[i - 1] + 1; }

  const GemmProblem& g_;
  const GemmRows& rows_;
  const GemmKernels& kernels_;
  const GemmOrder& order_;
  const int32_t num_threads_;
  const int64_t thin_cols_;  // the first columns, which take the thin way
  struct {
    int64_t a, b, total, thin_a, thin_total;
  } size_;  // of the arrays below, in floats
  float *packed_a_ = nullptr, *packed_b_ = nullptr, *total_ = nullptr;
  float *thin_a_ = nullptr, *thin_total_ = nullptr;
};

}  // namespace

mpcore_status panel_product(Session& session, const GemmProblem& problem, const GemmRows& rows) {
  if (rows.count == 0 || problem.n == 0) return MPCORE_OK;
  PanelProduct product(session.kernels().gemm, problem, rows, session.num_threads());
  void* const workspace = session.workspace(product.workspace_bytes());
  if (workspace == nullptr) return MPCORE_OUT_OF_MEMORY;
  const FpMode mode = gemm_mode(problem.a.dtype);
  const bool shared =
      multiplications(rows.count, problem.n, std::max<int64_t>(problem.k, 1)) >= kSerialWork;
  return product.run(workspace, [&](int64_t n, const auto& task) {
    if (shared) return session.parallel_for(n, mode, task);
    return session.serial(mode, [&] {
      for (int64_t i = 0; i < n; ++i) task(i);
    });
  });
}

int64_t panel_workspace_bytes(const GemmKernels& kernels, const GemmProblem& problem) {
  const GemmRows rows{problem.m};
  return round_up(PanelProduct(kernels, problem, rows, 1).workspace_bytes(), 64);
}

void panel_product_here(const GemmKernels& kernels, const GemmProblem& problem, void* workspace) {
  const GemmRows rows{problem.m};
  PanelProduct(kernels, problem, rows, 1).run(workspace, [](int64_t n, const auto& task) {
    for (int64_t i = 0; i < n; ++i) task(i);
    return mpcore_status{MPCORE_OK};
  });
}

}  // namespace mpcore
