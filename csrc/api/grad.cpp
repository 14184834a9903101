// The grad column: argument checks, the split over threads, and the state of dynamic loss scaling.
#include "mpcore/grad.h"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cinttypes>
#include <cmath>
#include <vector>

#include "api/check.h"
#include "api/partition.h"
#include "runtime/context.h"
#include "runtime/error.h"
#include "runtime/fpenv.h"

namespace mpcore {
namespace {

// Elements per block and blocks per task: about half a MiB of fp32, tens of microseconds.
constexpr int64_t kBlock = 1024, kTaskBlocks = 128;
// Leaves of a sum of squares per task.
constexpr int64_t kTaskLeaves = 16;

// Says what is wrong with list[t], if anything is.
mpcore_status check_tensor(const char* function, const char* list, int64_t t,
                           const mpcore_tensor_ref& x) {
  if (dtype_size(x.dtype) == 0)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: %s[%" PRId64 "].dtype is no mpcore_dtype (got %" PRId32 ")", function, list, t,
                x.dtype);
  if (!is_float_dtype(x.dtype))
    return fail(MPCORE_UNSUPPORTED,
                "%s: %s[%" PRId64 "].dtype must be float32, float16, bfloat16, or float64 (got %s)",
                function, list, t, mpcore_dtype_name(x.dtype));
  if (x.size < 0 || x.size > INT64_MAX / dtype_size(x.dtype))
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: %s[%" PRId64 "].size must be >= 0 and fit in memory (got %" PRId64 ")",
                function, list, t, x.size);
  if (x.data == nullptr && x.size > 0)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: %s[%" PRId64 "].data must not be NULL (size=%" PRId64 ")", function, list, t,
                x.size);
  if (x.reserved != 0)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: %s[%" PRId64 "].reserved must be 0 (got %" PRId32 ")",
                function, list, t, x.reserved);
  return MPCORE_OK;
}

mpcore_status check_tensors(const char* function, const char* list, int64_t count,
                            const mpcore_tensor_ref* tensors) {
  if (const auto s = check_size(function, "count", count)) return s;
  if (const auto s = check_pointer(function, list, tensors, count)) return s;
  for (int64_t t = 0; t < count; ++t)
    if (const auto s = check_tensor(function, list, t, tensors[t])) return s;
  return MPCORE_OK;
}

// Tensors that are written from others, which have been checked: pairs of equal size. One is its
// tensor itself, or lies apart from all tensors; and from all that are written, or results would
// depend on who is first.
mpcore_status check_written(const char* function, const char* list, int64_t count,
                            const mpcore_tensor_ref* written, const mpcore_tensor_ref* tensors) {
  if (written != tensors)
    if (const auto s = check_tensors(function, list, count, written)) return s;
  struct Range {
    uintptr_t begin, end;
    int64_t written;  // which one, or -1: only read
  };
  std::vector<Range> ranges;
  ranges.reserve(static_cast<size_t>(2 * count));
  for (int64_t t = 0; t < count; ++t) {
    const auto &x = tensors[t], &y = written[t];
    if (x.size != y.size)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: %s[%" PRId64 "].size must be that of its tensor (got %" PRId64
                  " for %" PRId64 ")",
                  function, list, t, y.size, x.size);
    if (x.size == 0) continue;
    const auto range = [](const mpcore_tensor_ref& r, int64_t owner) {
      const auto begin = reinterpret_cast<uintptr_t>(r.data);
      return Range{begin, begin + static_cast<uintptr_t>(r.size * dtype_size(r.dtype)), owner};
    };
    ranges.push_back(range(y, t));
    if (x.data != y.data || x.dtype != y.dtype) ranges.push_back(range(x, -1));
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& x, const Range& y) { return x.begin < y.begin; });
  Range last_written{0, 0, -1}, last_read{0, 0, -1};  // those that end last so far
  for (const Range& range : ranges) {
    const bool writes = range.written >= 0;
    if (range.begin < last_written.end || (writes && range.begin < last_read.end))
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: %s[%" PRId64 "] must be its tensor itself or overlap nothing", function,
                  list, writes ? range.written : last_written.written);
    Range& last = writes ? last_written : last_read;
    if (range.end > last.end) last = range;
  }
  return MPCORE_OK;
}

void* address(const mpcore_tensor_ref& x, int64_t element) {
  return static_cast<char*>(x.data) + element * dtype_size(x.dtype);
}

