// The optim column: argument checks, scalars, and the split over threads.
#include "mpcore/optim.h"

#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <utility>

#include "api/check.h"
#include "api/partition.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Elements per block and blocks per task: about 0.9 MiB of Adam's traffic, tens of microseconds.
constexpr int64_t kBlock = 1024, kTaskBlocks = 32;
constexpr int kMaxStates = 4;

mpcore_status check_dtypes(const char* function, int64_t t, const mpcore_optim_tensor& x) {
  const auto unsupported = [&](const char* field, const char* valid, mpcore_dtype got) {
    return fail(dtype_size(got) == 0 ? MPCORE_INVALID_ARGUMENT : MPCORE_UNSUPPORTED,
                "%s: tensors[%" PRId64 "].%s must be %s (got %s)", function, t, field, valid,
                mpcore_dtype_name(got));
  };
  if (!is_float_dtype(x.param_dtype))
    return unsupported("param_dtype", "float32, float16, bfloat16, or float64", x.param_dtype);
  const bool wide = x.param_dtype == MPCORE_DTYPE_F64;
  if (!is_compute_dtype(x.grad_dtype) && !(wide && x.grad_dtype == MPCORE_DTYPE_F64))
    return unsupported("grad_dtype",
                       wide ? "float32, float16, bfloat16, or float64"
                            : "float32, float16, or bfloat16 (float64 only with a float64 param)",
                       x.grad_dtype);
  if (x.copy != nullptr && x.copy_dtype != MPCORE_DTYPE_F16 && x.copy_dtype != MPCORE_DTYPE_BF16)
    return unsupported("copy_dtype", "float16 or bfloat16", x.copy_dtype);
  return MPCORE_OK;
}

struct Array {
  const char* name;
  const void* data;
  mpcore_dtype dtype;
};

// Pointers of one tensor: what the update needs is there, what it does not use is NULL, and no two
// arrays share a byte.
mpcore_status check_arrays(const char* function, int64_t t, const mpcore_optim_tensor& x,
                           int states) {
  static constexpr const char* kStateNames[kMaxStates] = {"state[0]", "state[1]", "state[2]",
                                                          "state[3]"};
  const mpcore_dtype state_dtype =
      x.param_dtype == MPCORE_DTYPE_F64 ? MPCORE_DTYPE_F64 : MPCORE_DTYPE_F32;
  Array arrays[3 + kMaxStates] = {{"param", x.param, x.param_dtype},
                                  {"grad", x.grad, x.grad_dtype}};
  int n = 2;
  for (int k = 0; k < kMaxStates; ++k) {
    if (k < states) {
      arrays[n++] = {kStateNames[k], x.state[k], state_dtype};
    } else if (x.state[k] != nullptr) {
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].%s must be NULL; this update has %d state arrays",
                  function, t, kStateNames[k], states);
    }
  }
  if (x.size == 0) return MPCORE_OK;
  for (int i = 0; i < n; ++i)
    if (arrays[i].data == nullptr)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].%s must not be NULL (size=%" PRId64 ")", function, t,
                  arrays[i].name, x.size);
  if (x.copy != nullptr) arrays[n++] = {"copy", x.copy, x.copy_dtype};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j)
      if (ranges_overlap(arrays[i].data, x.size * dtype_size(arrays[i].dtype), arrays[j].data,
                         x.size * dtype_size(arrays[j].dtype)))
        return fail(MPCORE_INVALID_ARGUMENT, "%s: tensors[%" PRId64 "].%s and .%s must not overlap",
                    function, t, arrays[j].name, arrays[i].name);
  return MPCORE_OK;
}

