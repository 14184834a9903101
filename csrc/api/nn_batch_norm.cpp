// Batch normalisation: argument checks and the split over threads.
#include <cmath>
#include <cstring>

#include "api/nn_args.h"
#include "mpcore/nn.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

constexpr int64_t kFloat = sizeof(float);

float read(const float* p, int64_t i) {
  float x;
  std::memcpy(&x, p + i, sizeof(x));
  return x;
}
void write(float* p, int64_t i, double x) {
  const float rounded = static_cast<float>(x);
  std::memcpy(p + i, &rounded, sizeof(rounded));
}

// Number of columns, sums, and what the leaves before gave of a column: their moments in double.
struct Moments {
  double count, mean, squares;
};

// The moments of two sets together (T. F. Chan, G. H. Golub, R. J. LeVeque, 1979).
Moments together(const Moments& a, const Moments& b) {
  const double count = a.count + b.count, delta = b.mean - a.mean;
  return {count, a.mean + delta * (b.count / count),
          a.squares + b.squares + delta * delta * (a.count * b.count / count)};
}

mpcore_status moments(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x, float* mean,
                      float* variance, mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_batch_norm_moments";
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_shape(kName, rows, cols, 1)) return s;
  if (rows < 1) return fail(MPCORE_INVALID_ARGUMENT, "%s: rows must be >= 1 (got rows=0)", kName);
  const int64_t row = cols * dtype_size(dtype);
  if (const auto s = check_pointer(kName, "x", x, rows * cols)) return s;
  if (const auto s = check_pointer(kName, "mean", mean, cols)) return s;
  if (const auto s = check_pointer(kName, "variance", variance, cols)) return s;
  if (const auto s = check_all_apart(
          kName, {{"mean", mean, cols * kFloat}, {"variance", variance, cols * kFloat}},
          {{"x", x, rows * row}}, nullptr))
    return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels().norm;
  const int64_t leaves = ceil_div(rows, kColumnSumRows);
  const auto rows_of = [&](int64_t leaf) {
    return std::min(kColumnSumRows, rows - leaf * kColumnSumRows);
  };
  auto* const parts = static_cast<float*>(session.workspace(leaves * 3 * cols * kFloat));
  if (parts == nullptr) return MPCORE_OUT_OF_MEMORY;
  const auto status = session.parallel_for(leaves, FpMode::kIeee, [&](int64_t i) {
    float* const part = parts + i * 3 * cols;
    kernels.column_moments(rows_of(i), cols, advance(x, i * kColumnSumRows * row), part,
                           part + cols, part + 2 * cols, dtype);
  });
  if (status != MPCORE_OK) return status;
  return session.parallel_for(ceil_div(cols, kColumnStep), FpMode::kIeee, [&](int64_t strip) {
    const int64_t left = strip * kColumnStep;
    for (int64_t j = left; j < std::min(left + kColumnStep, cols); ++j) {
      Moments all{};
      for (int64_t i = 0; i < leaves; ++i) {
        const float* const part = parts + i * 3 * cols + j;
        const double n = static_cast<double>(rows_of(i)), rest = part[cols];
        const Moments leaf{n, part[0] + rest / n, part[2 * cols] - rest * rest / n};
        all = i == 0 ? leaf : together(all, leaf);
      }
      write(mean, j, all.mean);
      // Rounding may leave less than nothing; NaN stays NaN.
      write(variance, j, all.squares < 0 ? 0 : all.squares / all.count);
    }
  });
}

// The arrays that forward and backward have, and rstd of the columns in workspace.
struct Statistics {
  const float *mean, *variance;
  float epsilon;
};
mpcore_status check_statistics(const char* function, int64_t cols, const Statistics& of) {
  if (const auto s = check_pointer(function, "mean", of.mean, cols)) return s;
  if (const auto s = check_pointer(function, "variance", of.variance, cols)) return s;
  if (of.epsilon > 0 && std::isfinite(of.epsilon)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: epsilon must be finite and > 0 (got epsilon=%g)",
              function, static_cast<double>(of.epsilon));
}
void fill_rstd(const Statistics& of, int64_t cols, float* rstd) {
  for (int64_t j = 0; j < cols; ++j) rstd[j] = 1.0f / std::sqrt(read(of.variance, j) + of.epsilon);
}