// Calls body(t, begin, n) for all elements of all tensors, in pieces, on all threads.
template <class Body>
mpcore_status for_all_pieces(Session& session, int64_t count, const mpcore_tensor_ref* tensors,
                             Body&& body) {
  const Partition partition(session, count, kBlock, [&](int64_t t) { return tensors[t].size; });
  if (!partition.valid()) return MPCORE_OUT_OF_MEMORY;
  const int64_t blocks = partition.blocks();
  return session.parallel_for(ceil_div(blocks, kTaskBlocks), FpMode::kIeee, [&](int64_t i) {
    const int64_t from = i * kTaskBlocks;
    partition.for_each_piece(from, std::min(blocks, from + kTaskBlocks),
                             [&](int64_t t, int64_t begin, int64_t end) {
                               body(t, begin, std::min(end, tensors[t].size) - begin);
                             });
  });
}

mpcore_status all_finite(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
                         int32_t* finite) {
  constexpr const char* kName = "mpcore_all_finite";
  if (const auto s = check_tensors(kName, "tensors", count, tensors)) return s;
  if (const auto s = check_pointer(kName, "finite", finite, 1)) return s;
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  std::atomic<bool> result{true};
  const auto status =
      for_all_pieces(session, count, tensors, [&](int64_t t, int64_t begin, int64_t n) {
        if (!result.load(std::memory_order_relaxed)) return;  // known already: skip the rest
        if (!kernels.all_finite(address(tensors[t], begin), tensors[t].dtype, n))
          result.store(false, std::memory_order_relaxed);
      });
  if (status == MPCORE_OK) *finite = result.load() ? 1 : 0;
  return status;
}

// Where the arithmetic is fp32, so is the multiplier: an infinity there would make NaN of zeros.
mpcore_status check_multiplier(const char* function, double multiplier, int64_t count,
                               const mpcore_tensor_ref* written) {
  const bool wide = std::all_of(written, written + count,
                                [](const auto& x) { return x.dtype == MPCORE_DTYPE_F64; });
  if (std::fabs(multiplier) <= (wide && count > 0 ? DBL_MAX : FLT_MAX)) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: multiplier must be finite, in float32 unless all tensors are float64 (got %g)",
              function, multiplier);
}

mpcore_status unscale(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
                      const mpcore_tensor_ref* outputs, double multiplier, int32_t* finite) {
  constexpr const char* kName = "mpcore_unscale";
  const char* const list = outputs == nullptr ? "tensors" : "outputs";
  if (const auto s = check_tensors(kName, "tensors", count, tensors)) return s;
  if (outputs == nullptr) outputs = tensors;
  if (const auto s = check_written(kName, list, count, outputs, tensors)) return s;
  for (int64_t t = 0; t < count; ++t)
    if (outputs[t].dtype != tensors[t].dtype)
      return fail(MPCORE_INVALID_ARGUMENT,
                  "%s: outputs[%" PRId64 "].dtype must be that of its tensor (got %s for %s)",
                  kName, t, mpcore_dtype_name(outputs[t].dtype),
                  mpcore_dtype_name(tensors[t].dtype));
  if (const auto s = check_multiplier(kName, multiplier, count, tensors)) return s;
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  std::atomic<bool> result{true};
  const auto status =
      for_all_pieces(session, count, tensors, [&](int64_t t, int64_t begin, int64_t n) {
        if (!kernels.unscale(address(tensors[t], begin), address(outputs[t], begin),
                             tensors[t].dtype, n, multiplier))
          result.store(false, std::memory_order_relaxed);
      });
  if (status == MPCORE_OK && finite != nullptr) *finite = result.load() ? 1 : 0;
  return status;
}

// f32 and f64 tensors that are updated from others.
mpcore_status check_combined(const char* function, const char* list, int64_t count,
                             const mpcore_tensor_ref* written, const mpcore_tensor_ref* tensors) {
  if (const auto s = check_tensors(function, "tensors", count, tensors)) return s;
  if (const auto s = check_written(function, list, count, written, tensors)) return s;
  for (int64_t t = 0; t < count; ++t)
    if (written[t].dtype != MPCORE_DTYPE_F32 && written[t].dtype != MPCORE_DTYPE_F64)
      return fail(MPCORE_UNSUPPORTED,
                  "%s: %s[%" PRId64 "].dtype must be float32 or float64 (got %s)", function, list,
                  t, mpcore_dtype_name(written[t].dtype));
  return MPCORE_OK;
}

