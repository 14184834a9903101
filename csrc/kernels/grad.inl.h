// What is done to gradients before an update, and to weights after it: finite check, unscaling,
// sums of squares, accumulation, moving averages. The floating-point mode is kIeee.
//
// All of it waits for memory. A thread gets the most out of that by walking several parts of its
// range side by side and asking for lines well before it needs them. Elements and leaves do not
// depend on each other, so the order never shows in the results.
#ifndef MPCORE_KERNELS_GRAD_INL_H_
#define MPCORE_KERNELS_GRAD_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/f64x16.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// --- Walking memory ------------------------------------------------------------------------------

constexpr int64_t kLineBytes = 64;
// How far ahead lines are asked for. Beyond the end of an array its neighbour often follows: of
// many small ones each is asked for while the one before is worked on.
constexpr int64_t kAheadBytes = 1024;
// Elements of one step: whole lines of every dtype.
constexpr int64_t kStep = 32;
// Parts that are walked side by side, and the steps each must have: shorter ranges are walked from
// end to end.
constexpr int kParts = 4;
constexpr int64_t kMinPartSteps = 64;

// Calls body(step) once for each step of [0, steps), in no particular order.
template <class Body>
inline void walk(int64_t steps, Body&& body) {
  const int64_t part = steps / kParts >= kMinPartSteps ? steps / kParts : 0;
  for (int64_t i = 0; i < part; ++i)
    for (int p = 0; p < kParts; ++p) body(p * part + i);
  for (int64_t i = kParts * part; i < steps; ++i) body(i);
}

// Asks for the lines of the step that comes kAheadBytes after p's.
template <class T>
inline void prefetch_step(const T* p) {
  const char* at = reinterpret_cast<const char*>(p) + kAheadBytes;
  for (int64_t i = 0; i < kStep * static_cast<int64_t>(sizeof(T)); i += kLineBytes)
    __builtin_prefetch(at + i);
}

// The same for the vectors of [0, n): prefetch(i) for each step, body(i, count) for each vector.
template <class Prefetch, class Body>
inline void walk_vectors(int64_t n, Prefetch&& prefetch, Body&& body) {
  const int64_t steps = n / kStep;
  walk(steps, [&](int64_t step) {
    const int64_t i = step * kStep;
    prefetch(i);
    for (int64_t j = 0; j < kStep; j += kLanes) body(i + j, Whole{});
  });
  const int64_t done = steps * kStep;
  for_each_vector(n - done, [&](int64_t i, auto count) { body(done + i, count); });
}

// dispatch_compute() for f64 as well.
template <class F>
inline auto dispatch_float(mpcore_dtype dtype, F&& f) {
  return dtype == MPCORE_DTYPE_F64 ? f(static_cast<double*>(nullptr)) : dispatch_compute(dtype, f);
}

// --- Finite check --------------------------------------------------------------------------------

// A float format as words: all bits but the sign, and the lowest bit of the exponent.
struct F32Words {
  using Word = uint32_t;
  static constexpr Word kAbs = 0x7fffffff, kExponentOne = 0x00800000;
};
struct F16Words {
  using Word = uint16_t;
  static constexpr Word kAbs = 0x7fff, kExponentOne = 0x0400;
};
struct BF16Words {
  using Word = uint16_t;
  static constexpr Word kAbs = 0x7fff, kExponentOne = 0x0080;
};
struct F64Words {
  using Word = uint64_t;
  static constexpr Word kAbs = 0x7fffffffffffffff, kExponentOne = 0x0010000000000000;
};