mpcore_status normalize(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                        const Statistics& of, const float* gamma, const float* beta, void* y,
                        mpcore_dtype dtype) {
  constexpr const char* kName = "mpcore_batch_norm";
  if (const auto s = check_compute_dtype(kName, "dtype", dtype)) return s;
  if (const auto s = check_shape(kName, rows, cols, 1)) return s;
  const int64_t n = rows * cols, row = cols * dtype_size(dtype), columns = cols * kFloat;
  if (const auto s = check_pointer(kName, "x", x, n)) return s;
  if (const auto s = check_pointer(kName, "y", y, n)) return s;
  if (const auto s = check_statistics(kName, cols, of)) return s;
  if (const auto s = check_all_apart(kName, {{"y", y, rows * row}},
                                     {{"x", x, rows * row},
                                      {"mean", of.mean, columns},
                                      {"variance", of.variance, columns},
                                      {"gamma", gamma, columns},
                                      {"beta", beta, columns}},
                                     x))
    return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels().norm;
  auto* const rstd = static_cast<float*>(session.workspace(columns));
  if (rstd == nullptr) return MPCORE_OUT_OF_MEMORY;
  const auto status = session.serial(FpMode::kIeee, [&] { fill_rstd(of, cols, rstd); });
  if (status != MPCORE_OK) return status;
  return for_row_blocks(session, rows, cols, [&](int64_t first, int64_t count) {
    kernels.column({.rows = count,
                    .cols = cols,
                    .x = advance(x, first * row),
                    .mean = of.mean,
                    .rstd = rstd,
                    .gamma = gamma,
                    .beta = beta,
                    .y = advance(y, first * row),
                    .dtype = dtype});
  });
}

struct Backward {
  int64_t rows, cols;
  const void* x;
  Statistics of;
  const float* gamma;
  const void* dy;
  bool constant;
  void* dx;
  float *dgamma, *dbeta;
  mpcore_dtype dtype;
};

mpcore_status check_backward(const char* function, const Backward& b) {
  if (const auto s = check_compute_dtype(function, "dtype", b.dtype)) return s;
  if (const auto s = check_shape(function, b.rows, b.cols, 1)) return s;
  const int64_t n = b.rows * b.cols, bytes = n * dtype_size(b.dtype), columns = b.cols * kFloat;
  if (const auto s = check_pointer(function, "x", b.x, n)) return s;
  if (const auto s = check_pointer(function, "dy", b.dy, n)) return s;
  if (const auto s = check_statistics(function, b.cols, b.of)) return s;
  return check_all_apart(
      function, {{"dx", b.dx, bytes}, {"dgamma", b.dgamma, columns}, {"dbeta", b.dbeta, columns}},
      {{"dy", b.dy, bytes},
       {"x", b.x, bytes},
       {"mean", b.of.mean, columns},
       {"variance", b.of.variance, columns},
       {"gamma", b.gamma, columns}},
      b.dy);
}

// What the backward has of each column, in workspace.
struct Columns {
  float *rstd, *dgamma, *dbeta, *shift, *slope, *factor;
};

mpcore_status sum_gradients(Session& session, const Backward& b, const Columns& at) {
  const auto& kernels = session.kernels().norm;
  const int64_t leaves = ceil_div(b.rows, kColumnSumRows), row = b.cols * dtype_size(b.dtype);
  auto* const sums = static_cast<float*>(session.workspace(leaves * 2 * b.cols * kFloat));
  if (sums == nullptr) return MPCORE_OUT_OF_MEMORY;
  const auto status = session.parallel_for(leaves, FpMode::kIeee, [&](int64_t i) {
    const int64_t first = i * kColumnSumRows;
    float* const leaf = sums + i * 2 * b.cols;
    kernels.column_sums({.rows = std::min(kColumnSumRows, b.rows - first),
                         .cols = b.cols,
                         .x = advance(b.x, first * row),
                         .dy = advance(b.dy, first * row),
                         .mean = b.of.mean,
                         .rstd = at.rstd,
                         .dgamma = leaf,
                         .dbeta = leaf + b.cols,
                         .dtype = b.dtype});
  });
  if (status != MPCORE_OK) return status;
  if (const auto s = add_leaves(session, sums, leaves, 2 * b.cols, b.cols, at.dgamma)) return s;
  return add_leaves(session, sums + b.cols, leaves, 2 * b.cols, b.cols, at.dbeta);
}

