// One element from dtype to dtype, by arithmetic alone: no branch, so that the compiler turns a
// loop over these functions into the level's vectors. The floating-point mode is kIeee. The level's
// header says kConverts64: does the CPU convert between float and 64-bit integers?
#ifndef MPCORE_KERNELS_CONVERT_INL_H_
#define MPCORE_KERNELS_CONVERT_INL_H_

#include <stdint.h>

#include "kernels/element.inl.h"

namespace mpcore {
namespace {

// A byte; zero is false.
struct Bool {
  uint8_t byte;
};

// An element at any address, of memory that holds any type.
template <class T>
struct __attribute__((packed, may_alias)) Loose {
  T value;
};

inline uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }
inline double double_of(uint64_t bits) { return __builtin_bit_cast(double, bits); }

constexpr uint64_t kSign64 = uint64_t{1} << 63;
constexpr uint64_t kInfinity64 = 0x7ff0000000000000u;
constexpr uint64_t kQuiet64 = 0x0008000000000000u;
constexpr uint64_t kHidden64 = uint64_t{1} << 52;

// NaN made quiet, everything else as it is.
inline double quieted(double x) {
  const uint64_t u = bits_of(x);
  return double_of(u | ((u & ~kSign64) > kInfinity64 ? kQuiet64 : 0));
}
inline F16 quieted(F16 x) {
  const bool nan = (x.bits & 0x7fffu) > 0x7c00u;
  return {static_cast<uint16_t>(x.bits | (nan ? 0x200u : 0u))};
}
inline BF16 quieted(BF16 x) {
  const bool nan = (x.bits & 0x7fffu) > 0x7f80u;
  return {static_cast<uint16_t>(nan ? (x.bits & 0x8000u) | 0x7fc0u : x.bits)};
}

// --- On the way to a half ------------------------------------------------------------------------

// "Rounded to odd": cut to 24 bits, the last of them set if anything was lost. Rounding that once
// more to a format at least two bits narrower is then correct.
inline uint64_t cut_to_odd(uint64_t u) {
  constexpr uint64_t kLost = (uint64_t{1} << 29) - 1;
  return (u & ~kLost) | ((u & kLost) != 0 ? kLost + 1 : 0);
}

// The float from which rounding to f16 gives what rounding x itself would; what lies below 2^-126
// is far below anything but zero in f16.
inline float odd_float_for_f16(double x) {
  return static_cast<float>(double_of(cut_to_odd(bits_of(x))));
}

// The same for f16 and bf16. Below 2^-126 x is rounded to the spacing that bf16 has there, 2^-133.
inline float odd_float(double x) {
  constexpr uint64_t kSmallestNormal = uint64_t{0x381} << 52;  // 2^-126
  constexpr double kShift = 0x1.8p-81;                         // one unit in its last place: 2^-133
  const uint64_t u = bits_of(x), magnitude = u & ~kSign64;
  const uint64_t tiny = bits_of((double_of(magnitude) + kShift) - kShift) | (u & kSign64);
  return static_cast<float>(double_of(pick(magnitude < kSmallestNormal, tiny, cut_to_odd(u))));
}

// Integers "rounded to odd": exact, or with the low bits gathered into the lowest one kept, which
// is far below the last bit of a half.
inline float odd_float(int32_t x) {
  const auto u = static_cast<uint32_t>(x);
  const bool fits = u + (1u << 23) < (1u << 24);
  const auto kept = static_cast<uint32_t>(x >> 8) | ((u & 0xffu) != 0);
  return static_cast<float>(static_cast<int32_t>(pick(fits, u, kept))) *
         float_of(pick(fits, bits_of(1.0f), bits_of(256.0f)));
}
inline float odd_float(uint32_t x) {
  const bool fits = x < (1u << 24);
  const uint32_t kept = (x >> 8) | ((x & 0xffu) != 0);
  return static_cast<float>(static_cast<int32_t>(pick(fits, x, kept))) *
         float_of(pick(fits, bits_of(1.0f), bits_of(256.0f)));
}
inline double odd_double(int64_t x) {
  const auto u = static_cast<uint64_t>(x);
  const bool fits = u + (kHidden64 >> 1) < kHidden64;
  const auto kept = static_cast<uint64_t>(x >> 12) | ((u & 0xfff) != 0);
  // 1.5 * 2^52 + n for |n| <= 2^51 has n in its low bits.
  const double n = double_of(pick(fits, u, kept) + bits_of(0x1.8p52)) - 0x1.8p52;
  return n * double_of(pick(fits, bits_of(1.0), bits_of(4096.0)));
}
inline double odd_double(uint64_t x) {
  const bool fits = x < kHidden64;
  const uint64_t kept = (x >> 12) | ((x & 0xfff) != 0);
  const double n = double_of(pick(fits, x, kept) | bits_of(0x1p52)) - 0x1p52;
  return n * double_of(pick(fits, bits_of(1.0), bits_of(4096.0)));
}
inline float odd_float(int64_t x) {
  return static_cast<float>(double_of(cut_to_odd(bits_of(odd_double(x)))));
}
inline float odd_float(uint64_t x) {
  return static_cast<float>(double_of(cut_to_odd(bits_of(odd_double(x)))));
}
template <class I>
inline float odd_float(I x) {  // narrower ones are exact
  return static_cast<float>(x);
}

// --- Integers to double --------------------------------------------------------------------------

// Both halves exact, each under an exponent of its own; the sum is the only rounding.
inline double sum_of_halves(uint64_t high, uint64_t low, double offset) {
  return (double_of(high) - offset) + double_of(low | bits_of(0x1p52));
}
inline double nearest_double(int64_t x) {
  const auto u = static_cast<uint64_t>(x);
  return sum_of_halves((u >> 32) ^ bits_of(0x1.000008p84), u & 0xffffffffu,
                       0x1p84 + 0x1p63 + 0x1p52);
}
inline double nearest_double(uint64_t x) {
  return sum_of_halves((x >> 32) | bits_of(0x1p84), x & 0xffffffffu, 0x1p84 + 0x1p52);
}

// --- Floats to integers --------------------------------------------------------------------------

template <class I>
struct Limits {
  static constexpr bool kSigned = static_cast<I>(-1) < I{0};
  static constexpr int kBits = 8 * sizeof(I);
  static constexpr I kMin = kSigned ? static_cast<I>(uint64_t{1} << (kBits - 1)) : I{0};
  static constexpr I kMax = static_cast<I>(~kMin);
};

// x within [low, high]; NaN is 0.
template <class F>
inline F clamped(F x, F low, F high) {
  x = x == x ? x : F{0};
  x = x > low ? x : low;
  return x < high ? x : high;
}

// Does F hold both ends of I? Then clamping is all that an integer needs before it is cut.
template <class I, class F>
constexpr bool kHoldsEnds = 8 * sizeof(I) < (sizeof(F) == 4 ? 24 : 53);

// By shifting the significand, where no instruction does it.
template <class I>
inline I shifted(double x) {
  const uint64_t u = bits_of(x);
  const uint64_t magnitude = u & ~kSign64;
  const auto exponent = static_cast<int64_t>(magnitude >> 52) - 1075;
  const uint64_t m = (u & (kHidden64 - 1)) | kHidden64;
  const int64_t left = exponent > 0 ? exponent : 0, right = exponent < 0 ? -exponent : 0;
  uint64_t n = exponent > 0 ? m << (left & 63) : m >> (right < 63 ? right : 63);
  const bool negative = (u & kSign64) != 0;
  if constexpr (Limits<I>::kSigned) {
    const bool fits = exponent < 11;  // below 2^63
    n = fits ? n : static_cast<uint64_t>(Limits<I>::kMax);
    n = negative ? (fits ? ~n + 1 : static_cast<uint64_t>(Limits<I>::kMin)) : n;
  } else {
    n = exponent < 12 ? n : Limits<I>::kMax;
    n = negative ? 0 : n;
  }
  return static_cast<I>(magnitude > kInfinity64 ? 0 : n);
}

// Cut toward zero; what is out of range becomes the nearest I, NaN becomes 0.
template <class I, class F>
inline I truncated(F x) {
  using L = Limits<I>;
  if constexpr (sizeof(I) == 8 && !kConverts64) {
    return shifted<I>(x);
  } else {
    // I ends at a power of two, one more than its maximum; below it comes the largest such F.
    constexpr F kEnd = 2 * static_cast<F>(uint64_t{1} << (L::kBits - 1 - L::kSigned));
    constexpr F kLargest = kEnd - kEnd / (sizeof(F) == 4 ? 0x1p24f : 0x1p53);
    const I n = static_cast<I>(clamped(x, static_cast<F>(L::kMin), kLargest));
    return x >= kEnd ? L::kMax : n;
  }
}

// --- Any element that is no half -----------------------------------------------------------------

template <class T>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;
template <>
constexpr bool kIsFloat<double> = true;

template <class D, class S>
inline D converted(S x) {
  if constexpr (kIsFloat<S> && !kIsFloat<D>) {
    return truncated<D>(x);
  } else if constexpr (__is_same(S, double) && __is_same(D, double)) {
    return quieted(x);
  } else if constexpr (!kConverts64 && !kIsFloat<S> && sizeof(S) == 8 && __is_same(D, double)) {
    return nearest_double(x);
  } else {
    return static_cast<D>(x);
  }
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_CONVERT_INL_H_
