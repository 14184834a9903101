#include "api/gemm_args.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdint>
#include <utility>

#include "api/check.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

constexpr const char* kName = "mpcore_gemm";

// A matrix of a call, or a batch of them.
struct Operand {
  const char* function;
  const char* name;
  const mpcore_matrix& matrix;
  int64_t batch, rows, cols;

  bool is_empty() const { return batch == 0 || rows == 0 || cols == 0; }
};

struct Extent {
  const char* begin;
  int64_t bytes;
};

// The bytes an operand touches; none if it is empty.
mpcore_status extent_of(const Operand& x, Extent* out) {
  *out = {static_cast<const char*>(x.matrix.data), 0};
  if (x.is_empty()) return MPCORE_OK;
  int64_t low = 0, high = 1;
  for (const auto& [count, stride] : {std::pair{x.batch, x.matrix.batch_stride},
                                      {x.rows, x.matrix.row_stride},
                                      {x.cols, x.matrix.col_stride}}) {
    int64_t reach;
    if (count > 1 &&
        (__builtin_mul_overflow(count - 1, stride, &reach) ||
         __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)))
      return fail(MPCORE_INVALID_ARGUMENT, "%s: the strides of %s reach beyond 2^63 elements",
                  x.function, x.name);
  }
  const int64_t size = dtype_size(x.matrix.dtype);
  int64_t span;
  if (__builtin_sub_overflow(high, low, &span) || __builtin_mul_overflow(span, size, &span))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: the strides of %s reach beyond 2^63 bytes",
                x.function, x.name);
  *out = {static_cast<const char*>(x.matrix.data) + low * size, span};
  return MPCORE_OK;
}

mpcore_status check_matrix(const Operand& x) {
  if (const auto s = check_compute_dtype(x.function, x.name, x.matrix.dtype)) return s;
  if (x.matrix.reserved != 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s.reserved must be 0 (got %d)", x.function, x.name,
                x.matrix.reserved);
  return check_pointer(x.function, x.name, x.matrix.data, x.is_empty() ? 0 : 1);
}

// Do the elements of an output lie apart? Taken from the smallest stride to the largest, each
// must reach over all that the smaller ones span.
mpcore_status check_distinct(const Operand& x) {
  if (x.is_empty()) return MPCORE_OK;
  struct Axis {
    uint64_t stride, count;
  };
  const auto axis = [](int64_t stride, int64_t count) -> Axis {
    const auto s = static_cast<uint64_t>(stride);
    return {stride < 0 ? -s : s, static_cast<uint64_t>(count)};
  };
  std::array axes = {axis(x.matrix.batch_stride, x.batch), axis(x.matrix.row_stride, x.rows),
                     axis(x.matrix.col_stride, x.cols)};
  std::ranges::sort(axes, {}, &Axis::stride);
  uint64_t span = 0;  // of the axes so far; extent_of() has shown that it cannot overflow
  for (const auto& [stride, count] : axes) {
    if (count <= 1) continue;
    if (stride <= span)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: elements of %s overlap (batch_stride=%lld, row_stride=%lld, "
                  "col_stride=%lld)",
                  x.function, x.name, static_cast<long long>(x.matrix.batch_stride),
                  static_cast<long long>(x.matrix.row_stride),
                  static_cast<long long>(x.matrix.col_stride));
    span += stride * (count - 1);
  }
  return MPCORE_OK;
}

bool same_elements(const mpcore_matrix& x, const mpcore_matrix& y) {
  return x.data == y.data && x.row_stride == y.row_stride && x.col_stride == y.col_stride &&
         x.batch_stride == y.batch_stride && x.dtype == y.dtype;
}

mpcore_status check_scalars(const mpcore_gemm_args& g) {
  for (const auto& [name, size] : {std::pair{"batch", g.batch}, {"m", g.m}, {"n", g.n}, {"k", g.k}})
    if (const auto s = check_size(kName, name, size)) return s;
  if (g.bias != nullptr)
    if (const auto s = check_compute_dtype(kName, "bias", g.bias_dtype)) return s;
  if (const auto s = check_activation(kName, g.activation)) return s;
  return check_matmul_precision(kName, g.precision);
}

