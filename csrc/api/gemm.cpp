// The gemm column: argument checks, blocking, and the split over threads.
//
// A product is cut into super blocks (bounded workspace), each packed once and computed as a grid
// of tasks; a task walks its k blocks so that a panel of B stays in L1 and a block of A in L2. What
// a task computes depends on its place alone, so the bits do not depend on the number of threads.
#include "mpcore/gemm.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "api/check.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

constexpr const char* kName = "mpcore_gemm";

// --- Checks --------------------------------------------------------------------------------------

struct Extent {
  const char* begin;
  int64_t bytes;
};

// The bytes a matrix with rows * cols > 0 elements touches.
mpcore_status extent_of(const char* name, const mpcore_matrix& x, int64_t rows, int64_t cols,
                        Extent* out) {
  int64_t low = 0, high = 1;
  for (const auto& [count, stride] : {std::pair{rows, x.row_stride}, {cols, x.col_stride}}) {
    int64_t reach;
    if (__builtin_mul_overflow(count - 1, stride, &reach) ||
        __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high))
      return fail(MPCORE_INVALID_ARGUMENT, "%s: the strides of %s reach beyond 2^63 elements",
                  kName, name);
  }
  const int64_t size = dtype_size(x.dtype);
  int64_t span;
  if (__builtin_sub_overflow(high, low, &span) || __builtin_mul_overflow(span, size, &span))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: the strides of %s reach beyond 2^63 bytes", kName,
                name);
  *out = {static_cast<const char*>(x.data) + low * size, span};
  return MPCORE_OK;
}

mpcore_status check_matrix(const char* name, const mpcore_matrix& x, int64_t rows, int64_t cols) {
  if (const auto s = check_compute_dtype(kName, name, x.dtype)) return s;
  if (x.reserved != 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s.reserved must be 0 (got %d)", kName, name,
                x.reserved);
  return check_pointer(kName, name, x.data, rows > 0 && cols > 0 ? 1 : 0);
}

mpcore_status check_args(const mpcore_gemm_args* g) {
  if (g == nullptr) return fail(MPCORE_INVALID_ARGUMENT, "%s: args must not be NULL", kName);
  if (const auto s = check_struct(kName, "args", g, g->struct_size, sizeof(*g))) return s;
  for (const auto& [name, size] : {std::pair{"m", g->m}, {"n", g->n}, {"k", g->k}})
    if (const auto s = check_size(kName, name, size)) return s;
  if (const auto s = check_matrix("a", g->a, g->m, g->k)) return s;
  if (const auto s = check_matrix("b", g->b, g->k, g->n)) return s;
  if (const auto s = check_matrix("d", g->d, g->m, g->n)) return s;
  if (g->a.dtype != g->b.dtype)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: a and b must have one dtype (got %s and %s)", kName,
                mpcore_dtype_name(g->a.dtype), mpcore_dtype_name(g->b.dtype));
  if (g->bias != nullptr)
    if (const auto s = check_compute_dtype(kName, "bias", g->bias_dtype)) return s;
  if (const auto s = check_activation(kName, g->activation)) return s;
  if (g->accumulate != 0 && g->accumulate != 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: accumulate must be 0 or 1 (got %d)", kName,
                g->accumulate);
  if (g->accumulate && (g->d.dtype != MPCORE_DTYPE_F32 || g->bias != nullptr ||
                        g->activation != MPCORE_ACTIVATION_LINEAR))
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: accumulate needs a float32 d, no bias, and the linear activation", kName);
  if (g->m == 0 || g->n == 0) return MPCORE_OK;

  const auto magnitude = [](int64_t x) { return x < 0 ? -static_cast<uint64_t>(x) : x; };
  const uint64_t row = magnitude(g->d.row_stride), col = magnitude(g->d.col_stride);
  const bool rows_apart = g->m == 1 || row > (static_cast<uint64_t>(g->n) - 1) * col;
  const bool cols_apart = g->n == 1 || col > (static_cast<uint64_t>(g->m) - 1) * row;
  const bool distinct = (g->m == 1 || row > 0) && (g->n == 1 || col > 0);
  if (!distinct || !(rows_apart || cols_apart))
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: elements of d overlap (row_stride=%lld, col_stride=%lld)", kName,
                static_cast<long long>(g->d.row_stride), static_cast<long long>(g->d.col_stride));

  Extent d, input;
  if (const auto s = extent_of("d", g->d, g->m, g->n, &d)) return s;
  const auto apart = [&](const char* name) -> mpcore_status {
    if (!ranges_overlap(input.begin, input.bytes, d.begin, d.bytes)) return MPCORE_OK;
    return fail(MPCORE_INVALID_ARGUMENT, "%s: d must not overlap %s", kName, name);
  };
  if (g->k > 0) {
    if (const auto s = extent_of("a", g->a, g->m, g->k, &input)) return s;
    if (const auto s = apart("a")) return s;
    if (const auto s = extent_of("b", g->b, g->k, g->n, &input)) return s;
    if (const auto s = apart("b")) return s;
  }
  if (g->bias != nullptr) {
    input = {static_cast<const char*>(g->bias), g->n * dtype_size(g->bias_dtype)};
    if (const auto s = apart("bias")) return s;
  }
  return MPCORE_OK;
}

