// One pass over memory per update. Everything optimizers share (unscaling, clipping, decay, dtypes,
// copies, tails) is here; an optimizer is a rule of optim_rules.inl.h.
//
// A span is worked on in chunks that fit in the nearest cache. Arrays of the arithmetic's own dtype
// are used where they are; others are converted into a buffer and back, so that a rule is compiled
// once for fp32 and once for f64.
//
// The floating-point mode is kFlushAll: subnormals are zero on the way in and on the way out, so
// that moments which have decayed away cost nothing.
#ifndef MPCORE_KERNELS_OPTIM_INL_H_
#define MPCORE_KERNELS_OPTIM_INL_H_

#include <stdint.h>

#include "dispatch/kernel_table.h"
#include "kernels/grad.inl.h"
#include "kernels/optim_rules.inl.h"
#include "kernels/stochastic.inl.h"

namespace mpcore {
namespace {

// The element type of a vector, and the array that a rule sees.
template <class V>
struct ElementOf {
  using type = double;
};
template <>
struct ElementOf<F32x16> {
  using type = float;
};
template <class V>
using Element = typename ElementOf<V>::type;

template <class Rule>
concept Measures = Rule::kMeasures;  // leaves w alone and sums squares
template <class Rule>
concept ReadsOnly = Rule::kReadsOnly;  // leaves the states alone and takes no gradient

// What happens to a gradient and a weight before the rule.
template <class V>
struct Prologue {
  V multiplier, decay, limit;
  bool decays;
  explicit Prologue(const OptimSpan& t)
      : multiplier(constant<V>(t.grad_multiplier)),
        decay(constant<V>(t.decay_rate)),
        limit(constant<V>(t.clipvalue > 0 ? t.clipvalue : __builtin_inf())),
        decays(t.decay_rate != 0) {}  // an infinite w times 0 would be NaN
  inline V gradient(const V& g) const {
    return max(V::zero() - limit, min(limit, g * multiplier));  // NaN comes second and stays
  }
  inline V weight(const V& w) const { return decays ? w - w * decay : w; }
};

template <class E>
struct OptimChunk {
  int64_t size;
  E* param;
  const E* grad;
  E* state[kOptimStates];
  double* squares;  // of w and of the direction, for a rule that measures
};

template <class V, class Rule>
inline void update_chunk(const Rule& rule, const Prologue<V>& prologue,
                         const OptimChunk<Element<V>>& c) {
  F64x16 squares[2] = {F64x16::zero(), F64x16::zero()};
  const auto note = [](F64x16& sum, const V& x) {
    Element<V> lane[kLanes];
    store(x, lane, Whole{});
    for (int j = 0; j < kLanes; ++j)
      sum.lane[j] += static_cast<double>(lane[j]) * static_cast<double>(lane[j]);
  };
  const auto prefetch = [&](int64_t i) {
    prefetch_step(c.param + i);
    if constexpr (!ReadsOnly<Rule>) prefetch_step(c.grad + i);
    for (int k = 0; k < Rule::kStates; ++k) prefetch_step(c.state[k] + i);
  };
  const auto body = [&](int64_t i, auto count) {
    V g = V::zero();
    if constexpr (!ReadsOnly<Rule>) g = prologue.gradient(load_as<V>(c.grad + i, count));
    V w = prologue.weight(load_as<V>(c.param + i, count));
    V state[Rule::kStates + 1];
    for (int k = 0; k < Rule::kStates; ++k) state[k] = load_as<V>(c.state[k] + i, count);
    if constexpr (Measures<Rule>) {
      note(squares[1], rule(w, g, state));
      note(squares[0], w);
    } else {
      rule(w, g, state);
      store(w, c.param + i, count);
    }
    if constexpr (!ReadsOnly<Rule>)
      for (int k = 0; k < Rule::kStates; ++k) store(state[k], c.state[k] + i, count);
  };
  int64_t i = 0;
  for (; i + kStep <= c.size; i += kStep) {
    prefetch(i);
    for (int64_t j = 0; j < kStep; j += kLanes) body(i + j, Whole{});
  }
  for_each_vector(c.size - i, [&](int64_t j, auto count) { body(i + j, count); });
  if constexpr (Measures<Rule>)
    for (int k = 0; k < 2; ++k) c.squares[k] = reduce_add(squares[k]);
}

// --- Conversion of a chunk -----------------------------------------------------------------------

// y = x for n elements; the next KiB of x is asked for.
template <class V, class T>
inline void widen(const T* x, Element<V>* y, int64_t n) {
  int64_t i = 0;
  for (; i + kStep <= n; i += kStep) {
    prefetch_step(x + i);
    for (int64_t j = i; j < i + kStep; j += kLanes)
      store(load_as<V>(x + j, Whole{}), y + j, Whole{});
  }
  for_each_vector(
      n - i, [&](int64_t j, auto count) { store(load_as<V>(x + i + j, count), y + i + j, count); });
}

template <class V, class T>
inline void narrow(const Element<V>* x, T* y, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto count) { store(load_as<V>(x + i, count), y + i, count); });
}

