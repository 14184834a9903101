// What the functions of the nn column share: checks of matrices, and the split into blocks of rows.
#ifndef MPCORE_API_NN_ARGS_H_
#define MPCORE_API_NN_ARGS_H_

#include <stdint.h>

#include <algorithm>
#include <initializer_list>

#include "api/check.h"
#include "mpcore/base.h"
#include "runtime/context.h"

namespace mpcore {

// Elements per task: some microseconds to tens of them, depending on the function.
constexpr int64_t kTaskElements = int64_t{1} << 15;

// Leaves of a column sum, of kColumnSumRows rows each, that are added up in one go.
constexpr int64_t kGroupLeaves = 16;
// Columns per task are a multiple of this: whole cache lines of any dtype.
constexpr int64_t kColumnStep = 64;

// Both sizes, and their product.
mpcore_status check_shape(const char* function, int64_t rows, int64_t cols, int64_t min_cols);

// Each output is apart from each input and from the other outputs; the first one may be `shared`.
mpcore_status check_all_apart(const char* function, std::initializer_list<ByteRange> outputs,
                              std::initializer_list<ByteRange> inputs, const void* shared);

// Runs body(first row, rows) over blocks of whole rows.
template <class Body>
mpcore_status for_row_blocks(Session& session, int64_t rows, int64_t cols, Body&& body) {
  const int64_t block = std::max<int64_t>(1, kTaskElements / cols);
  return session.parallel_for(ceil_div(rows, block), FpMode::kIeee, [&](int64_t i) {
    body(i * block, std::min(block, rows - i * block));
  });
}

// Sums of columns from those of their leaves, of which each has `stride` values: leaves in
// increasing order, kGroupLeaves of them in double, the groups in double, rounded once.
mpcore_status add_leaves(Session& session, const float* leaf, int64_t leaves, int64_t stride,
                         int64_t cols, float* out);

}  // namespace mpcore

#endif  // MPCORE_API_NN_ARGS_H_