// |x| plus one unit of the exponent carries into the sign bit if and only if the exponent is all
// ones, so one OR over everything decides it.
template <class Words>
inline bool finite_words(const void* x, int64_t n) {
  using Word = typename Words::Word;
  typedef Word Line __attribute__((vector_size(kLineBytes)));
  constexpr int64_t kPerLine = kLineBytes / static_cast<int64_t>(sizeof(Word));
  const char* const p = static_cast<const char*>(x);
  const int64_t lines = n / kPerLine;
  Line seen = {};
  walk(lines, [&](int64_t line) {
    const char* const at = p + line * kLineBytes;
    __builtin_prefetch(at + kAheadBytes);
    Line w;
    memcpy(&w, at, sizeof(w));
    seen |= (w & Words::kAbs) + Words::kExponentOne;
  });
  Word all = 0;
  for (int64_t i = 0; i < kPerLine; ++i) all |= seen[i];
  for (int64_t i = lines * kPerLine; i < n; ++i) {
    Word w;
    memcpy(&w, p + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    all |= static_cast<Word>((w & Words::kAbs) + Words::kExponentOne);
  }
  return (all & static_cast<Word>(~Words::kAbs)) == 0;
}

bool all_finite_kernel(const void* x, mpcore_dtype dtype, int64_t n) {
  switch (dtype) {
    case MPCORE_DTYPE_F16:
      return finite_words<F16Words>(x, n);
    case MPCORE_DTYPE_BF16:
      return finite_words<BF16Words>(x, n);
    case MPCORE_DTYPE_F64:
      return finite_words<F64Words>(x, n);
    default:
      return finite_words<F32Words>(x, n);
  }
}

// --- Unscale -------------------------------------------------------------------------------------

// Zero in every lane as long as all that note() saw are finite once rounded to T.
template <class V, class T>
struct FiniteLanes {
  V seen = V::zero();
  inline void note(const V& y) { seen = seen + (y - y); }
  inline bool all() const {
    bool zero = true;
    for (int i = 0; i < kLanes; ++i) zero &= seen.lane[i] == 0;
    return zero;
  }
};
template <class T>
struct FiniteLanes<F32x16, T> {
  // The smallest magnitude that rounds to infinity.
  static constexpr float kLimit = __is_same(T, F16)    ? 65520.0f
                                  : __is_same(T, BF16) ? 0x1.ffp127f
                                                       : __builtin_inff();
  F32x16 seen = F32x16::zero();
  inline void note(F32x16 y) {
    const F32x16 one = F32x16::set(1), limit = F32x16::set(kLimit);
    seen = select(less(abs(y), limit), seen, one);  // NaN is not less
  }
  inline bool all() const { return reduce_max(seen) == 0; }
};

template <class V, class T>
inline bool unscale_elements(const T* x, T* y, int64_t n, V multiplier) {
  FiniteLanes<V, T> finite;
  walk_vectors(
      n, [&](int64_t i) { prefetch_step(x + i); },
      [&](int64_t i, auto count) {
        const V product = load_as<V>(x + i, count) * multiplier;
        finite.note(product);
        store(product, y + i, count);
      });
  return finite.all();
}

bool unscale_kernel(const void* x, void* y, mpcore_dtype dtype, int64_t n, double multiplier) {
  if (dtype == MPCORE_DTYPE_F64)
    return unscale_elements(static_cast<const double*>(x), static_cast<double*>(y), n,
                            F64x16::set(multiplier));
  return dispatch_compute(dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    return unscale_elements(static_cast<const T*>(x), static_cast<T*>(y), n,
                            F32x16::set(static_cast<float>(multiplier)));
  });
}

// --- Sums of squares -----------------------------------------------------------------------------

// By halving: lane j with j + 8, j + 4, j + 2, j + 1.
inline double reduce_add(F64x16 sum) {
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sum.lane[j] += sum.lane[j + half];
  return sum.lane[0];
}