mpcore_status backward(mpcore_context* ctx, const Backward& b) {
  if (const auto s = check_backward("mpcore_batch_norm_backward", b)) return s;
  const int64_t row = b.cols * dtype_size(b.dtype);
  const double n = static_cast<double>(b.rows);

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels().norm;
  auto* const space = static_cast<float*>(session.workspace(6 * b.cols * kFloat));
  if (space == nullptr) return MPCORE_OUT_OF_MEMORY;
  const auto part = [&](int64_t i) { return space + i * b.cols; };
  const Columns at{part(0), part(1), part(2), part(3), part(4), part(5)};
  mpcore_status status = session.serial(FpMode::kIeee, [&] { fill_rstd(b.of, b.cols, at.rstd); });
  if (status != MPCORE_OK) return status;
  const bool sums = b.dgamma != nullptr || b.dbeta != nullptr || !b.constant;
  if (sums)
    if (const auto s = sum_gradients(session, b, at)) return s;
  if (b.dgamma != nullptr) std::memcpy(b.dgamma, at.dgamma, sizeof(float) * size_t(b.cols));
  if (b.dbeta != nullptr) std::memcpy(b.dbeta, at.dbeta, sizeof(float) * size_t(b.cols));
  if (b.dx == nullptr) return MPCORE_OK;
  if (b.constant)
    return for_row_blocks(session, b.rows, b.cols, [&](int64_t first, int64_t count) {
      kernels.column({.rows = count,
                      .cols = b.cols,
                      .x = advance(b.dy, first * row),
                      .mean = nullptr,
                      .rstd = at.rstd,
                      .gamma = b.gamma,
                      .beta = nullptr,
                      .y = advance(b.dx, first * row),
                      .dtype = b.dtype});
    });
  status = session.serial(FpMode::kIeee, [&] {
    for (int64_t j = 0; j < b.cols; ++j) {
      write(at.shift, j, at.dbeta[j] / n);
      write(at.slope, j, at.dgamma[j] / n);
      at.factor[j] = b.gamma == nullptr ? at.rstd[j] : at.rstd[j] * read(b.gamma, j);
    }
  });
  if (status != MPCORE_OK) return status;
  return for_row_blocks(session, b.rows, b.cols, [&](int64_t first, int64_t count) {
    kernels.column_backward({.rows = count,
                             .cols = b.cols,
                             .x = advance(b.x, first * row),
                             .dy = advance(b.dy, first * row),
                             .mean = b.of.mean,
                             .rstd = at.rstd,
                             .shift = at.shift,
                             .slope = at.slope,
                             .factor = at.factor,
                             .dx = advance(b.dx, first * row),
                             .dtype = b.dtype});
  });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_batch_norm_moments(mpcore_context* ctx, int64_t rows, int64_t cols,
                                        const void* x, float* mean, float* variance,
                                        mpcore_dtype dtype) {
  return mpcore::guarded(
      [&] { return mpcore::moments(ctx, rows, cols, x, mean, variance, dtype); });
}

mpcore_status mpcore_batch_norm(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                                const float* mean, const float* variance, float epsilon,
                                const float* gamma, const float* beta, void* y,
                                mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::normalize(ctx, rows, cols, x, {mean, variance, epsilon}, gamma, beta, y, dtype);
  });
}

mpcore_status mpcore_batch_norm_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                         const void* x, const float* mean, const float* variance,
                                         float epsilon, const float* gamma, const void* dy,
                                         int32_t constant_moments, void* dx, float* dgamma,
                                         float* dbeta, mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::backward(ctx, {rows,
                                  cols,
                                  x,
                                  {mean, variance, epsilon},
                                  gamma,
                                  dy,
                                  constant_moments != 0,
                                  dx,
                                  dgamma,
                                  dbeta,
                                  dtype});
  });
}
