// Attention: a task is one head of one batch element, and goes through its queries in blocks.
#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <initializer_list>
#include <utility>

#include "api/check.h"
#include "api/gemm_args.h"
#include "api/gemm_pack.h"
#include "api/gemm_problem.h"
#include "api/gemm_product.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Queries whose scores exist at a time. Fixed: dk and dv are summed block by block.
constexpr int64_t kQueryBlock = 64;

constexpr int64_t kFloat = sizeof(float);

mpcore_matrix matrix(const void* data, int64_t row_stride, mpcore_dtype dtype) {
  return {const_cast<void*>(data), row_stride, 1, 0, dtype, 0};
}
mpcore_matrix transposed(mpcore_matrix x) {
  std::swap(x.row_stride, x.col_stride);
  return x;
}

struct Gradients {
  const void* dy;
  void *dq, *dk, *dv;
};

class AttentionHead {
 public:
  AttentionHead(Session& session, const mpcore_attention_args& args, int64_t index)
      : session_(session), a_(args), batch_(index / args.heads), head_(index % args.heads) {}

  mpcore_status forward(void* y) {
    if (const auto s = allocate(false)) return s;
    if (const auto s = pack(transposed(keys()), a_.depth, a_.keys, &packed_k_)) return s;
    if (const auto s = pack(values(), a_.keys, a_.value_depth, &packed_v_)) return s;
    for (int64_t first = 0; first < a_.queries; first += kQueryBlock) {
      const int64_t rows = std::min(kQueryBlock, a_.queries - first), cols = columns(first, rows);
      if (const auto s = probabilities(first, rows, cols)) return s;
      const mpcore_matrix p = matrix(probabilities_, cols, a_.dtype);
      const mpcore_matrix to = part(y, a_.queries, a_.value_depth, first);
      if (const auto s = cols == a_.keys
                             ? multiply_packed(rows, a_.value_depth, cols, p, packed_v_, to)
                             : multiply_plain(rows, a_.value_depth, cols, p, values(), to, false))
        return s;
    }
    return MPCORE_OK;
  }

  mpcore_status backward(const Gradients& g) {
    if (const auto s = allocate(true)) return s;
    if (const auto s = pack(transposed(keys()), a_.depth, a_.keys, &packed_k_)) return s;
    const mpcore_matrix dk = matrix(dk_, a_.depth, MPCORE_DTYPE_F32);
    const mpcore_matrix dv = matrix(dv_, a_.value_depth, MPCORE_DTYPE_F32);
    std::fill_n(dk_, a_.keys * a_.depth, 0.0f);
    std::fill_n(dv_, a_.keys * a_.value_depth, 0.0f);
    for (int64_t first = 0; first < a_.queries; first += kQueryBlock) {
      const int64_t rows = std::min(kQueryBlock, a_.queries - first), cols = columns(first, rows);
      if (const auto s = probabilities(first, rows, cols)) return s;
      const mpcore_matrix p = matrix(probabilities_, cols, a_.dtype);
      const mpcore_matrix dy = part(g.dy, a_.queries, a_.value_depth, first);
      if (const auto s = multiply_plain(cols, a_.value_depth, rows, transposed(p), dy, dv, true))
        return s;
      if (const auto s = multiply_plain(rows, cols, a_.value_depth, dy, transposed(values()),
                                        matrix(scores_, cols, MPCORE_DTYPE_F32), false))
        return s;
      if (const auto s = slopes(rows, cols)) return s;
      const mpcore_matrix ds = matrix(dscores_, cols, a_.dtype);
      if (const auto s = multiply_plain(rows, a_.depth, cols, ds, keys(),
                                        part(g.dq, a_.queries, a_.depth, first), false))
        return s;
      if (const auto s =
              multiply_plain(cols, a_.depth, rows, transposed(ds), queries(first), dk, true))
        return s;
    }
    round_to(dk_, g.dk, a_.depth);
    round_to(dv_, g.dv, a_.value_depth);
    return MPCORE_OK;
  }

 private:
  int64_t size() const { return dtype_size(a_.dtype); }

