// The nn column: argument checks and the split over threads.
#include "mpcore/nn.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "api/check.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Elements per task: some microseconds to tens of them, depending on the function.
constexpr int64_t kTaskElements = int64_t{1} << 15;

// Rows of a column sum that one task adds up. Fixed, so that the order of a sum depends on the
// number of rows alone.
constexpr int64_t kGroupRows = 16 * kColumnSumRows;
// Columns per task are a multiple of this: whole cache lines of any dtype.
constexpr int64_t kColumnStep = 64;

// Both sizes, and their product.
mpcore_status check_shape(const char* function, int64_t rows, int64_t cols, int64_t min_cols) {
  if (const auto s = check_size(function, "rows", rows)) return s;
  if (const auto s = check_size(function, "cols", cols)) return s;
  if (cols < min_cols)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: cols must be >= %" PRId64 " (got cols=%" PRId64 ")",
                function, min_cols, cols);
  int64_t size;
  if (__builtin_mul_overflow(rows, cols, &size) || size > INT64_MAX / 8)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: rows * cols must fit in memory (got rows=%" PRId64 ", cols=%" PRId64 ")",
                function, rows, cols);
  return MPCORE_OK;
}

// Runs body(first row, rows) over blocks of whole rows.
template <class Body>
mpcore_status for_row_blocks(Session& session, int64_t rows, int64_t cols, Body&& body) {
  const int64_t block = std::max<int64_t>(1, kTaskElements / cols);
  return session.parallel_for(ceil_div(rows, block), FpMode::kIeee, [&](int64_t i) {
    body(i * block, std::min(block, rows - i * block));
  });
}

mpcore_status activation_forward(mpcore_context* ctx, mpcore_activation activation, int64_t n,
                                 const void* x, void* y, mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_activation_forward";
  if (const auto s = check_activation(kName, activation)) return s;
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_size(kName, "n", n)) return s;
  if (const auto s = check_pointer(kName, "x", x, n)) return s;
  if (const auto s = check_pointer(kName, "y", y, n)) return s;
  const int64_t size = dtype_size(dtype);
  if (const auto s = check_apart(kName, {"y", y, n * size}, {"x", x, n * size}, true)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  return session.parallel_for(ceil_div(n, kTaskElements), FpMode::kIeee, [&](int64_t i) {
    const int64_t begin = i * kTaskElements, count = std::min(kTaskElements, n - begin);
    kernels.activation(activation, advance(x, begin * size), advance(y, begin * size), dtype,
                       count);
  });
}

mpcore_status dense_backward(mpcore_context* ctx, mpcore_activation activation, int64_t rows,
                             int64_t cols, const void* y, const void* dy, void* dz, float* db,
                             mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_dense_backward";
  if (const auto s = check_activation(kName, activation)) return s;
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_shape(kName, rows, cols, 0)) return s;
  const int64_t n = rows * cols, size = dtype_size(dtype);
  if (activation != MPCORE_ACTIVATION_LINEAR)
    if (const auto s = check_pointer(kName, "y", y, n)) return s;
  if (const auto s = check_pointer(kName, "dy", dy, n)) return s;
  const ByteRange out{"dz", dz, n * size}, sums{"db", db, cols * int64_t{sizeof(float)}};
  if (const auto s = check_apart(kName, out, {"y", y, n * size})) return s;
  if (const auto s = check_apart(kName, out, {"dy", dy, n * size}, true)) return s;
  if (const auto s = check_apart(kName, sums, {"y", y, n * size})) return s;
  if (const auto s = check_apart(kName, sums, {"dy", dy, n * size})) return s;
  if (const auto s = check_apart(kName, sums, out)) return s;
  if (cols == 0 || (dz == nullptr && db == nullptr)) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  // Without rows there is still one group, whose sums are zero.
  const int64_t groups = std::max<int64_t>(1, ceil_div(rows, kGroupRows));
  const int64_t wanted = kTaskElements / std::clamp<int64_t>(rows, 1, kGroupRows);
  const int64_t width = std::max<int64_t>(1, wanted / kColumnStep) * kColumnStep;
  const int64_t strips = ceil_div(cols, width);
  double* sum = nullptr;  // groups x cols
  if (db != nullptr) {
    int64_t bytes;
    if (__builtin_mul_overflow(groups, cols * int64_t{sizeof(double)}, &bytes))
      return fail(MPCORE_OUT_OF_MEMORY, "%s: out of memory", kName);
    sum = static_cast<double*>(session.workspace(bytes));
    if (sum == nullptr) return MPCORE_OUT_OF_MEMORY;
  }
  const auto status = session.parallel_for(groups * strips, FpMode::kIeee, [&](int64_t i) {
    const int64_t group = i / strips, left = i % strips * width;
    const int64_t top = group * kGroupRows, at = (top * cols + left) * size;
    const int64_t columns = std::min(width, cols - left);
    double* const part = sum == nullptr ? nullptr : sum + group * cols + left;
    if (part != nullptr) std::fill_n(part, columns, 0.0);
    kernels.dense_backward(activation, std::min(kGroupRows, rows - top), columns, cols,
                           advance(y, at), advance(dy, at), advance(dz, at), part, dtype);
  });
  if (status != MPCORE_OK || db == nullptr) return status;
  // Groups in increasing order, in double, rounded once.
  return session.serial(FpMode::kIeee, [&] {
    for (int64_t g = 1; g < groups; ++g)
      for (int64_t j = 0; j < cols; ++j) sum[j] += sum[g * cols + j];
    for (int64_t j = 0; j < cols; ++j) {
      const float rounded = static_cast<float>(sum[j]);
      std::memcpy(db + j, &rounded, sizeof(rounded));
    }
  });
}