// --- Blocking ------------------------------------------------------------------------------------

// Workspace is bounded by one super block: 2 * kSuper * kSuperK + kSuper^2 floats, 48 MiB.
constexpr int64_t kSuper = 2048, kSuperK = 2048;
constexpr int64_t kBlockK = 256;    // a panel of B: 256 x 32 floats, 32 KiB of L1
constexpr int64_t kTaskRows = 336;  // a block of A: 336 x 256 floats, 344 KiB of L2
constexpr int64_t kTaskCols = 512;
constexpr int64_t kSerialFlops = int64_t{1} << 18;  // below, a hand-over costs more than it saves

constexpr int64_t round_up(int64_t x, int64_t y) { return ceil_div(x, y) * y; }

class Product {
 public:
  Product(Session& session, const mpcore_gemm_args& args)
      : session_(session),
        g_(args),
        kernels_(session.kernels().gemm),
        order_(args.a.dtype == MPCORE_DTYPE_BF16 ? kernels_.pairs : kernels_.chain),
        mode_(args.a.dtype == MPCORE_DTYPE_BF16 ? FpMode::kFlushResults : FpMode::kIeee) {}

  mpcore_status run() {
    if (g_.m == 0 || g_.n == 0) return MPCORE_OK;
    if (const auto s = allocate()) return s;
    for (int64_t j = 0; j < g_.n; j += kSuper)
      for (int64_t i = 0; i < g_.m; i += kSuper)
        if (const auto s = super_block(i, j)) return s;
    return MPCORE_OK;
  }

 private:
  mpcore_status allocate() {
    const int64_t m = round_up(std::min(g_.m, kSuper), order_.mr);
    const int64_t n = round_up(std::min(g_.n, kSuper), order_.nr);
    const int64_t k = round_up(std::min(g_.k, kSuperK), order_.k_step);
    const int64_t bias = g_.bias != nullptr ? g_.n : 0;
    const int64_t totals = g_.k > kBlockK ? m * n : 0;  // else a tile is finished at once
    const int64_t floats = m * k + k * n + totals + bias;
    float* p =
        static_cast<float*>(session_.workspace(floats * static_cast<int64_t>(sizeof(float))));
    if (p == nullptr) return MPCORE_OUT_OF_MEMORY;
    packed_a_ = p;
    packed_b_ = packed_a_ + m * k;
    total_ = packed_b_ + k * n;
    if (bias == 0) return MPCORE_OK;
    bias_ = total_ + totals;
    return session_.serial(FpMode::kIeee, [&] {
      session_.kernels().cast(g_.bias, g_.bias_dtype, bias_, MPCORE_DTYPE_F32, g_.n);
    });
  }

