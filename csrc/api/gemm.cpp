// The gemm column: entries, what a whole batch shares, and which path computes a product.
#include "mpcore/gemm.h"

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "api/check.h"
#include "api/gemm_args.h"
#include "api/gemm_pack.h"
#include "api/gemm_panels.h"
#include "api/gemm_problem.h"
#include "api/gemm_product.h"
#include "api/gemm_tile_turned.h"
#include "api/gemm_tiles.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// So few rows are done with B, read where it stands, before tiles have packed it; in bf16 the bits
// are the same.
constexpr int64_t kStreamedRows = 4;

bool uses_tiles(const Session& session, const GemmProblem& g) {
  const bool streams = g.a.dtype == MPCORE_DTYPE_BF16 && g.m <= kStreamedRows &&
                       g.packed_b == nullptr && g.b.col_stride == 1;
  return tiles_can(session, g.a.dtype, g.precision, g.k) && !streams;
}

// A product of a batch is worth a thread of its own up to this many multiplications.
constexpr double kFineGrain = 1 << 24;

// Sixteen sums over the leaves in turn, added by halving.
double combine(const double* leaves, int64_t count) {
  constexpr int kSums = 16;
  double sums[kSums] = {};
  for (int64_t i = 0; i < count; ++i) sums[i % kSums] += leaves[i];
  for (int half = kSums / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

class BatchedProduct {
 public:
  BatchedProduct(Session& session, const mpcore_gemm_args& args) : session_(session), g_(args) {}

  mpcore_status run() {
    if (const auto s = widen_bias()) return s;
    if (const auto s = clear_squares()) return s;
    if (const auto s = open_b()) return s;
    if (const auto s = is_fine_grained() ? run_side_by_side() : run_in_turn()) return s;
    if (g_.finite != nullptr) *g_.finite = non_finite_ ? 0 : 1;
    if (g_.sum_squares != nullptr) *g_.sum_squares = combine(squares_, g_.batch * leaves());
    return MPCORE_OK;
  }

 private:
  // Small products of a batch run one to a thread; large ones, and those on tiles, which take some
  // microseconds where others take a hundred, share the threads.
  bool is_fine_grained() {
    return g_.batch > 1 && multiplications(g_.m, g_.n, std::max<int64_t>(g_.k, 1)) <= kFineGrain &&
           !uses_tiles(session_, problem(0));
  }

  mpcore_status run_in_turn() {
    for (int64_t l = 0; l < g_.batch; ++l)
      if (const auto s = multiply(session_, problem(l))) return s;
    return MPCORE_OK;
  }

  mpcore_status run_side_by_side() {
    const GemmKernels& kernels = session_.kernels().gemm;
    const int64_t tasks = std::min<int64_t>(g_.batch, 4 * session_.num_threads());
    const int64_t bytes = panel_workspace_bytes(kernels, problem(0));
    auto* const workspace = static_cast<char*>(session_.workspace(tasks * bytes));
    if (workspace == nullptr) return MPCORE_OUT_OF_MEMORY;
    return session_.parallel_for(tasks, gemm_mode(g_.a.dtype), [&](int64_t t) {
      for (int64_t l = g_.batch * t / tasks; l < g_.batch * (t + 1) / tasks; ++l)
        panel_product_here(kernels, problem(l), workspace + t * bytes);
    });
  }

  mpcore_status open_b() {
    if (g_.packed_b == nullptr) return MPCORE_OK;
    return open_packed(session_, {g_.k, g_.n, g_.b.dtype, precision()}, g_.packed_b, &packed_b_);
  }

  mpcore_matmul_precision precision() const {
    return resolve_precision(session_, g_.a.dtype, g_.precision);
  }

  int64_t leaves() const { return g_.m * square_leaves(g_.n); }

  mpcore_status widen_bias() {
    if (g_.bias == nullptr || g_.n == 0) return MPCORE_OK;
    bias_ = static_cast<float*>(session_.workspace(g_.n * int64_t{sizeof(float)}));
    if (bias_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    return session_.serial(FpMode::kIeee, [&] {
      session_.kernels().cast(g_.bias, g_.bias_dtype, bias_, MPCORE_DTYPE_F32, g_.n);
    });
  }

  mpcore_status clear_squares() {
    if (g_.sum_squares == nullptr) return MPCORE_OK;
    const int64_t count = g_.batch * leaves();
    squares_ = static_cast<double*>(session_.workspace(count * int64_t{sizeof(double)}));
    if (squares_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    std::fill_n(squares_, count, 0.0);
    return MPCORE_OK;
  }

  GemmProblem problem(int64_t l) {
    const auto matrix = [&](mpcore_matrix x) {
      if (x.data != nullptr)
        x.data = static_cast<char*>(x.data) + l * x.batch_stride * dtype_size(x.dtype);
      return x;
    };
    return {.m = g_.m,
            .n = g_.n,
            .k = g_.k,
            .a = matrix(g_.a),
            .b = matrix(g_.b),
            .d = matrix(g_.d),
            .residual = matrix(g_.residual),
            .pre_activation = matrix(g_.pre_activation),
            .packed_b = packed_b_,
            .alpha = g_.alpha,
            .beta = g_.beta,
            .bias = bias_,
            .activation = g_.activation,
            .precision = precision(),
            .squares = squares_ != nullptr ? squares_ + l * leaves() : nullptr,
            .squares_stride = square_leaves(g_.n),
            .non_finite = g_.finite != nullptr ? &non_finite_ : nullptr};
  }

  Session& session_;
  const mpcore_gemm_args& g_;
  const void* packed_b_ = nullptr;
  float* bias_ = nullptr;
  double* squares_ = nullptr;
  std::atomic<bool> non_finite_{false};
};

mpcore_status gemm(mpcore_context* ctx, const mpcore_gemm_args* args) {
  if (const auto s = check_gemm(args)) return s;
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return BatchedProduct(session, *args).run();
}

}  // namespace

mpcore_status multiply(Session& session, const GemmProblem& problem) {
  if (problem.m == 0 || problem.n == 0) return MPCORE_OK;
  const Session::WorkspaceScope scope(session);
  if (uses_tiles(session, problem)) {
    const TileScheme scheme = tile_scheme(problem.a.dtype, problem.precision);
    return prefers_turned(problem, scheme) ? turned_product(session, problem)
                                           : tile_product(session, problem);
  }
  return panel_product(session, problem, {.count = problem.m});
}

}  // namespace mpcore

mpcore_status mpcore_gemm(mpcore_context* ctx, const mpcore_gemm_args* args) {
  return mpcore::guarded([&] { return mpcore::gemm(ctx, args); });
}

mpcore_status mpcore_set_float32_matmul_precision(mpcore_context* ctx,
                                                  mpcore_matmul_precision precision) {
  return mpcore::guarded([&]() -> mpcore_status {
    constexpr const char* kName = "mpcore_set_float32_matmul_precision";
    if (const auto s = mpcore::check_matmul_precision(kName, precision)) return s;
    if (precision == MPCORE_MATMUL_PRECISION_DEFAULT) precision = MPCORE_MATMUL_PRECISION_HIGHEST;
    return mpcore::set_matmul_precision(ctx, precision);
  });
}

mpcore_status mpcore_get_float32_matmul_precision(mpcore_context* ctx,
                                                  mpcore_matmul_precision* precision) {
  return mpcore::guarded([&]() -> mpcore_status {
    constexpr const char* kName = "mpcore_get_float32_matmul_precision";
    if (const auto s = mpcore::check_pointer(kName, "precision", precision, 1)) return s;
    return mpcore::get_matmul_precision(ctx, precision);
  });
}