mpcore_status softmax(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x, void* y,
                      mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_softmax";
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_shape(kName, rows, cols, 1)) return s;
  const int64_t n = rows * cols, size = dtype_size(dtype);
  if (const auto s = check_pointer(kName, "x", x, n)) return s;
  if (const auto s = check_pointer(kName, "y", y, n)) return s;
  if (const auto s = check_apart(kName, {"y", y, n * size}, {"x", x, n * size}, true)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  return for_row_blocks(session, rows, cols, [&](int64_t first, int64_t count) {
    const int64_t at = first * cols * size;
    kernels.softmax(count, cols, advance(x, at), advance(y, at), dtype);
  });
}

mpcore_status softmax_backward(mpcore_context* ctx, int64_t rows, int64_t cols, const void* y,
                               const void* dy, void* dx, mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_softmax_backward";
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_shape(kName, rows, cols, 1)) return s;
  const int64_t n = rows * cols, size = dtype_size(dtype);
  if (const auto s = check_pointer(kName, "y", y, n)) return s;
  if (const auto s = check_pointer(kName, "dy", dy, n)) return s;
  if (const auto s = check_pointer(kName, "dx", dx, n)) return s;
  const ByteRange out{"dx", dx, n * size};
  if (const auto s = check_apart(kName, out, {"y", y, n * size})) return s;
  if (const auto s = check_apart(kName, out, {"dy", dy, n * size}, true)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  return for_row_blocks(session, rows, cols, [&](int64_t first, int64_t count) {
    const int64_t at = first * cols * size;
    kernels.softmax_backward(count, cols, advance(y, at), advance(dy, at), advance(dx, at), dtype);
  });
}

mpcore_status check_labels(const char* function, int64_t rows, int64_t cols,
                           const int64_t* labels) {
  for (int64_t i = 0; i < rows; ++i) {
    int64_t label;
    std::memcpy(&label, labels + i, sizeof(label));
    if (label < 0 || label >= cols)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: labels must be in [0, cols) (got labels[%" PRId64 "]=%" PRId64
                  ", cols=%" PRId64 ")",
                  function, i, label, cols);
  }
  return MPCORE_OK;
}

mpcore_status softmax_xent(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                           const int64_t* labels, const float* scale, float* loss, void* dx,
                           mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_softmax_xent";
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_shape(kName, rows, cols, 1)) return s;
  const int64_t n = rows * cols, size = dtype_size(dtype);
  if (const auto s = check_pointer(kName, "x", x, n)) return s;
  if (const auto s = check_pointer(kName, "labels", labels, rows)) return s;
  if (dx != nullptr)
    if (const auto s = check_pointer(kName, "scale (needed for dx)", scale, rows)) return s;
  const ByteRange losses{"loss", loss, rows * int64_t{sizeof(float)}}, out{"dx", dx, n * size};
  const ByteRange inputs[] = {{"x", x, n * size},
                              {"labels", labels, rows * int64_t{sizeof(int64_t)}},
                              {"scale", dx == nullptr ? nullptr : scale, losses.bytes}};
  for (const auto& input : inputs) {
    if (const auto s = check_apart(kName, losses, input)) return s;
    if (const auto s = check_apart(kName, out, input, input.data == x)) return s;
  }
  if (const auto s = check_apart(kName, losses, out)) return s;
  if (const auto s = check_labels(kName, rows, cols, labels)) return s;
  if (loss == nullptr && dx == nullptr) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  return for_row_blocks(session, rows, cols, [&](int64_t first, int64_t count) {
    const int64_t at = first * cols * size;
    kernels.softmax_xent(count, cols, advance(x, at), labels + first,
                         scale == nullptr ? nullptr : scale + first,
                         loss == nullptr ? nullptr : loss + first, advance(dx, at), dtype);
  });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_activation_forward(mpcore_context* ctx, mpcore_activation activation,
                                        int64_t n, const void* x, void* y, mpcore_dtype dtype) {
  return mpcore::guarded(
      [&] { return mpcore::activation_forward(ctx, activation, n, x, y, dtype); });
}

mpcore_status mpcore_dense_backward(mpcore_context* ctx, mpcore_activation activation, int64_t rows,
                                    int64_t cols, const void* y, const void* dy, void* dz,
                                    float* db, mpcore_dtype dtype) {
  return mpcore::guarded(
      [&] { return mpcore::dense_backward(ctx, activation, rows, cols, y, dy, dz, db, dtype); });
}

mpcore_status mpcore_softmax(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                             void* y, mpcore_dtype dtype) {
  return mpcore::guarded([&] { return mpcore::softmax(ctx, rows, cols, x, y, dtype); });
}

mpcore_status mpcore_softmax_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                      const void* y, const void* dy, void* dx, mpcore_dtype dtype) {
  return mpcore::guarded(
      [&] { return mpcore::softmax_backward(ctx, rows, cols, y, dy, dx, dtype); });
}

mpcore_status mpcore_softmax_xent(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                                  const int64_t* labels, const float* scale, float* loss, void* dx,
                                  mpcore_dtype dtype) {
  return mpcore::guarded(
      [&] { return mpcore::softmax_xent(ctx, rows, cols, x, labels, scale, loss, dx, dtype); });
}