// The same past the caches, where y is at a whole line.
template <class T>
inline void narrow_stream(const float* x, T* y, int64_t n) {
  constexpr int64_t kPerLine = kLineBytes / static_cast<int64_t>(sizeof(T));
  const bool aligned = reinterpret_cast<uintptr_t>(y) % kLineBytes == 0;
  const int64_t lines = aligned ? n / kPerLine : 0;
  alignas(kLineBytes) T block[2 * kPerLine];
  int64_t i = 0;
  for (; i + 2 * kPerLine <= lines * kPerLine; i += 2 * kPerLine) {
    F32x16 v[4];
    for (int j = 0; j < 4; ++j) v[j] = F32x16::load(x + i + j * kLanes);
    store_block(v, block);
    stream_line(y + i, block);
    stream_line(y + i + kPerLine, block + kPerLine);
  }
  narrow<F32x16>(x + i, y + i, n - i);
}

template <class V, class T>
inline void write_copy(const Element<V>* w, T* copy, int64_t n, bool stream) {
  if constexpr (__is_same(V, F32x16))
    if (stream) return narrow_stream(w, copy, n);
  narrow<V>(w, copy, n);
}

// One 16-bit number and what is left over: together the fp32 weight, to 16 bits.
template <class T>
inline void join(const T* high, const T* low, float* w, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto count) {
    store(load(high + i, count) + load(low + i, count), w + i, count);
  });
}
template <class T>
inline void split(const float* w, T* high, T* low, int64_t n) {
  for_each_vector(n, [&](int64_t i, auto count) {
    const F32x16 x = load(w + i, count);
    store(x, high + i, count);
    store(x - load(high + i, count), low + i, count);
  });
}

// --- The pass ------------------------------------------------------------------------------------

// The arrays of a span in the arithmetic's dtype, chunk by chunk.
template <class V>
struct Staging {
  using E = Element<V>;
  const OptimSpan& t;
  alignas(kLineBytes) E param[kOptimBlock], grad[kOptimBlock], state[kOptimStates][kOptimBlock];

  explicit Staging(const OptimSpan& span) : t(span) {}

  // The array itself, where it is of the arithmetic's dtype.
  template <class P>
  static inline bool is_own(mpcore_dtype dtype, P*) {
    return dtype == (__is_same(V, F32x16) ? MPCORE_DTYPE_F32 : MPCORE_DTYPE_F64);
  }

  inline const E* read(const void* x, mpcore_dtype dtype, int64_t i, int64_t n, E* buffer) const {
    if (is_own(dtype, buffer)) return static_cast<const E*>(x) + i;
    dispatch_compute(dtype, [&](auto* tag) {
      widen<V>(static_cast<const Pointee<decltype(tag)>*>(x) + i, buffer, n);
    });
    return buffer;
  }

  // The buffer is the array itself where that needs no conversion.
  inline E* open(void* x, mpcore_dtype dtype, int64_t i, int64_t n, E* buffer) const {
    return const_cast<E*>(read(x, dtype, i, n, buffer));
  }

  inline E* open_param(int64_t i, int64_t n) {
    if constexpr (__is_same(V, F32x16))
      if (t.remainder != nullptr) {
        join(static_cast<const BF16*>(t.param) + i, static_cast<const BF16*>(t.remainder) + i,
             param, n);
        return param;
      }
    return open(t.param, t.param_dtype, i, n, param);
  }

  // Stores w where it is not yet, and makes of it what is stored.
  inline void close_param(int64_t i, int64_t n) {
    if constexpr (__is_same(V, F32x16)) {
      if (t.param_dtype == MPCORE_DTYPE_F32) return;
      dispatch_half(t.param_dtype, [&](auto* tag) {
        using T = Pointee<decltype(tag)>;
        T* const stored = static_cast<T*>(t.param) + i;
        if (t.remainder != nullptr) {
          split(param, stored, static_cast<T*>(t.remainder) + i, n);
        } else if (t.stochastic) {
          round_stochastic(param, stored, n, t.param_seed, i);
        } else {
          narrow<V>(param, stored, n);
        }
        if (t.copy != nullptr) widen<V>(stored, param, n);
      });
    }
  }

  inline void close_state(int k, int64_t i, int64_t n) {
    if constexpr (__is_same(V, F32x16))
      if (t.state_dtype == MPCORE_DTYPE_BF16)
        round_stochastic(state[k], static_cast<BF16*>(t.state[k]) + i, n, t.state_seed[k], i);
  }

