// Layer and RMS normalisation: argument checks and the split over threads.
#include <cmath>
#include <cstring>

#include "api/nn_args.h"
#include "mpcore/nn.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

mpcore_status check_epsilon(const char* function, float epsilon) {
  if (epsilon > 0 && std::isfinite(epsilon)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: epsilon must be finite and > 0 (got epsilon=%g)",
              function, static_cast<double>(epsilon));
}

mpcore_status forward(const char* function, mpcore_context* ctx, const RowNorm& r) {
  if (const auto s = check_compute_dtype(function, "dtype", r.dtype)) return s;
  if (const auto s = check_shape(function, r.rows, r.cols, 1)) return s;
  if (const auto s = check_epsilon(function, r.epsilon)) return s;
  const int64_t n = r.rows * r.cols, row = r.cols * dtype_size(r.dtype), bytes = r.rows * row;
  const int64_t per_column = r.cols * int64_t{sizeof(float)};
  const int64_t per_row = r.rows * int64_t{sizeof(float)};
  if (const auto s = check_pointer(function, "x", r.x, n)) return s;
  if (const auto s = check_pointer(function, "y", r.y, n)) return s;
  if (const auto s = check_all_apart(
          function, {{"y", r.y, bytes}, {"mean", r.mean, per_row}, {"rstd", r.rstd, per_row}},
          {{"x", r.x, bytes}, {"gamma", r.gamma, per_column}, {"beta", r.beta, per_column}}, r.x))
    return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels().norm;
  return for_row_blocks(session, r.rows, r.cols, [&](int64_t first, int64_t count) {
    RowNorm block = r;
    block.rows = count;
    block.x = advance(r.x, first * row);
    block.y = advance(r.y, first * row);
    if (r.mean != nullptr) block.mean += first;
    if (r.rstd != nullptr) block.rstd += first;
    kernels.row(block);
  });
}

mpcore_status check_backward(const char* function, const RowNormBackward& r) {
  if (const auto s = check_compute_dtype(function, "dtype", r.dtype)) return s;
  if (const auto s = check_shape(function, r.rows, r.cols, 1)) return s;
  const int64_t n = r.rows * r.cols, bytes = n * dtype_size(r.dtype);
  const int64_t per_column = r.cols * int64_t{sizeof(float)};
  const int64_t per_row = r.rows * int64_t{sizeof(float)};
  if (const auto s = check_pointer(function, "x", r.x, n)) return s;
  if (const auto s = check_pointer(function, "dy", r.dy, n)) return s;
  if (r.center)
    if (const auto s = check_pointer(function, "mean", r.mean, r.rows)) return s;
  if (const auto s = check_pointer(function, "rstd", r.rstd, r.rows)) return s;
  return check_all_apart(
      function,
      {{"dx", r.dx, bytes}, {"dgamma", r.dgamma, per_column}, {"dbeta", r.dbeta, per_column}},
      {{"dy", r.dy, bytes},
       {"x", r.x, bytes},
       {"gamma", r.gamma, per_column},
       {"mean", r.mean, per_row},
       {"rstd", r.rstd, per_row}},
      r.dy);
}

// A task is a leaf of the column sums, whether they are wanted or not.
mpcore_status backward(const char* function, mpcore_context* ctx, const RowNormBackward& r) {
  if (const auto s = check_backward(function, r)) return s;
  const int64_t leaves = ceil_div(r.rows, kColumnSumRows), row = r.cols * dtype_size(r.dtype);
  const int64_t wanted = (r.dgamma != nullptr) + (r.dbeta != nullptr), stride = wanted * r.cols;
  if (wanted == 0 && r.dx == nullptr) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels().norm;
  auto* const sums =
      static_cast<float*>(session.workspace(leaves * stride * int64_t{sizeof(float)}));
  if (sums == nullptr) return MPCORE_OUT_OF_MEMORY;
  const auto status = session.parallel_for(leaves, FpMode::kIeee, [&](int64_t i) {
    const int64_t first = i * kColumnSumRows;
    float* const leaf = sums + i * stride;
    std::fill_n(leaf, stride, 0.0f);
    RowNormBackward block = r;
    block.rows = std::min(kColumnSumRows, r.rows - first);
    block.x = advance(r.x, first * row);
    block.dy = advance(r.dy, first * row);
    block.dx = advance(r.dx, first * row);
    if (r.center) block.mean += first;
    block.rstd += first;
    if (r.dgamma != nullptr) block.dgamma = leaf;
    if (r.dbeta != nullptr) block.dbeta = leaf + stride - r.cols;
    kernels.row_backward(block);
  });
  if (status != MPCORE_OK) return status;
  if (r.dgamma != nullptr)
    if (const auto s = add_leaves(session, sums, leaves, stride, r.cols, r.dgamma)) return s;
  if (r.dbeta == nullptr) return MPCORE_OK;
  return add_leaves(session, sums + stride - r.cols, leaves, stride, r.cols, r.dbeta);
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_layer_norm(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                                const float* gamma, const float* beta, float epsilon, void* y,
                                float* mean, float* rstd, mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::forward(
        "mpcore_layer_norm", ctx,
        {rows, cols, x, gamma, beta, epsilon, /*center=*/true, y, mean, rstd, dtype});
  });
}

mpcore_status mpcore_layer_norm_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                         const void* x, const float* gamma, const float* mean,
                                         const float* rstd, const void* dy, void* dx, float* dgamma,
                                         float* dbeta, mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::backward(
        "mpcore_layer_norm_backward", ctx,
        {rows, cols, x, gamma, mean, rstd, dy, /*center=*/true, dx, dgamma, dbeta, dtype});
  });
}

mpcore_status mpcore_rms_norm(mpcore_context* ctx, int64_t rows, int64_t cols, const void* x,
                              const float* gamma, float epsilon, void* y, float* rstd,
                              mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::forward(
        "mpcore_rms_norm", ctx,
        {rows, cols, x, gamma, nullptr, epsilon, /*center=*/false, y, nullptr, rstd, dtype});
  });
}

mpcore_status mpcore_rms_norm_backward(mpcore_context* ctx, int64_t rows, int64_t cols,
                                       const void* x, const float* gamma, const float* rstd,
                                       const void* dy, void* dx, float* dgamma,
                                       mpcore_dtype dtype) {
  return mpcore::guarded([&] {
    return mpcore::backward(
        "mpcore_rms_norm_backward", ctx,
        {rows, cols, x, gamma, nullptr, rstd, dy, /*center=*/false, dx, dgamma, nullptr, dtype});
  });
}