// Runs kernel(written, tensors, factor) over all elements.
mpcore_status combine(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* written,
                      const mpcore_tensor_ref* tensors,
                      decltype(KernelTable::accumulate) KernelTable::* kernel, double factor) {
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto run = session.kernels().*kernel;
  return for_all_pieces(session, count, tensors, [&](int64_t t, int64_t begin, int64_t n) {
    const auto &x = tensors[t], &y = written[t];
    run(address(y, begin), y.dtype, address(x, begin), x.dtype, n, factor);
  });
}

mpcore_status accumulate(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* totals,
                         const mpcore_tensor_ref* tensors, double multiplier) {
  constexpr const char* kName = "mpcore_accumulate";
  if (const auto s = check_combined(kName, "totals", count, totals, tensors)) return s;
  if (const auto s = check_multiplier(kName, multiplier, count, totals)) return s;
  return combine(ctx, count, totals, tensors, &KernelTable::accumulate, multiplier);
}

mpcore_status lerp(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* averages,
                   const mpcore_tensor_ref* tensors, double momentum) {
  constexpr const char* kName = "mpcore_lerp";
  if (!(momentum >= 0 && momentum <= 1))
    return fail(MPCORE_INVALID_ARGUMENT, "%s: momentum must be in [0, 1] (got %g)", kName,
                momentum);
  if (const auto s = check_combined(kName, "averages", count, averages, tensors)) return s;
  return combine(ctx, count, averages, tensors, &KernelTable::lerp, momentum);
}

// Sums of squares of doubles can leave the range of a double. Those beyond kSafe, either way, are
// taken again of elements that were multiplied by kDown or kUp.
constexpr double kSafeLow = 0x1p-900, kSafeHigh = 0x1p900, kUp = 0x1p600, kDown = 0x1p-600;

double safe_multiplier(double sum) { return sum > kSafeHigh ? kDown : sum < kSafeLow ? kUp : 1; }

// The sum of sums of squares, each of which was taken with a multiplier.
class SquareTotal {
 public:
  void add(double sum, double multiplier) {
    (multiplier == kUp ? small_ : multiplier == kDown ? large_ : plain_) += sum;
  }
  double root() const {
    if (large_ != 0) return std::sqrt(large_ + plain_ * kDown * kDown) * kUp;
    if (plain_ != 0) return std::sqrt(plain_ + small_ * kDown * kDown);
    return std::sqrt(small_) * kDown;
  }

 private:
  double large_ = 0, plain_ = 0, small_ = 0;
};

mpcore_status norms(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
                    double* per_tensor, double* global) {
  constexpr const char* kName = "mpcore_norms";
  if (const auto s = check_tensors(kName, "tensors", count, tensors)) return s;
  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  const auto& kernels = session.kernels();
  const Partition partition(session, count, kReductionChunk,
                            [&](int64_t t) { return tensors[t].size; });
  if (!partition.valid()) return MPCORE_OUT_OF_MEMORY;
  auto* sums = static_cast<double*>(session.workspace(std::max<int64_t>(partition.blocks(), 1) *
                                                      static_cast<int64_t>(sizeof(double))));
  if (sums == nullptr) return MPCORE_OUT_OF_MEMORY;

  const auto sum_leaves = [&](int64_t first, int64_t last, double multiplier) {
    return session.parallel_for(
        ceil_div(last - first, kTaskLeaves), FpMode::kIeee, [=, &kernels, &partition](int64_t i) {
          const int64_t from = first + i * kTaskLeaves, to = std::min(last, from + kTaskLeaves);
          partition.for_each_piece(from, to, [&](int64_t t, int64_t begin, int64_t end) {
            const auto& x = tensors[t];
            double* const leaf = sums + partition.first_block(t) + begin / kReductionChunk;
            kernels.sum_squares(address(x, begin), x.dtype, std::min(end, x.size) - begin, leaf,
                                multiplier);
          });
        });
  };
  // Leaves in increasing order.
  const auto sum_of = [&](int64_t t) {
    double sum = 0;
    for (int64_t b = partition.first_block(t); b < partition.first_block(t + 1); ++b)
      sum += sums[b];
    return sum;
  };

  if (const auto s = sum_leaves(0, partition.blocks(), 1)) return s;
  const FpScope scope(FpMode::kIeee);
  SquareTotal all;
  for (int64_t t = 0; t < count; ++t) {
    double sum = sum_of(t);
    const double multiplier = tensors[t].dtype == MPCORE_DTYPE_F64 ? safe_multiplier(sum) : 1;
    if (multiplier != 1) {
      if (const auto s =
              sum_leaves(partition.first_block(t), partition.first_block(t + 1), multiplier))
        return s;
      sum = sum_of(t);
    }
    all.add(sum, multiplier);
    if (per_tensor != nullptr) per_tensor[t] = std::sqrt(sum) / multiplier;
  }
  if (global != nullptr) *global = all.root();
  return MPCORE_OK;
}

