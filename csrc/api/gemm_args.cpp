#include "api/gemm_args.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "api/check.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

constexpr const char* kName = "mpcore_gemm";

// A matrix of the call: its name, shape, and whether it is there at all.
struct Operand {
  const char* name;
  const mpcore_matrix& matrix;
  int64_t rows, cols;
};

struct Extent {
  const char* begin;
  int64_t bytes;
};

bool is_empty(const mpcore_gemm_args& g, const Operand& x) {
  return g.batch == 0 || x.rows == 0 || x.cols == 0;
}

// The bytes an operand touches; none if it is empty.
mpcore_status extent_of(const mpcore_gemm_args& g, const Operand& x, Extent* out) {
  *out = {static_cast<const char*>(x.matrix.data), 0};
  if (is_empty(g, x)) return MPCORE_OK;
  int64_t low = 0, high = 1;
  for (const auto& [count, stride] : {std::pair{g.batch, x.matrix.batch_stride},
                                      {x.rows, x.matrix.row_stride},
                                      {x.cols, x.matrix.col_stride}}) {
    int64_t reach;
    if (count > 1 &&
        (__builtin_mul_overflow(count - 1, stride, &reach) ||
         __builtin_add_overflow(reach < 0 ? low : high, reach, reach < 0 ? &low : &high)))
      return fail(MPCORE_INVALID_ARGUMENT, "%s: the strides of %s reach beyond 2^63 elements",
                  kName, x.name);
  }
  const int64_t size = dtype_size(x.matrix.dtype);
  int64_t span;
  if (__builtin_sub_overflow(high, low, &span) || __builtin_mul_overflow(span, size, &span))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: the strides of %s reach beyond 2^63 bytes", kName,
                x.name);
  *out = {static_cast<const char*>(x.matrix.data) + low * size, span};
  return MPCORE_OK;
}

mpcore_status check_matrix(const mpcore_gemm_args& g, const Operand& x) {
  if (const auto s = check_compute_dtype(kName, x.name, x.matrix.dtype)) return s;
  if (x.matrix.reserved != 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s.reserved must be 0 (got %d)", kName, x.name,
                x.matrix.reserved);
  return check_pointer(kName, x.name, x.matrix.data, is_empty(g, x) ? 0 : 1);
}

// Do the elements of an output lie apart? Taken from the smallest stride to the largest, each must
// reach over all that the smaller ones span.
mpcore_status check_distinct(const mpcore_gemm_args& g, const Operand& x) {
  if (is_empty(g, x)) return MPCORE_OK;
  struct Axis {
    uint64_t stride, count;
  };
  const auto axis = [](int64_t stride, int64_t count) -> Axis {
    const auto s = static_cast<uint64_t>(stride);
    return {stride < 0 ? -s : s, static_cast<uint64_t>(count)};
  };
  std::array axes = {axis(x.matrix.batch_stride, g.batch), axis(x.matrix.row_stride, x.rows),
                     axis(x.matrix.col_stride, x.cols)};
  std::ranges::sort(axes, {}, &Axis::stride);
  uint64_t span = 0;  // of the axes so far; extent_of() has shown that it cannot overflow
  for (const auto& [stride, count] : axes) {
    if (count <= 1) continue;
    if (stride <= span)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: elements of %s overlap (batch_stride=%lld, row_stride=%lld, "
                  "col_stride=%lld)",
                  kName, x.name, static_cast<long long>(x.matrix.batch_stride),
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
  if (const auto s = extent_of(g, output, &x)) return s;
  if (const auto s = extent_of(g, other, &y)) return s;
  if (!ranges_overlap(x.begin, x.bytes, y.begin, y.bytes)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must not overlap %s%s", kName, output.name,
              other.name, may_be_same ? ", unless it is the same matrix" : "");
}

}  // namespace

mpcore_status check_gemm(const mpcore_gemm_args* args) {
  if (args == nullptr) return fail(MPCORE_INVALID_ARGUMENT, "%s: args must not be NULL", kName);
  if (const auto s = check_struct(kName, "args", args, args->struct_size, sizeof(*args))) return s;
  const mpcore_gemm_args& g = *args;
  if (const auto s = check_scalars(g)) return s;
  const Operand a{"a", g.a, g.m, g.k}, b{"b", g.b, g.k, g.n}, d{"d", g.d, g.m, g.n};
  const Operand residual{"residual", g.residual, g.m, g.n};
  const Operand pre_activation{"pre_activation", g.pre_activation, g.m, g.n};
  const mpcore_matrix bias{const_cast<void*>(g.bias), 0, 1, 0, g.bias_dtype, 0};
  for (const auto& x : {a, b, d})
    if (const auto s = check_matrix(g, x)) return s;
  for (const auto& x : {residual, pre_activation})
    if (x.matrix.data != nullptr)
      if (const auto s = check_matrix(g, x)) return s;
  if (g.a.dtype != g.b.dtype)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: a and b must have one dtype (got %s and %s)", kName,
                mpcore_dtype_name(g.a.dtype), mpcore_dtype_name(g.b.dtype));
  for (const auto& output : {d, pre_activation}) {
    if (output.matrix.data == nullptr) continue;
    for (const auto& input : {a, b, residual, Operand{"bias", bias, 1, g.n}})
      if (const auto s = check_apart(g, output, input)) return s;
    Extent extent;
    if (const auto s = extent_of(g, output, &extent)) return s;
    if (const auto s = check_distinct(g, output)) return s;
  }
  return check_apart(g, pre_activation, d);
}

}  // namespace mpcore
