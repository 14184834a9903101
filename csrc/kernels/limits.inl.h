// Probes of what a level can do at most (limits.h): chains of one instruction, and passes over
// memory with next to no arithmetic.
#ifndef MPCORE_KERNELS_LIMITS_INL_H_
#define MPCORE_KERNELS_LIMITS_INL_H_

#include <stdint.h>

#include "dispatch/kernel_table.h"
#include "kernels/vec.inl.h"
#include "mpcore/limits.h"

namespace mpcore {
namespace {

constexpr int64_t kPeakSteps = 64;  // per chain and iteration

// Makes the compiler compute what nobody reads.
template <class T>
inline void keep(const T& x) {
  asm volatile("" : : "r"(&x) : "memory");
}

// Sixteen numbers without a pattern, in [-1, 1).
inline F32x16 random_lanes(uint32_t seed) {
  float lane[kLanes];
  for (float& x : lane) {
    seed = seed * 1664525u + 1013904223u;
    x = static_cast<float>(static_cast<int32_t>(seed)) * 0x1p-31f;
  }
  return F32x16::load(lane);
}

// Independent chains of sum = step(sum), enough of them to hide the latency of the instruction.
template <int kChains, class Step>
inline void run_chains(int64_t iterations, Step&& step) {
  F32x16 sum[kChains];
  for (F32x16& x : sum) x = F32x16::zero();
  for (int64_t i = 0; i < iterations * kPeakSteps; ++i) {
#pragma GCC unroll 32  // constant subscripts, so that the sums live in registers
    for (int c = 0; c < kChains; ++c) sum[c] = step(sum[c]);
  }
  F32x16 total = sum[0];
#pragma GCC unroll 32
  for (int c = 1; c < kChains; ++c) total = total + sum[c];
  keep(total);
}

// As many chains as a GEMM tile of the level has accumulators.
template <class Level>
int64_t fma_f32_peak(int64_t iterations) {
  constexpr int kChains = Level::kChainRows * Level::kChainVectors;
  const F32x16 x = random_lanes(1), y = random_lanes(2);
  run_chains<kChains>(iterations, [&](F32x16 sum) { return fma(x, y, sum); });
  return iterations * kPeakSteps * kChains * kLanes * 2;
}

// Beyond this many bytes per array a pass asks for its data ahead of use.
constexpr int64_t kFarBytes = int64_t{1} << 18;
constexpr int64_t kFarElements = 512;  // how far ahead: 2 KiB

inline void ask(const float* p) { __builtin_prefetch(p + kFarElements); }
inline void ask_to_write(float* p) { __builtin_prefetch(p + kFarElements, 1); }

// Calls body(i, w) for the whole vectors of [0, n), walking kWalks parts side by side: memory gives
// more to several streams than to one. Calls tail(i) for the elements that are left.
template <int kWalks, class Body, class Tail>
inline void walk(int64_t n, Body&& body, Tail&& tail) {
  const int64_t part = n / (kWalks * kLanes) * kLanes;
  for (int64_t i = 0; i < part; i += kLanes) {
#pragma GCC unroll 8
    for (int w = 0; w < kWalks; ++w) body(w * part + i, w);
  }
  for (int64_t i = kWalks * part; i < n; ++i) tail(i);
}

template <bool kFar>
void read_pass(int64_t n, const float* a) {
  constexpr int kWalks = 8;
  F32x16 largest[kWalks];
  for (F32x16& x : largest) x = F32x16::zero();
  float last = 0;
  walk<kWalks>(
      n,
      [&](int64_t i, int w) {
        if constexpr (kFar) ask(a + i);
        largest[w] = max(largest[w], F32x16::load(a + i));
      },
      [&](int64_t i) { last = a[i]; });
  for (int w = 1; w < kWalks; ++w) largest[0] = max(largest[0], largest[w]);
  keep(largest[0]);
  keep(last);
}

template <bool kFar>
void negate_pass(int64_t n, float* a) {
  walk<4>(
      n,
      [&](int64_t i, int) {
        if constexpr (kFar) ask_to_write(a + i);
        (F32x16::set(-1.0f) * F32x16::load(a + i)).store(a + i);
      },
      [&](int64_t i) { a[i] = -a[i]; });
}

template <bool kFar>
void copy_pass(int64_t n, const float* a, float* b) {
  walk<4>(
      n,
      [&](int64_t i, int) {
        if constexpr (kFar) ask(a + i);
        F32x16::load(a + i).store(b + i);
      },
      [&](int64_t i) { b[i] = a[i]; });
}

void copy_nontemporal_pass(int64_t n, const float* a, float* b) {
  constexpr int64_t kLine = kLanes * static_cast<int64_t>(sizeof(float));
  const auto at = reinterpret_cast<uintptr_t>(b);
  // To the first whole line; none is whole if b is not even aligned to its elements.
  const int64_t head = at % sizeof(float) != 0
                           ? n
                           : static_cast<int64_t>((0 - at) % static_cast<uintptr_t>(kLine)) / 4;
  int64_t start = 0;
  for (; start < n && start < head; ++start) b[start] = a[start];
  const float* const from = a + start;
  float* const to = b + start;
  walk<8>(
      n - start,
      [&](int64_t i, int) {
        alignas(64) float line[kLanes];
        ask(from + i);
        F32x16::load(from + i).store(line);
        stream_line(to + i, line);
      },
      [&](int64_t i) { to[i] = from[i]; });
  stream_fence();
}

template <bool kFar>
void triad_pass(int64_t n, const float* a, const float* b, float* c) {
  walk<2>(
      n,
      [&](int64_t i, int) {
        if constexpr (kFar) {
          ask(a + i);
          ask(b + i);
        }
        (F32x16::load(a + i) + F32x16::load(b + i) * F32x16::set(0.5f)).store(c + i);
      },
      [&](int64_t i) { c[i] = a[i] + b[i] * 0.5f; });
}

template <bool kFar>
void update_pass(int64_t n, float* a, float* b, float* c, const float* d) {
  walk<1>(
      n,
      [&](int64_t i, int) {
        if constexpr (kFar) {
          ask_to_write(a + i);
          ask_to_write(b + i);
          ask_to_write(c + i);
          ask(d + i);
        }
        const F32x16 x = F32x16::load(d + i);
        (x - F32x16::load(a + i)).store(a + i);
        max(F32x16::load(b + i), x).store(b + i);
        min(F32x16::load(c + i), x).store(c + i);
      },
      [&](int64_t i) {
        a[i] = d[i] - a[i];
        b[i] = b[i] > d[i] ? b[i] : d[i];
        c[i] = c[i] < d[i] ? c[i] : d[i];
      });
}

template <bool kFar>
void stream_pass(mpcore_stream stream, int64_t n, float* const* arrays) {
  switch (stream) {
    case MPCORE_STREAM_READ:
      return read_pass<kFar>(n, arrays[0]);
    case MPCORE_STREAM_NEGATE:
      return negate_pass<kFar>(n, arrays[0]);
    case MPCORE_STREAM_COPY:
      return copy_pass<kFar>(n, arrays[0], arrays[1]);
    case MPCORE_STREAM_COPY_NONTEMPORAL:
      return copy_nontemporal_pass(n, arrays[0], arrays[1]);
    case MPCORE_STREAM_TRIAD:
      return triad_pass<kFar>(n, arrays[0], arrays[1], arrays[2]);
    default:
      return update_pass<kFar>(n, arrays[0], arrays[1], arrays[2], arrays[3]);
  }
}

void stream_kernel(mpcore_stream stream, int64_t iterations, int64_t n, float* const* arrays) {
  const bool far = n * static_cast<int64_t>(sizeof(float)) > kFarBytes;
  for (int64_t i = 0; i < iterations; ++i)
    far ? stream_pass<true>(stream, n, arrays) : stream_pass<false>(stream, n, arrays);
}

// A level that has the other instructions names their probes.
template <class Level>
constexpr LimitKernels make_limit_kernels() {
  LimitKernels kernels = {};
  kernels.peak[MPCORE_PEAK_FMA_F32] = fma_f32_peak<Level>;
  if constexpr (requires { Level::kDotBf16Peak; })
    kernels.peak[MPCORE_PEAK_DOT_BF16] = Level::kDotBf16Peak;
  if constexpr (requires { Level::kAmxBf16Peak; })
    kernels.peak[MPCORE_PEAK_AMX_BF16] = Level::kAmxBf16Peak;
  kernels.stream = stream_kernel;
  return kernels;
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_LIMITS_INL_H_