  template <class F>
  static inline void dispatch_half(mpcore_dtype dtype, F&& f) {
    if (dtype == MPCORE_DTYPE_F16) return f(static_cast<F16*>(nullptr));
    f(static_cast<BF16*>(nullptr));
  }

  template <class T>
  inline void round_stochastic(const float* x, T* y, int64_t n, uint64_t seed, int64_t i) const {
    cast_stochastic_to<T>(reinterpret_cast<const char*>(x), reinterpret_cast<char*>(y), n, seed,
                          static_cast<uint64_t>(t.offset + i));
  }
};

template <class V, class Rule>
inline void update(const OptimSpan& t, const Rule& rule) {
  const Prologue<V> prologue(t);
  Staging<V> staging(t);
  for (int64_t i = 0; i < t.size; i += kOptimBlock) {
    OptimChunk<Element<V>> c{};
    c.size = t.size - i < kOptimBlock ? t.size - i : kOptimBlock;
    c.param = staging.open_param(i, c.size);
    if constexpr (!ReadsOnly<Rule>)
      c.grad = staging.read(t.grad, t.grad_dtype, i, c.size, staging.grad);
    for (int k = 0; k < Rule::kStates; ++k)
      c.state[k] = staging.open(t.state[k], t.state_dtype, i, c.size, staging.state[k]);
    if constexpr (Measures<Rule>) c.squares = t.squares + 2 * (i / kOptimBlock);

    update_chunk<V>(rule, prologue, c);

    if constexpr (!ReadsOnly<Rule>)
      for (int k = 0; k < Rule::kStates; ++k) staging.close_state(k, i, c.size);
    if constexpr (Measures<Rule>) continue;
    staging.close_param(i, c.size);
    if (t.copy != nullptr)
      staging.dispatch_half(t.copy_dtype, [&](auto* tag) {
        using T = Pointee<decltype(tag)>;
        write_copy<V>(c.param, static_cast<T*>(t.copy) + i, c.size, t.stream);
      });
  }
  if (t.stream) stream_fence();
}

template <template <class> class Rule, class... More>
inline void optimize(const OptimScalars& s, const OptimSpan& t, More... more) {
  if (t.param_dtype == MPCORE_DTYPE_F64) {
    update<F64x16>(t, Rule<F64x16>(s, more...));
  } else {
    update<F32x16>(t, Rule<F32x16>(s, more...));
  }
}

// Rules with compile-time variants, named for optimize().
template <class V>
using Momentum = MomentumSgd<V, false>;
template <class V>
using Nesterov = MomentumSgd<V, true>;
template <class V>
using PlainAdam = Adam<V, false>;
template <class V>
using Amsgrad = Adam<V, true>;
template <class V>
using PlainRmsprop = Rmsprop<V, false, false>;
template <class V>
using MomentumRmsprop = Rmsprop<V, true, false>;
template <class V>
using CenteredRmsprop = Rmsprop<V, false, true>;
template <class V>
using FullRmsprop = Rmsprop<V, true, true>;

void optim_kernel(const OptimScalars& s, const OptimSpan& t) {
  const mpcore_optim_args& a = *s.args;
  switch (a.optimizer) {
    case MPCORE_OPTIMIZER_SGD:
      if (a.momentum == 0) return optimize<PlainSgd>(s, t);
      return a.nesterov ? optimize<Nesterov>(s, t) : optimize<Momentum>(s, t);
    case MPCORE_OPTIMIZER_ADAM:
      return a.amsgrad ? optimize<Amsgrad>(s, t) : optimize<PlainAdam>(s, t);
    case MPCORE_OPTIMIZER_ADAMAX:
      return optimize<Adamax>(s, t);
    case MPCORE_OPTIMIZER_NADAM:
      return optimize<Nadam>(s, t);
    case MPCORE_OPTIMIZER_RMSPROP:
      if (a.momentum == 0)
        return a.centered ? optimize<CenteredRmsprop>(s, t) : optimize<PlainRmsprop>(s, t);
      return a.centered ? optimize<FullRmsprop>(s, t) : optimize<MomentumRmsprop>(s, t);
    case MPCORE_OPTIMIZER_ADAGRAD:
      return optimize<Adagrad>(s, t);
    case MPCORE_OPTIMIZER_ADADELTA:
      return optimize<Adadelta>(s, t);
    case MPCORE_OPTIMIZER_FTRL:
      return optimize<Ftrl>(s, t);
    case MPCORE_OPTIMIZER_LION:
      return optimize<Lion>(s, t);
    case MPCORE_OPTIMIZER_LAMB:
      if (t.squares != nullptr) return optimize<LambMoments>(s, t);
      return optimize<LambStep>(s, t, t.ratio);
    default:
      return optimize<ScheduleFreeAdamW>(s, t);
  }
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_OPTIM_INL_H_
