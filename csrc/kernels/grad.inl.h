// What is done to gradients before an update: finite check, unscaling, sums of squares. The
// floating-point mode is kIeee.
#ifndef MPCORE_KERNELS_GRAD_INL_H_
#define MPCORE_KERNELS_GRAD_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/f64x16.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

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

// Elements between two looks at the result.
constexpr int64_t kFiniteBlock = 2048;

// |x| plus one unit of the exponent carries into the sign bit if and only if the exponent is all
// ones, so one OR over a block decides it. OR has a latency of one cycle: one accumulator is
// enough.
template <class Words>
inline bool finite_block(const char* x, int64_t n) {
  using Word = typename Words::Word;
  Word seen = 0;
  for (int64_t i = 0; i < n; ++i) {
    Word w;
    memcpy(&w, x + i * static_cast<int64_t>(sizeof(Word)), sizeof(Word));
    seen |= static_cast<Word>((w & Words::kAbs) + Words::kExponentOne);
  }
  return (seen & static_cast<Word>(~Words::kAbs)) == 0;
}

template <class Words>
inline bool finite_words(const void* x, int64_t n) {
  const char* p = static_cast<const char*>(x);
  for (int64_t i = 0; i < n; i += kFiniteBlock) {
    const int64_t live = n - i < kFiniteBlock ? n - i : kFiniteBlock;
    if (!finite_block<Words>(p + i * static_cast<int64_t>(sizeof(typename Words::Word)), live))
      return false;
  }
  return true;
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

// Scales block by block and checks each block while it is in the nearest cache.
template <class V, class Words, class T>
inline bool unscale_elements(T* x, int64_t n, V multiplier) {
  bool finite = true;
  for (int64_t i = 0; i < n; i += kFiniteBlock) {
    const int64_t live = n - i < kFiniteBlock ? n - i : kFiniteBlock;
    T* p = x + i;
    for_each_vector(live, [&](int64_t j, auto count) {
      store(load_as<V>(p + j, count) * multiplier, p + j, count);
    });
    finite &= finite_block<Words>(reinterpret_cast<const char*>(p), live);
  }
  return finite;
}

bool unscale_kernel(void* x, mpcore_dtype dtype, int64_t n, double multiplier) {
  const F32x16 m = F32x16::set(static_cast<float>(multiplier));
  switch (dtype) {
    case MPCORE_DTYPE_F16:
      return unscale_elements<F32x16, F16Words>(static_cast<F16*>(x), n, m);
    case MPCORE_DTYPE_BF16:
      return unscale_elements<F32x16, BF16Words>(static_cast<BF16*>(x), n, m);
    case MPCORE_DTYPE_F64:
      return unscale_elements<F64x16, F64Words>(static_cast<double*>(x), n,
                                                F64x16::set(multiplier));
    default:
      return unscale_elements<F32x16, F32Words>(static_cast<float*>(x), n, m);
  }
}

// Lane j of sixteen sums the squares of elements j, j + 16, ... in double (exact squares, unless
// the elements are doubles), then the lanes are added by halving: j with j + 8, j + 4, j + 2, j
// + 1. Nothing is scaled: squares of doubles beyond about 1e154 overflow, below 1e-154 they lose
// bits.
template <class T>
inline double sum_squares_of(const T* x, int64_t n) {
  F64x16 sum = F64x16::zero();
  for_each_vector(n, [&](int64_t i, auto count) {
    const F64x16 v = load_as<F64x16>(x + i, count);
    sum = sum + v * v;
  });
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) sum.lane[j] += sum.lane[j + half];
  return sum.lane[0];
}

double sum_squares_kernel(const void* x, mpcore_dtype dtype, int64_t n) {
  if (dtype == MPCORE_DTYPE_F64) return sum_squares_of(static_cast<const double*>(x), n);
  return dispatch_compute(dtype, [&](auto* tag) {
    return sum_squares_of(static_cast<const Pointee<decltype(tag)>*>(x), n);
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_GRAD_INL_H_
