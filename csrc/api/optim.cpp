// The optim column: argument checks, scalars, and the split over threads.
#include "mpcore/optim.h"

#include <algorithm>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <utility>

#include "api/check.h"
#include "api/optim_rules.h"
#include "api/partition.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

constexpr const char* kFunction = "mpcore_optim_step";
// Blocks per task: about 0.9 MiB of Adam's traffic, tens of microseconds.
constexpr int64_t kTaskBlocks = 32;
// From here on copies are written past the caches, which cannot hold what a step touches.
constexpr int64_t kStreamBytes = int64_t{1} << 25;

mpcore_status check_dtypes(int64_t t, const mpcore_optim_tensor& x) {
  const auto unsupported = [&](const char* field, const char* valid, mpcore_dtype got) {
    return fail(dtype_size(got) == 0 ? MPCORE_INVALID_ARGUMENT : MPCORE_UNSUPPORTED,
                "%s: tensors[%" PRId64 "].%s must be %s (got %s)", kFunction, t, field, valid,
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
  if (wide ? x.state_dtype != MPCORE_DTYPE_F64
           : x.state_dtype != MPCORE_DTYPE_F32 && x.state_dtype != MPCORE_DTYPE_BF16)
    return unsupported("state_dtype", wide ? "float64 with a float64 param" : "float32 or bfloat16",
                       x.state_dtype);
  if (x.remainder != nullptr && x.param_dtype != MPCORE_DTYPE_BF16)
    return unsupported("param_dtype", "bfloat16 with a remainder", x.param_dtype);
  return MPCORE_OK;
}

struct Array {
  const char* name;
  const void* data;
  mpcore_dtype dtype;
};

// Pointers of one tensor: what the update needs is there, what it does not use is NULL, and no two
// arrays share a byte.
mpcore_status check_arrays(int64_t t, const mpcore_optim_tensor& x, int states) {
  static constexpr const char* kStateNames[kOptimStates] = {"state[0]", "state[1]", "state[2]",
                                                            "state[3]"};
  Array arrays[4 + kOptimStates] = {{"param", x.param, x.param_dtype},
                                    {"grad", x.grad, x.grad_dtype}};
  int n = 2;
  for (int k = 0; k < kOptimStates; ++k) {
    if (k < states) {
      arrays[n++] = {kStateNames[k], x.state[k], x.state_dtype};
    } else if (x.state[k] != nullptr) {
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].%s must be NULL; this update has %d state arrays",
                  kFunction, t, kStateNames[k], states);
    }
  }
  if (x.size == 0) return MPCORE_OK;
  for (int i = 0; i < n; ++i)
    if (arrays[i].data == nullptr)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].%s must not be NULL (size=%" PRId64 ")", kFunction, t,
                  arrays[i].name, x.size);
  if (x.remainder != nullptr) arrays[n++] = {"remainder", x.remainder, x.param_dtype};
  if (x.copy != nullptr) arrays[n++] = {"copy", x.copy, x.copy_dtype};
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < i; ++j)
      if (ranges_overlap(arrays[i].data, x.size * dtype_size(arrays[i].dtype), arrays[j].data,
                         x.size * dtype_size(arrays[j].dtype)))
        return fail(MPCORE_INVALID_ARGUMENT, "%s: tensors[%" PRId64 "].%s and .%s must not overlap",
                    kFunction, t, arrays[j].name, arrays[i].name);
  return MPCORE_OK;
}

mpcore_status check_tensors(int64_t count, const mpcore_optim_tensor* tensors, int states) {
  if (const auto s = check_size(kFunction, "count", count)) return s;
  if (const auto s = check_pointer(kFunction, "tensors", tensors, count)) return s;
  for (int64_t t = 0; t < count; ++t) {
    const auto& x = tensors[t];
    if (x.size < 0 || x.size > INT64_MAX / 8)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: tensors[%" PRId64 "].size must be >= 0 and fit in memory (got %" PRId64 ")",
                  kFunction, t, x.size);
    if (const auto s = check_dtypes(t, x)) return s;
    // In fp32 an infinity would make NaN of zeros.
    const double largest = x.param_dtype == MPCORE_DTYPE_F64 ? DBL_MAX : FLT_MAX;
    for (const auto& [name, factor] :
         {std::pair{"grad_multiplier", x.grad_multiplier}, {"weight_decay", x.weight_decay}})
      if (!(std::fabs(factor) <= largest))
        return fail(MPCORE_INVALID_ARGUMENT,
                    "%s: tensors[%" PRId64
                    "].%s must be finite, in float32 unless the param is float64 (got %g)",
                    kFunction, t, name, factor);
    if (const auto s = check_arrays(t, x, states)) return s;
  }
  return MPCORE_OK;
}