mpcore_status check_tensors(const char* function, int64_t count, const mpcore_optim_tensor* tensors,
                            int states) {
  if (const auto s = check_size(function, "count", count)) return s;
  if (const auto s = check_pointer(function, "tensors", tensors, count)) return s;
  for (int64_t t = 0; t < count; ++t) {
    const auto& x = tensors[t];
    if (x.size < 0 || x.size > INT64_MAX / 8)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].size must be >= 0 and fit in memory (got %" PRId64 ")",
                  function, t, x.size);
    if (x.reserved != 0)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].reserved must be 0 (got %" PRId32 ")", function, t,
                  x.reserved);
    if (!std::isfinite(x.grad_multiplier))
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].grad_multiplier must be finite (got %g)", function, t,
                  x.grad_multiplier);
    if (!std::isfinite(x.weight_decay))
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].weight_decay must be finite (got %g)", function, t,
                  x.weight_decay);
    if (const auto s = check_dtypes(function, t, x)) return s;
    if (const auto s = check_arrays(function, t, x, states)) return s;
  }
  return MPCORE_OK;
}

// fp32 updates round their constants to fp32. That must not make them infinite, nor turn a positive
// epsilon or clipvalue into 0, which means something else (subnormals count as zero there).
template <class Args>
mpcore_status check_constants(const char* function, int64_t count,
                              const mpcore_optim_tensor* tensors, const Args& args,
                              double epsilon) {
  if (std::all_of(tensors, tensors + count,
                  [](const auto& x) { return x.param_dtype == MPCORE_DTYPE_F64; }))
    return MPCORE_OK;
  if (std::fabs(args.learning_rate) > FLT_MAX)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: learning_rate must be finite in float32 unless all parameters are float64 "
                "(got %g)",
                function, args.learning_rate);
  for (const auto& [name, x] : {std::pair{"epsilon", epsilon}, {"clipvalue", args.clipvalue}})
    if (x != 0 && (x > FLT_MAX || x < FLT_MIN) && !(std::isinf(x)))
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: %s must be 0 or a normal float32 number unless all parameters are float64 "
                  "(got %g)",
                  function, name, x);
  return MPCORE_OK;
}

// What every optimizer's arguments have.
mpcore_status check_common(const char* function, double learning_rate, double clipvalue) {
  if (!std::isfinite(learning_rate))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: learning_rate must be finite (got %g)", function,
                learning_rate);
  if (!(clipvalue >= 0))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: clipvalue must be >= 0 (got %g)", function,
                clipvalue);
  return MPCORE_OK;
}

// Runs kernel(scalars, span) over all elements of all tensors. `scalars` is made by make_scalars()
// in the library's floating-point mode, not the caller's.
template <class Scalars, class MakeScalars>
mpcore_status run_update(mpcore_context* ctx, int64_t count, const mpcore_optim_tensor* tensors,
                         double learning_rate, double clipvalue,
                         void (*KernelTable::*kernel)(const Scalars&, const OptimSpan&),
                         MakeScalars&& make_scalars) {
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto update = session.kernels().*kernel;
  const Partition partition(session, count, kBlock, [&](int64_t t) { return tensors[t].size; });
  if (!partition.valid()) return MPCORE_OUT_OF_MEMORY;
  Scalars scalars;
  if (const auto s = session.serial(FpMode::kIeee, [&] { scalars = make_scalars(); })) return s;

  const int64_t blocks = partition.blocks();
  return session.parallel_for(ceil_div(blocks, kTaskBlocks), FpMode::kFlushAll, [&](int64_t i) {
    const int64_t from = i * kTaskBlocks, to = std::min(blocks, from + kTaskBlocks);
    partition.for_each_piece(from, to, [&](int64_t t, int64_t begin, int64_t end) {
      const auto& x = tensors[t];
      const auto at = [&](void* p, mpcore_dtype dtype) -> void* {
        return p == nullptr ? nullptr : static_cast<char*>(p) + begin * dtype_size(dtype);
      };
      OptimSpan span{};
      span.size = std::min(end, x.size) - begin;
      span.param = at(x.param, x.param_dtype);
      span.grad = at(const_cast<void*>(x.grad), x.grad_dtype);
      span.copy = at(x.copy, x.copy_dtype);
      const bool wide = x.param_dtype == MPCORE_DTYPE_F64;
      for (int k = 0; k < kMaxStates; ++k)
        span.state[k] = at(x.state[k], wide ? MPCORE_DTYPE_F64 : MPCORE_DTYPE_F32);
      span.param_dtype = x.param_dtype;
      span.grad_dtype = x.grad_dtype;
      span.copy_dtype = x.copy_dtype;
      span.grad_multiplier = x.grad_multiplier;
      span.decay_rate = x.weight_decay * learning_rate;
      span.clipvalue = clipvalue;
      update(scalars, span);
    });
  });
}