  // D[i0 : i0 + kSuper, j0 : j0 + kSuper].
  mpcore_status super_block(int64_t i0, int64_t j0) {
    const int64_t m = std::min(kSuper, g_.m - i0), n = std::min(kSuper, g_.n - j0);
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
        kernels_.pack(at(g_.a, i0 + i, p0), g_.a.dtype, g_.a.row_stride, g_.a.col_stride,
                      std::min<int64_t>(order_.mr, m - i), k, padded, order_.mr,
                      packed_a_ + i * padded);
      } else {
        const int64_t j = (panel - a_panels) * order_.nr;
        kernels_.pack(at(g_.b, p0, j0 + j), g_.b.dtype, g_.b.col_stride, g_.b.row_stride,
                      std::min<int64_t>(order_.nr, n - j), k, padded, order_.nr,
                      packed_b_ + j * padded);
      }
    };
    return for_each(a_panels + b_panels, FpMode::kIeee, m, n, k, pack_panel);
  }

  // The grid of tasks over a packed super block.
  mpcore_status multiply(int64_t i0, int64_t j0, int64_t p0, int64_t m, int64_t n, int64_t k) {
    const int64_t rows = round_up(std::min(kTaskRows, m), order_.mr);
    const int64_t down = ceil_div(m, rows);
    int64_t cols = kTaskCols;
    while (cols > 2 * order_.nr && down * ceil_div(n, cols) < 4 * session_.num_threads()) cols /= 2;
    const int64_t across = ceil_div(n, cols);
    const auto task = [&](int64_t t) {
      const int64_t i = t % down * rows, j = t / down * cols;
      multiply_block(i0, j0, p0, i, std::min(rows, m - i), j, std::min(cols, n - j), k,
                     round_up(n, order_.nr));
    };
    return for_each(down * across, mode_, m, n, k, task);
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
    kernels_.epilogue({.total = total,
                       .total_stride = order_.nr,
                       .rows = rows,
                       .cols = cols,
                       .d = at(g_.d, i, j),
                       .d_row_stride = g_.d.row_stride,
                       .d_col_stride = g_.d.col_stride,
                       .d_dtype = g_.d.dtype,
                       .bias = bias_ != nullptr ? bias_ + j : nullptr,
                       .activation = g_.activation,
                       .accumulate = g_.accumulate != 0});
  }

  // Shares n_tasks among the threads, or runs them here when the block is small.
  template <class Task>
  mpcore_status for_each(int64_t n_tasks, FpMode mode, int64_t m, int64_t n, int64_t k,
                         const Task& task) {
    if (m * n < kSerialFlops && m * n * k < kSerialFlops)
      return session_.serial(mode, [&] {
        for (int64_t t = 0; t < n_tasks; ++t) task(t);
      });
    return session_.parallel_for(n_tasks, mode, task);
  }

  static void* at(const mpcore_matrix& x, int64_t i, int64_t j) {
    return static_cast<char*>(x.data) + (i * x.row_stride + j * x.col_stride) * dtype_size(x.dtype);
  }

  Session& session_;
  const mpcore_gemm_args& g_;
  const GemmKernels& kernels_;
  const GemmOrder& order_;
  const FpMode mode_;
  float *packed_a_ = nullptr, *packed_b_ = nullptr, *total_ = nullptr, *bias_ = nullptr;
};

mpcore_status gemm(mpcore_context* ctx, const mpcore_gemm_args* args) {
  if (const auto s = check_args(args)) return s;
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return Product(session, *args).run();
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_gemm(mpcore_context* ctx, const mpcore_gemm_args* args) {
  return mpcore::guarded([&] { return mpcore::gemm(ctx, args); });
}