// fp32 updates round their constants to fp32. That must not make them infinite, nor turn a positive
// epsilon or clipvalue into 0, which means something else (subnormals count as zero there).
mpcore_status check_constants(int64_t count, const mpcore_optim_tensor* tensors,
                              const mpcore_optim_args& args) {
  if (std::all_of(tensors, tensors + count,
                  [](const auto& x) { return x.param_dtype == MPCORE_DTYPE_F64; }))
    return MPCORE_OK;
  if (std::fabs(args.learning_rate) > FLT_MAX)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: learning_rate must be finite in float32 unless all parameters are float64 "
                "(got %g)",
                kFunction, args.learning_rate);
  for (const auto& [name, x] : {std::pair{"epsilon", args.epsilon}, {"clipvalue", args.clipvalue}})
    if (x != 0 && (x > FLT_MAX || x < FLT_MIN) && !(std::isinf(x)))
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: %s must be 0 or a normal float32 number unless all parameters are float64 "
                  "(got %g)",
                  kFunction, name, x);
  return MPCORE_OK;
}

mpcore_status check_args(const mpcore_optim_args* args) {
  if (const auto s = check_pointer(kFunction, "args", args, 1)) return s;
  if (const auto s = check_struct(kFunction, "args", args, args->struct_size, sizeof(*args)))
    return s;
  const OptimRule* const rule = optim_rule(args->optimizer);
  if (rule == nullptr)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: optimizer is no mpcore_optimizer (got %" PRId32 ")",
                kFunction, args->optimizer);
  if (!std::isfinite(args->learning_rate))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: learning_rate must be finite (got %g)", kFunction,
                args->learning_rate);
  if (!(args->clipvalue >= 0))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: clipvalue must be >= 0 (got %g)", kFunction,
                args->clipvalue);
  for (const auto& [name, value] :
       {std::pair{"step", args->step - 1}, {"warmup_steps", args->warmup_steps}})
    if (value < 0)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: %s is too small (step=%" PRId64 ", warmup_steps=%" PRId64 ")", kFunction,
                  name, args->step, args->warmup_steps);
  if (args->rounding != MPCORE_ROUNDING_NEAREST && args->rounding != MPCORE_ROUNDING_STOCHASTIC)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: rounding is no mpcore_rounding (got %" PRId32 ")",
                kFunction, args->rounding);
  for (const auto& scalar : rule->scalars)
    if (scalar.name != nullptr && !scalar.contains(args->*scalar.value))
      return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must be in %s (got %g)", kFunction, scalar.name,
                  scalar.range, args->*scalar.value);
  for (const auto& flag : rule->flags)
    if (flag.name != nullptr && args->*flag.value != 0 && args->*flag.value != 1)
      return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must be 0 or 1 (got %" PRId32 ")", kFunction,
                  flag.name, args->*flag.value);
  return MPCORE_OK;
}

OptimScalars make_scalars(const mpcore_optim_args& args) {
  const auto t = static_cast<double>(args.step);
  const auto mu = [&](double step) { return args.beta_1 * (1 - 0.5 * std::pow(0.96, step)); };
  const auto warmup = static_cast<double>(args.warmup_steps);
  return {.args = &args,
          .beta_1_power = std::pow(args.beta_1, t),
          .beta_2_power = std::pow(args.beta_2, t),
          .mu = mu(t),
          .next_mu = mu(t + 1),
          .warmup = t < warmup ? t / warmup : 1};
}