  // The matrix of this head, from a position on.
  mpcore_matrix part(const void* data, int64_t positions, int64_t depth, int64_t first) const {
    const int64_t at = ((batch_ * positions + first) * a_.heads + head_) * depth;
    return matrix(advance(data, at * size()), a_.heads * depth, a_.dtype);
  }
  mpcore_matrix queries(int64_t first) const { return part(a_.q, a_.queries, a_.depth, first); }
  mpcore_matrix keys() const { return part(a_.k, a_.keys, a_.depth, 0); }
  mpcore_matrix values() const { return part(a_.v, a_.keys, a_.value_depth, 0); }

  // Keys that a block looks at. With a mask it may be that no score counts: then all keys do.
  int64_t columns(int64_t first, int64_t rows) const {
    return a_.causal != 0 && a_.mask == nullptr ? std::min(a_.keys, first + rows) : a_.keys;
  }

  mpcore_status allocate(bool backward) {
    const int64_t block = std::min(kQueryBlock, a_.queries) * a_.keys;
    const auto take = [&](auto** array, int64_t bytes) {
      *array = static_cast<std::remove_reference_t<decltype(*array)>>(session_.workspace(bytes));
      return *array != nullptr;
    };
    bool done = take(&scores_, block * kFloat) && take(&probabilities_, block * size());
    if (done && backward)
      done = take(&dscores_, block * size()) && take(&dk_, a_.keys * a_.depth * kFloat) &&
             take(&dv_, a_.keys * a_.value_depth * kFloat);
    return done ? MPCORE_OK : MPCORE_OUT_OF_MEMORY;
  }

  mpcore_status pack(const mpcore_matrix& b, int64_t k, int64_t n, const void** packed) {
    const PackedShape shape{k, n, a_.dtype, precision()};
    const PackFormat& format = pack_format(session_, shape);
    void* const data = session_.workspace(format.size(session_, shape));
    if (data == nullptr) return MPCORE_OUT_OF_MEMORY;
    *packed = data;
    return format.pack(session_, shape, b, data);
  }
  mpcore_matmul_precision precision() const {
    return resolve_precision(session_, a_.dtype, MPCORE_MATMUL_PRECISION_DEFAULT);
  }

  GemmProblem product(int64_t m, int64_t n, int64_t k, const mpcore_matrix& a,
                      const mpcore_matrix& d) const {
    return plain_product(m, n, k, a, matrix(nullptr, 0, a_.dtype), d, precision());
  }
  mpcore_status multiply_packed(int64_t m, int64_t n, int64_t k, const mpcore_matrix& a,
                                const void* packed_b, const mpcore_matrix& d, float alpha = 1.0f) {
    GemmProblem problem = product(m, n, k, a, d);
    problem.packed_b = packed_b;
    problem.alpha = alpha;
    return multiply(session_, problem);
  }
  mpcore_status multiply_plain(int64_t m, int64_t n, int64_t k, const mpcore_matrix& a,
                               const mpcore_matrix& b, const mpcore_matrix& d, bool add) {
    GemmProblem problem = product(m, n, k, a, d);
    problem.b = b;
    problem.beta = add ? 1.0f : 0.0f;
    return multiply(session_, problem);
  }

  // Of queries [first, first + rows) and the first `cols` keys.
  mpcore_status probabilities(int64_t first, int64_t rows, int64_t cols) {
    const mpcore_matrix to = matrix(scores_, cols, MPCORE_DTYPE_F32);
    if (const auto s = cols == a_.keys ? multiply_packed(rows, cols, a_.depth, queries(first),
                                                         packed_k_, to, a_.scale)
                                       : scaled_scores(rows, cols, first, to))
      return s;
    const auto start = [&](const int64_t* stride) {
      return batch_ * stride[0] + head_ * stride[1] + first * stride[2];
    };
    return session_.serial(FpMode::kIeee, [&] {
      session_.kernels().attention(
          {.rows = rows,
           .cols = cols,
           .scores = scores_,
           .probabilities = probabilities_,
           .dtype = a_.dtype,
           .bias = a_.bias == nullptr ? nullptr : a_.bias + start(a_.bias_strides),
           .bias_stride = a_.bias_strides[2],
           .mask = a_.mask == nullptr ? nullptr : a_.mask + start(a_.mask_strides),
           .mask_stride = a_.mask_strides[2],
           .visible = a_.causal != 0 ? first + 1 : cols,
           .scale = a_.scale,
           .dscores = nullptr});
    });
  }
  mpcore_status scaled_scores(int64_t rows, int64_t cols, int64_t first, const mpcore_matrix& to) {
    GemmProblem problem = product(rows, cols, a_.depth, queries(first), to);
    problem.b = transposed(keys());
    problem.alpha = a_.scale;
    return multiply(session_, problem);
  }