template <class Args>
mpcore_status check_args(const char* function, const Args* args) {
  if (const auto s = check_pointer(function, "args", args, 1)) return s;
  if (const auto s = check_struct(function, "args", args, args->struct_size, sizeof(*args)))
    return s;
  return check_common(function, args->learning_rate, args->clipvalue);
}

mpcore_status sgd_step(mpcore_context* ctx, const mpcore_sgd_args* args, int64_t count,
                       const mpcore_optim_tensor* tensors) {
  constexpr const char* kName = "mpcore_sgd_step";
  if (const auto s = check_args(kName, args)) return s;
  if (!(args->momentum >= 0 && args->momentum <= 1))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: momentum must be in [0, 1] (got %g)", kName,
                args->momentum);
  if (args->nesterov != 0 && args->nesterov != 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: nesterov must be 0 or 1 (got %" PRId32 ")", kName,
                args->nesterov);
  if (const auto s = check_tensors(kName, count, tensors, args->momentum == 0 ? 0 : 1)) return s;
  if (const auto s = check_constants(kName, count, tensors, *args, 0)) return s;
  return run_update(ctx, count, tensors, args->learning_rate, args->clipvalue, &KernelTable::sgd,
                    [&] {
                      return SgdScalars{.learning_rate = args->learning_rate,
                                        .momentum = args->momentum,
                                        .nesterov = args->nesterov != 0};
                    });
}

mpcore_status adam_step(mpcore_context* ctx, const mpcore_adam_args* args, int64_t count,
                        const mpcore_optim_tensor* tensors) {
  constexpr const char* kName = "mpcore_adam_step";
  if (const auto s = check_args(kName, args)) return s;
  if (!(args->beta_1 >= 0 && args->beta_1 < 1))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: beta_1 must be in [0, 1) (got %g)", kName,
                args->beta_1);
  if (!(args->beta_2 >= 0 && args->beta_2 < 1))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: beta_2 must be in [0, 1) (got %g)", kName,
                args->beta_2);
  if (!(args->epsilon >= 0) || !std::isfinite(args->epsilon))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: epsilon must be finite and >= 0 (got %g)", kName,
                args->epsilon);
  if (args->step < 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: step must be >= 1 (got %" PRId64 ")", kName,
                args->step);
  if (args->amsgrad != 0 && args->amsgrad != 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: amsgrad must be 0 or 1 (got %" PRId32 ")", kName,
                args->amsgrad);
  if (const auto s = check_tensors(kName, count, tensors, args->amsgrad ? 3 : 2)) return s;
  if (const auto s = check_constants(kName, count, tensors, *args, args->epsilon)) return s;
  return run_update(
      ctx, count, tensors, args->learning_rate, args->clipvalue, &KernelTable::adam, [&] {
        const double t = static_cast<double>(args->step);
        return AdamScalars{.alpha = args->learning_rate * std::sqrt(1 - std::pow(args->beta_2, t)) /
                                    (1 - std::pow(args->beta_1, t)),
                           .one_minus_beta_1 = 1 - args->beta_1,
                           .one_minus_beta_2 = 1 - args->beta_2,
                           .epsilon = args->epsilon,
                           .amsgrad = args->amsgrad != 0};
      });
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_sgd_step(mpcore_context* ctx, const mpcore_sgd_args* args, int64_t count,
                              const mpcore_optim_tensor* tensors) {
  return mpcore::guarded([&] { return mpcore::sgd_step(ctx, args, count, tensors); });
}

mpcore_status mpcore_adam_step(mpcore_context* ctx, const mpcore_adam_args* args, int64_t count,
                               const mpcore_optim_tensor* tensors) {
  return mpcore::guarded([&] { return mpcore::adam_step(ctx, args, count, tensors); });
}
