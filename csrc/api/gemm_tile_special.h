// The elements of a product that tiles cannot multiply: rows of A and blocks of columns of B that
// hold something subnormal, infinite, NaN, or out of the range of a split.
#ifndef MPCORE_API_GEMM_TILE_SPECIAL_H_
#define MPCORE_API_GEMM_TILE_SPECIAL_H_

#include <stdint.h>

#include <atomic>

#include "api/gemm_problem.h"
#include "api/gemm_tile_blocking.h"
#include "runtime/context.h"

namespace mpcore {

class SpecialElements {
 public:
  explicit SpecialElements(const GemmProblem& problem) : g_(problem) {}

  // Flags in memory of the caller, all clear; or with the blocks of columns that are known ahead.
  int64_t bytes() const { return g_.m + blocks(); }
  void use(char* flags, const char* known_blocks);

  void add_row(int64_t i) { set(rows_ + i); }
  void add_block(int64_t j) { set(blocks_ + j / kColumnBlock); }

  // Is one of these rows, or a block that one of these columns is in, special?
  bool any(int64_t i, int64_t rows, int64_t j, int64_t cols) const;

  // Calls body(i, j, rows, cols) for the ordinary parts of a piece of D; j begins a block.
  template <class Body>
  void for_ordinary(int64_t i, int64_t j, int64_t rows, int64_t cols, Body&& body) const {
    const char* const blocks = blocks_ + j / kColumnBlock;
    for (int64_t r = 0, r_end; r < rows; r = r_end) {
      r_end = run_end(rows_ + i, r, rows);
      if (rows_[i + r]) continue;
      for (int64_t c = 0, c_end; c < cols; c = c_end) {
        c_end = run_end(blocks, c / kColumnBlock, ceil_div(cols, kColumnBlock)) * kColumnBlock;
        if (!blocks[c / kColumnBlock]) body(r, c, r_end - r, (c_end < cols ? c_end : cols) - c);
      }
    }
  }

  // Computes all special elements of D by the panel path.
  mpcore_status compute(Session& session) const;

 private:
  int64_t blocks() const { return ceil_div(g_.n, kColumnBlock); }
  void set(char* flag) {
    std::atomic_ref<char>(*flag).store(1, std::memory_order_relaxed);
    found_.store(true, std::memory_order_relaxed);
  }

  // Where the flags that are like the one at `from` end.
  static int64_t run_end(const char* flags, int64_t from, int64_t end) {
    int64_t i = from;
    while (i < end && flags[i] == flags[from]) ++i;
    return i;
  }

  const GemmProblem& g_;
  char *rows_ = nullptr, *blocks_ = nullptr;
  std::atomic<bool> found_{false};
};

}  // namespace mpcore

#endif  // MPCORE_API_GEMM_TILE_SPECIAL_H_