// The next key after `key` with `word` taken in: a step of SplitMix64.
uint64_t mixed(uint64_t key, uint64_t word) {
  uint64_t z = (key ^ word) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t bytes_of(const mpcore_optim_tensor& x, int states) {
  const int64_t each =
      dtype_size(x.param_dtype) + dtype_size(x.grad_dtype) + states * dtype_size(x.state_dtype);
  return x.size * each;
}

// Elements [begin, end) of a tensor.
OptimSpan span_of(const mpcore_optim_args& args, const mpcore_optim_tensor& x, int64_t begin,
                  int64_t end) {
  const auto at = [&](void* p, mpcore_dtype dtype) -> void* {
    return p == nullptr ? nullptr : static_cast<char*>(p) + begin * dtype_size(dtype);
  };
  OptimSpan span{};
  span.size = end - begin;
  span.offset = begin;
  span.param = at(x.param, x.param_dtype);
  span.grad = at(const_cast<void*>(x.grad), x.grad_dtype);
  span.copy = at(x.copy, x.copy_dtype);
  span.remainder = at(x.remainder, x.param_dtype);
  span.param_dtype = x.param_dtype;
  span.grad_dtype = x.grad_dtype;
  span.copy_dtype = x.copy_dtype;
  span.state_dtype = x.state_dtype;
  span.grad_multiplier = x.grad_multiplier;
  span.decay_rate = x.weight_decay * args.learning_rate;
  span.clipvalue = args.clipvalue;
  span.stochastic = args.rounding == MPCORE_ROUNDING_STOCHASTIC;
  const uint64_t key =
      mixed(mixed(args.seed, static_cast<uint64_t>(args.step)), static_cast<uint64_t>(x.index));
  span.param_seed = mixed(key, 0);
  for (int k = 0; k < kOptimStates; ++k) {
    span.state[k] = at(x.state[k], x.state_dtype);
    span.state_seed[k] = mixed(key, static_cast<uint64_t>(k) + 1);
  }
  return span;
}

// What the step of a tensor is stretched by: |w| / |direction|.
double norm_ratio(const double* squares, int64_t blocks) {
  double sums[2] = {0, 0};
  for (int64_t b = 0; b < blocks; ++b)
    for (int k = 0; k < 2; ++k) sums[k] += squares[2 * b + k];
  return sums[0] > 0 && sums[1] > 0 ? std::sqrt(sums[0]) / std::sqrt(sums[1]) : 1;
}

mpcore_status optim_step(mpcore_context* ctx, const mpcore_optim_args* args, int64_t count,
                         const mpcore_optim_tensor* tensors) {
  if (const auto s = check_args(args)) return s;
  const OptimRule& rule = *optim_rule(args->optimizer);
  const int states = rule.states(*args);
  if (const auto s = check_tensors(count, tensors, states)) return s;
  if (const auto s = check_constants(count, tensors, *args)) return s;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const Partition partition(session, count, kOptimBlock,
                            [&](int64_t t) { return tensors[t].size; });
  if (!partition.valid()) return MPCORE_OUT_OF_MEMORY;
  const int64_t blocks = partition.blocks();
  const bool measures = rule.measures;
  double *squares = nullptr, *ratios = nullptr;
  if (measures) {
    squares = static_cast<double*>(session.workspace(2 * blocks * sizeof(double)));
    ratios = static_cast<double*>(session.workspace(count * sizeof(double)));
    if (squares == nullptr || ratios == nullptr) return MPCORE_OUT_OF_MEMORY;
  }
  OptimScalars scalars;
  if (const auto s = session.serial(FpMode::kIeee, [&] { scalars = make_scalars(*args); }))
    return s;
  int64_t bytes = 0;
  for (int64_t t = 0; t < count; ++t) bytes += bytes_of(tensors[t], states);

  const auto pass = [&](bool first) {
    return session.parallel_for(ceil_div(blocks, kTaskBlocks), FpMode::kFlushAll, [&](int64_t i) {
      const int64_t from = i * kTaskBlocks, to = std::min(blocks, from + kTaskBlocks);
      partition.for_each_piece(from, to, [&](int64_t t, int64_t begin, int64_t end) {
        OptimSpan span = span_of(*args, tensors[t], begin, std::min(end, tensors[t].size));
        span.stream = bytes >= kStreamBytes;
        if (first) {
          span.squares = squares + 2 * (partition.first_block(t) + begin / kOptimBlock);
        } else if (measures) {
          span.ratio = ratios[t];
        }
        session.kernels().optim(scalars, span);
      });
    });
  };
  if (measures) {
    if (const auto s = pass(true)) return s;
    const auto compare = [&] {
      for (int64_t t = 0; t < count; ++t)
        ratios[t] = norm_ratio(squares + 2 * partition.first_block(t),
                               partition.first_block(t + 1) - partition.first_block(t));
    };
    if (const auto s = session.serial(FpMode::kIeee, compare)) return s;
  }
  return pass(false);
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_optim_step(mpcore_context* ctx, const mpcore_optim_args* args, int64_t count,
                                const mpcore_optim_tensor* tensors) {
  return mpcore::guarded([&] { return mpcore::optim_step(ctx, args, count, tensors); });
}