// Lane j of a leaf sums the squares of its elements j, j + 16, ... in double: exact squares, unless
// the elements are doubles, which are multiplied first. The leaves are the parts to walk side by
// side.
template <class T>
inline void sum_squares_of(const T* x, int64_t n, double* sums, double multiplier) {
  const F64x16 factor = F64x16::set(multiplier);
  const auto add_square = [=](F64x16& sum, const T* p, auto count) __attribute__((always_inline)) {
    F64x16 v = load_as<F64x16>(p, count);
    if constexpr (__is_same(T, double)) v = v * factor;
    sum = sum + v * v;
  };
  for (; n >= kParts * kReductionChunk; n -= kParts * kReductionChunk) {
    F64x16 sum[kParts] = {};
    for (int64_t i = 0; i < kReductionChunk; i += kStep) {
      for (int s = 0; s < kParts; ++s) {
        const T* const p = x + s * kReductionChunk + i;
        prefetch_step(p);
        for (int64_t j = 0; j < kStep; j += kLanes) add_square(sum[s], p + j, Whole{});
      }
    }
    for (int s = 0; s < kParts; ++s) *sums++ = reduce_add(sum[s]);
    x += kParts * kReductionChunk;
  }
  for (; n > 0; n -= kReductionChunk, x += kReductionChunk) {
    F64x16 sum = F64x16::zero();
    for_each_vector(n < kReductionChunk ? n : kReductionChunk,
                    [&](int64_t i, auto count) { add_square(sum, x + i, count); });
    *sums++ = reduce_add(sum);
  }
}

void sum_squares_kernel(const void* x, mpcore_dtype dtype, int64_t n, double* sums,
                        double multiplier) {
  dispatch_float(dtype, [&](auto* tag) {
    sum_squares_of(static_cast<const Pointee<decltype(tag)>*>(x), n, sums, multiplier);
  });
}

// --- Accumulation and moving averages ------------------------------------------------------------

// Elements of any float type in the lanes of V, rounded to nearest where V is narrower.
template <class V, class T, class Count>
inline V load_rounded(const T* p, Count count) {
  if constexpr (__is_same(V, F32x16) && __is_same(T, double)) {
    const F64x16 x = load_as<F64x16>(p, count);
    float y[kLanes];
    for (int i = 0; i < kLanes; ++i) y[i] = static_cast<float>(x.lane[i]);
    return F32x16::load(y);
  } else {
    return load_as<V>(p, count);
  }
}

// total[i] = rule(total[i], x[i]), in the arithmetic of V.
template <class V, class A, class T, class Rule>
inline void combine_elements(A* total, const T* x, int64_t n, const Rule& rule) {
  walk_vectors(
      n,
      [&](int64_t i) {
        prefetch_step(total + i);
        prefetch_step(x + i);
      },
      [&](int64_t i, auto count) {
        store(rule(load_as<V>(total + i, count), load_rounded<V>(x + i, count)), total + i, count);
      });
}

template <template <class> class Rule>
inline void combine(void* total, mpcore_dtype total_dtype, const void* x, mpcore_dtype x_dtype,
                    int64_t n, double factor) {
  dispatch_float(x_dtype, [&](auto* tag) {
    const auto* const from = static_cast<const Pointee<decltype(tag)>*>(x);
    if (total_dtype == MPCORE_DTYPE_F64) {
      combine_elements<F64x16>(static_cast<double*>(total), from, n, Rule<F64x16>(factor));
    } else {
      combine_elements<F32x16>(static_cast<float*>(total), from, n, Rule<F32x16>(factor));
    }
  });
}

template <class V>
struct AddScaled {
  V multiplier;
  explicit AddScaled(double m) : multiplier(constant<V>(m)) {}
  inline V operator()(const V& total, const V& x) const { return total + x * multiplier; }
};

template <class V>
struct Lerp {
  V momentum, rest;
  explicit Lerp(double m) : momentum(constant<V>(m)), rest(constant<V>(1 - m)) {}
  inline V operator()(const V& average, const V& x) const { return x * rest + average * momentum; }
};

template <class V>
struct Replace {
  explicit Replace(double) {}
  inline V operator()(const V&, const V& x) const { return x; }
};

void accumulate_kernel(void* total, mpcore_dtype total_dtype, const void* x, mpcore_dtype x_dtype,
                       int64_t n, double multiplier) {
  combine<AddScaled>(total, total_dtype, x, x_dtype, n, multiplier);
}

void lerp_kernel(void* average, mpcore_dtype average_dtype, const void* x, mpcore_dtype x_dtype,
                 int64_t n, double momentum) {
  if (momentum == 1) return;
  if (momentum == 0) return combine<Replace>(average, average_dtype, x, x_dtype, n, momentum);
  combine<Lerp>(average, average_dtype, x, x_dtype, n, momentum);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_GRAD_INL_H_
