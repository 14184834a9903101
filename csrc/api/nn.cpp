// The nn column: argument checks and the split over threads.
#include "mpcore/nn.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "api/check.h"
#include "api/nn_args.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Rows of a column sum that one task adds up. Fixed, so that the order of a sum depends on the
// number of rows alone.
constexpr int64_t kGroupRows = kGroupLeaves * kColumnSumRows;

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

using RowsForward = void (*)(int64_t, int64_t, const void*, void*, mpcore_dtype);
using RowsBackward = void (*)(int64_t, int64_t, const void*, const void*, void*, mpcore_dtype);

mpcore_status softmax(const char* function, RowsForward KernelTable::* kernel, mpcore_context* ctx,
                      int64_t rows, int64_t cols, const void* x, void* y, mpcore_dtype dtype) {
  if (const auto s = check_compute_dtype(function, "dtype", dtype)) return s;
  if (const auto s = check_shape(function, rows, cols, 1)) return s;
  const int64_t n = rows * cols, size = dtype_size(dtype);
  if (const auto s = check_pointer(function, "x", x, n)) return s;
  if (const auto s = check_pointer(function, "y", y, n)) return s;
  if (const auto s = check_apart(function, {"y", y, n * size}, {"x", x, n * size}, true)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto run = session.kernels().*kernel;
  return for_row_blocks(session, rows, cols, [&](int64_t first, int64_t count) {
    const int64_t at = first * cols * size;
    run(count, cols, advance(x, at), advance(y, at), dtype);
  });
}

mpcore_status softmax_backward(const char* function, RowsBackward KernelTable::* kernel,
                               mpcore_context* ctx, int64_t rows, int64_t cols, const void* y,
                               const void* dy, void* dx, mpcore_dtype dtype) {
  if (const auto s = check_compute_dtype(function, "dtype", dtype)) return s;
  if (const auto s = check_shape(function, rows, cols, 1)) return s;
  const int64_t n = rows * cols, size = dtype_size(dtype);
  if (const auto s = check_pointer(function, "y", y, n)) return s;
  if (const auto s = check_pointer(function, "dy", dy, n)) return s;
  if (const auto s = check_pointer(function, "dx", dx, n)) return s;
  const ByteRange out{"dx", dx, n * size};
  if (const auto s = check_apart(function, out, {"y", y, n * size})) return s;
  if (const auto s = check_apart(function, out, {"dy", dy, n * size}, true)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto run = session.kernels().*kernel;
  return for_row_blocks(session, rows, cols, [&](int64_t first, int64_t count) {
    const int64_t at = first * cols * size;
    run(count, cols, advance(y, at), advance(dy, at), advance(dx, at), dtype);
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

mpcore_status check_xent(const char* function, const SoftmaxXent& s) {
  if (const auto e = check_compute_dtype(function, "dtype", s.dtype)) return e;
  if (const auto e = check_shape(function, s.rows, s.cols, 1)) return e;
  const int64_t n = s.rows * s.cols, size = dtype_size(s.dtype);
  if (const auto e = check_pointer(function, "x", s.x, n)) return e;
  if (s.targets != nullptr && s.labels != nullptr)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: labels must be NULL where there are targets",
                function);
  if (s.targets == nullptr)
    if (const auto e = check_pointer(function, "labels", s.labels, s.rows)) return e;
  if (!(s.smoothing >= 0 && s.smoothing <= 1))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: smoothing must be in [0, 1] (got smoothing=%g)",
                function, static_cast<double>(s.smoothing));
  if (s.dx != nullptr)
    if (const auto e = check_pointer(function, "scale (needed for dx)", s.scale, s.rows)) return e;
  const int64_t floats = sizeof(float);
  if (const auto e =
          check_all_apart(function, {{"dx", s.dx, n * size}, {"loss", s.loss, s.rows * floats}},
                          {{"x", s.x, n * size},
                           {"labels", s.labels, s.rows * int64_t{sizeof(int64_t)}},
                           {"targets", s.targets, n * floats},
                           {"scale", s.dx == nullptr ? nullptr : s.scale, s.rows * floats}},
                          s.x))
    return e;
  return s.targets != nullptr ? MPCORE_OK : check_labels(function, s.rows, s.cols, s.labels);
}

mpcore_status softmax_xent(const char* function, mpcore_context* ctx, const SoftmaxXent& s) {
  if (const auto e = check_xent(function, s)) return e;
  if (s.loss == nullptr && s.dx == nullptr) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  return for_row_blocks(session, s.rows, s.cols, [&](int64_t first, int64_t count) {
    const int64_t at = first * s.cols * dtype_size(s.dtype);
    SoftmaxXent block = s;
    block.rows = count;
    block.x = advance(s.x, at);
    block.dx = advance(s.dx, at);
    if (s.labels != nullptr) block.labels += first;
    if (s.targets != nullptr) block.targets += first * s.cols;
    if (s.scale != nullptr) block.scale += first;
    if (s.loss != nullptr) block.loss += first;
    kernels.softmax_xent(block);
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
  return mpcore::guarded([&] {
    return mpcore::softmax("mpcore_softmax", &mpcore::KernelTable::softmax, ctx, rows, cols, x, y,
                           dtype);
  });
}

mpcore_status mpcore_softmax_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                      const void* y, const void* dy, void* dx, mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::softmax_backward("mpcore_softmax_backward",
                                    &mpcore::KernelTable::softmax_backward, ctx, rows, cols, y, dy,
                                    dx, dtype);
  });
}

mpcore_status mpcore_log_softmax(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                                 void* y, mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::softmax("mpcore_log_softmax", &mpcore::KernelTable::log_softmax, ctx, rows, cols,
                           x, y, dtype);
  });
}

mpcore_status mpcore_log_softmax_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                          const void* y, const void* dy, void* dx,
                                          mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::softmax_backward("mpcore_log_softmax_backward",
                                    &mpcore::KernelTable::log_softmax_backward, ctx, rows, cols, y,
                                    dy, dx, dtype);
  });
}

mpcore_status mpcore_softmax_xent(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                                  const int64_t* labels, const float* scale, float* loss, void* dx,
                                  mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::softmax_xent("mpcore_softmax_xent", ctx,
                                {rows, cols, x, labels, nullptr, 0.0f, scale, loss, dx, dtype});
  });
}

mpcore_status mpcore_softmax_xent_smoothed(mpcore_context* ctx, int64_t rows, int64_t cols,
                                           const void* x, const int64_t* labels,
                                           const float* targets, float smoothing,
                                           const float* scale, float* loss, void* dx,
                                           mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::softmax_xent(
        "mpcore_softmax_xent_smoothed", ctx,
        {rows, cols, x, labels, targets, smoothing, scale, loss, dx, dtype});
  });
}