  // From the gradients of probabilities, where the scores were, to those of the scores.
  mpcore_status slopes(int64_t rows, int64_t cols) {
    return session_.serial(FpMode::kIeee, [&] {
      session_.kernels().attention_backward({.rows = rows,
                                             .cols = cols,
                                             .scores = scores_,
                                             .probabilities = probabilities_,
                                             .dtype = a_.dtype,
                                             .bias = nullptr,
                                             .bias_stride = 0,
                                             .mask = nullptr,
                                             .mask_stride = 0,
                                             .visible = cols,
                                             .scale = a_.scale,
                                             .dscores = dscores_});
    });
  }

  void round_to(const float* sums, void* out, int64_t depth) {
    const mpcore_matrix to = part(out, a_.keys, depth, 0);
    for (int64_t j = 0; j < a_.keys; ++j)
      session_.kernels().cast(sums + j * depth, MPCORE_DTYPE_F32, element(to, j, 0), a_.dtype,
                              depth);
  }

  Session& session_;
  const mpcore_attention_args& a_;
  const int64_t batch_, head_;
  float *scores_ = nullptr, *dk_ = nullptr, *dv_ = nullptr;
  void *probabilities_ = nullptr, *dscores_ = nullptr;
  const void *packed_k_ = nullptr, *packed_v_ = nullptr;
};

// Runs body(head) for every head of every batch element, each in a session of its own.
template <class Body>
mpcore_status for_each_head(mpcore_context* ctx, const mpcore_attention_args& args, Body&& body) {
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  std::atomic<mpcore_status> worst{MPCORE_OK};
  const auto run = [&](int64_t i) {
    Session own(ctx);
    mpcore_status status = own.status();
    if (status == MPCORE_OK) status = body(AttentionHead(own, args, i));
    if (status != MPCORE_OK) worst.store(status, std::memory_order_relaxed);
  };
  if (const auto s = session.parallel_for(args.batch * args.heads, FpMode::kIeee, run)) return s;
  const mpcore_status status = worst.load(std::memory_order_relaxed);
  if (status == MPCORE_OK) return status;
  return fail(status, "mpcore_attention: a task failed: %s", mpcore_status_name(status));
}

struct Lengths {
  int64_t q, k, v, y;
};

mpcore_status check_lengths(const char* function, const mpcore_attention_args& a, Lengths* out) {
  const auto product = [&](std::initializer_list<int64_t> lengths, int64_t* size) {
    *size = 1;
    for (const int64_t length : lengths)
      if (__builtin_mul_overflow(*size, length, size)) return false;
    return *size <= INT64_MAX / 8;
  };
  int64_t scores;
  if (product({a.batch, a.queries, a.heads, a.depth}, &out->q) &&
      product({a.batch, a.keys, a.heads, a.depth}, &out->k) &&
      product({a.batch, a.keys, a.heads, a.value_depth}, &out->v) &&
      product({a.batch, a.queries, a.heads, a.value_depth}, &out->y) &&
      product({kQueryBlock, a.keys}, &scores))
    return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT, "%s: every array must fit in memory", function);
}

mpcore_status check_strides(const char* function, const char* name, const int64_t* strides) {
  for (int i = 0; i < 3; ++i)
    if (strides[i] < 0)
      return fail(MPCORE_INVALID_ARGUMENT, "%s: args->%s must be >= 0 (got %" PRId64 ")", function,
                  name, strides[i]);
  return MPCORE_OK;
}