// No output may share a byte with another array; the residual may be d itself.
mpcore_status check_apart(const mpcore_gemm_args& g, const Operand& output, const Operand& other) {
  if (other.matrix.data == nullptr || output.matrix.data == nullptr) return MPCORE_OK;
  const bool may_be_same = &output.matrix == &g.d && &other.matrix == &g.residual;
  if (may_be_same && same_elements(g.d, g.residual)) return MPCORE_OK;
  Extent x, y;
  if (const auto s = extent_of(output, &x)) return s;
  if (const auto s = extent_of(other, &y)) return s;
  if (!ranges_overlap(x.begin, x.bytes, y.begin, y.bytes)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must not overlap %s%s", kName, output.name,
              other.name, may_be_same ? ", unless it is the same matrix" : "");
}

// With strides of 0 the sizes are not bounded by memory, but packed operands are: whole tiles of up
// to three parts.
mpcore_status check_packed_sizes(const mpcore_gemm_args& g) {
  constexpr double kMost = 0x1p57, kTile = 64;
  const auto rows = static_cast<double>(g.m), cols = static_cast<double>(g.n),
             depth = static_cast<double>(g.k);
  if ((std::max(rows, cols) + kTile) * (depth + kTile) <= kMost &&
      (rows + kTile) * (cols + kTile) <= kMost)
    return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: matrices of m=%" PRId64 ", n=%" PRId64 ", k=%" PRId64 " must fit in memory",
              kName, g.m, g.n, g.k);
}

}  // namespace

mpcore_status check_gemm(const mpcore_gemm_args* args) {
  if (args == nullptr) return fail(MPCORE_INVALID_ARGUMENT, "%s: args must not be NULL", kName);
  if (const auto s = check_struct(kName, "args", args, args->struct_size, sizeof(*args))) return s;
  const mpcore_gemm_args& g = *args;
  if (const auto s = check_scalars(g)) return s;
  const auto operand = [&](const char* name, const mpcore_matrix& x, int64_t rows, int64_t cols) {
    return Operand{kName, name, x, g.batch, rows, cols};
  };
  const mpcore_matrix row{const_cast<void*>(g.bias), 0, 1, 0, g.bias_dtype, 0};
  const Operand a = operand("a", g.a, g.m, g.k), d = operand("d", g.d, g.m, g.n);
  const Operand b = operand("b", g.b, g.packed_b == nullptr ? g.k : 0, g.n);
  const Operand residual = operand("residual", g.residual, g.m, g.n);
  const Operand pre_activation = operand("pre_activation", g.pre_activation, g.m, g.n);
  const Operand bias = operand("bias", row, 1, g.n);
  for (const auto& x : {a, b, d})
    if (const auto s = check_matrix(x)) return s;
  for (const auto& x : {residual, pre_activation})
    if (x.matrix.data != nullptr)
      if (const auto s = check_matrix(x)) return s;
  if (g.a.dtype != g.b.dtype)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: a and b must have one dtype (got %s and %s)", kName,
                mpcore_dtype_name(g.a.dtype), mpcore_dtype_name(g.b.dtype));
  for (const auto& output : {d, pre_activation}) {
    if (output.matrix.data == nullptr) continue;
    Extent extent;
    if (const auto s = extent_of(output, &extent)) return s;
    if (const auto s = check_distinct(output)) return s;
    for (const auto& input : {a, b, residual, bias})
      if (const auto s = check_apart(g, output, input)) return s;
  }
  if (const auto s = check_apart(g, pre_activation, d)) return s;
  return check_packed_sizes(g);
}

mpcore_status check_packing(const char* function, const mpcore_matrix& b, int64_t k, int64_t n,
                            const void* packed, int64_t size) {
  const Operand operand{function, "b", b, 1, k, n};
  if (const auto s = check_matrix(operand)) return s;
  Extent extent;
  if (const auto s = extent_of(operand, &extent)) return s;
  if (!ranges_overlap(extent.begin, extent.bytes, packed, size)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: packed must not overlap b", function);
}

mpcore_matmul_precision resolve_precision(const Session& session, mpcore_dtype dtype,
                                          mpcore_matmul_precision precision) {
  if (dtype != MPCORE_DTYPE_F32) return MPCORE_MATMUL_PRECISION_HIGHEST;
  return precision != MPCORE_MATMUL_PRECISION_DEFAULT ? precision : session.matmul_precision();
}

}  // namespace mpcore