mpcore_status loss_scale_update(mpcore_loss_scale* state, int32_t finite) {
  constexpr const char* kName = "mpcore_loss_scale_update";
  if (const auto s = check_pointer(kName, "state", state, 1)) return s;
  if (const auto s = check_struct(kName, "state", state, state->struct_size, sizeof(*state)))
    return s;
  if (state->growth_steps < 1)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: growth_steps must be >= 1 (got %" PRId32 ")", kName,
                state->growth_steps);
  if (state->step_counter < 0 || state->step_counter == INT64_MAX)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: step_counter must be >= 0 (got %" PRId64 ")", kName,
                state->step_counter);
  const struct {
    const char* name;
    double value;
  } scales[] = {
      {"scale", state->scale}, {"min_scale", state->min_scale}, {"max_scale", state->max_scale}};
  for (const auto& [name, value] : scales)
    if (!(value > 0) || !std::isfinite(value))
      return fail(MPCORE_INVALID_ARGUMENT, "%s: %s must be finite and > 0 (got %g)", kName, name,
                  value);
  if (state->min_scale > state->max_scale)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: min_scale must be <= max_scale (got min_scale=%g, max_scale=%g)", kName,
                state->min_scale, state->max_scale);

  if (!finite) {
    if (state->scale / 2 >= state->min_scale) state->scale /= 2;
    state->step_counter = 0;
  } else if (++state->step_counter >= state->growth_steps) {
    if (state->scale * 2 <= state->max_scale) state->scale *= 2;
    state->step_counter = 0;
  }
  return MPCORE_OK;
}

mpcore_status loss_scale_init(mpcore_loss_scale* state) {
  if (const auto s = check_pointer("mpcore_loss_scale_init", "state", state, 1)) return s;
  *state = {.struct_size = sizeof(*state),
            .growth_steps = 2000,
            .step_counter = 0,
            .scale = 0x1p15,
            .min_scale = 0x1p-126,
            .max_scale = 0x1p126};
  return MPCORE_OK;
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_all_finite(mpcore_context* ctx, int64_t count,
                                const mpcore_tensor_ref* tensors, int32_t* finite) {
  return mpcore::guarded([&] { return mpcore::all_finite(ctx, count, tensors, finite); });
}

mpcore_status mpcore_unscale(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
                             const mpcore_tensor_ref* outputs, double multiplier, int32_t* finite) {
  return mpcore::guarded(
      [&] { return mpcore::unscale(ctx, count, tensors, outputs, multiplier, finite); });
}

mpcore_status mpcore_accumulate(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* totals,
                                const mpcore_tensor_ref* tensors, double multiplier) {
  return mpcore::guarded(
      [&] { return mpcore::accumulate(ctx, count, totals, tensors, multiplier); });
}

mpcore_status mpcore_lerp(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* averages,
                          const mpcore_tensor_ref* tensors, double momentum) {
  return mpcore::guarded([&] { return mpcore::lerp(ctx, count, averages, tensors, momentum); });
}

mpcore_status mpcore_norms(mpcore_context* ctx, int64_t count, const mpcore_tensor_ref* tensors,
                           double* norms, double* global) {
  return mpcore::guarded([&] { return mpcore::norms(ctx, count, tensors, norms, global); });
}

mpcore_status mpcore_loss_scale_init(mpcore_loss_scale* state) {
  return mpcore::guarded([&] { return mpcore::loss_scale_init(state); });
}

mpcore_status mpcore_loss_scale_update(mpcore_loss_scale* state, int32_t finite) {
  return mpcore::guarded([&] { return mpcore::loss_scale_update(state, finite); });
}