mpcore_status check_attention(const char* function, const mpcore_attention_args* args,
                              Lengths* lengths) {
  if (const auto s = check_pointer(function, "args", args, 1)) return s;
  if (const auto s = check_struct(function, "args", args, args->struct_size, sizeof(*args)))
    return s;
  const mpcore_attention_args& a = *args;
  if (const auto s = check_compute_dtype(function, "args->dtype", a.dtype)) return s;
  for (const auto& [name, size] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"batch", a.batch},
                                                              {"heads", a.heads},
                                                              {"queries", a.queries},
                                                              {"keys", a.keys},
                                                              {"depth", a.depth},
                                                              {"value_depth", a.value_depth}})
    if (const auto s = check_size(function, name, size)) return s;
  if (const auto s = check_lengths(function, a, lengths)) return s;
  if (a.causal != 0 && a.causal != 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: causal must be 0 or 1 (got %" PRId32 ")", function,
                a.causal);
  if (a.keys == 0 && lengths->y > 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: keys must be >= 1 (got keys=0)", function);
  if (const auto s = check_strides(function, "bias_strides", a.bias_strides)) return s;
  if (const auto s = check_strides(function, "mask_strides", a.mask_strides)) return s;
  if (const auto s = check_pointer(function, "q", a.q, lengths->q)) return s;
  if (const auto s = check_pointer(function, "k", a.k, lengths->k)) return s;
  return check_pointer(function, "v", a.v, lengths->v);
}

// Bytes that a bias or a mask reaches over.
int64_t reach(const mpcore_attention_args& a, const int64_t* strides, int64_t size) {
  if (a.batch == 0 || a.heads == 0 || a.queries == 0) return 0;
  return ((a.batch - 1) * strides[0] + (a.heads - 1) * strides[1] + (a.queries - 1) * strides[2] +
          a.keys) *
         size;
}

mpcore_status check_output(const char* function, const mpcore_attention_args& a,
                           const Lengths& lengths, const ByteRange& output) {
  const int64_t size = dtype_size(a.dtype);
  if (const auto s = check_pointer(function, output.name, output.data, output.bytes)) return s;
  for (const ByteRange& input :
       std::initializer_list<ByteRange>{{"q", a.q, lengths.q * size},
                                        {"k", a.k, lengths.k * size},
                                        {"v", a.v, lengths.v * size},
                                        {"bias", a.bias, reach(a, a.bias_strides, kFloat)},
                                        {"mask", a.mask, reach(a, a.mask_strides, 1)}})
    if (const auto s = check_apart(function, output, input)) return s;
  return MPCORE_OK;
}

mpcore_status attention(mpcore_context* ctx, const mpcore_attention_args* args, void* y) {
  constexpr const char* kName = "mpcore_attention";
  Lengths lengths;
  if (const auto s = check_attention(kName, args, &lengths)) return s;
  const ByteRange output{"y", y, lengths.y * dtype_size(args->dtype)};
  if (const auto s = check_output(kName, *args, lengths, output)) return s;
  if (lengths.y == 0) return MPCORE_OK;
  return for_each_head(ctx, *args, [&](AttentionHead head) { return head.forward(y); });
}

mpcore_status attention_backward(mpcore_context* ctx, const mpcore_attention_args* args,
                                 const Gradients& g) {
  constexpr const char* kName = "mpcore_attention_backward";
  Lengths lengths;
  if (const auto s = check_attention(kName, args, &lengths)) return s;
  const int64_t size = dtype_size(args->dtype);
  const ByteRange dy{"dy", g.dy, lengths.y * size};
  const ByteRange outputs[] = {{"dq", g.dq, lengths.q * size},
                               {"dk", g.dk, lengths.k * size},
                               {"dv", g.dv, lengths.v * size}};
  if (const auto s = check_pointer(kName, "dy", g.dy, dy.bytes)) return s;
  for (const ByteRange& output : outputs) {
    if (const auto s = check_output(kName, *args, lengths, output)) return s;
    if (const auto s = check_apart(kName, output, dy)) return s;
    for (const ByteRange& other : outputs)
      if (&other != &output)
        if (const auto s = check_apart(kName, output, other)) return s;
  }
  return for_each_head(ctx, *args, [&](AttentionHead head) { return head.backward(g); });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_attention(mpcore_context* ctx, const mpcore_attention_args* args, void* y) {
  return mpcore::guarded([&] { return mpcore::attention(ctx, args, y); });
}

mpcore_status mpcore_attention_backward(mpcore_context* ctx, const mpcore_attention_args* args,
                                        const void* dy, void* dq, void* dk, void* dv) {
  return mpcore::guarded([&] { return mpcore::attention_backward(ctx, args, {dy, dq, dk, dv}); });
}
