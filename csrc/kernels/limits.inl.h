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

// Calls body(i, w, count) for the vectors of [0, n), walking kWalks parts side by side: memory
// gives more to several streams than to one. The last vector may have fewer than sixteen elements.
template <int kWalks, class Body>
inline void walk_side_by_side(int64_t n, Body&& body) {
  const int64_t part = n / (kWalks * kLanes) * kLanes;
  for (int64_t i = 0; i < part; i += kLanes) {
#pragma GCC unroll 8
    for (int w = 0; w < kWalks; ++w) body(w * part + i, w, Whole{});
  }
  const int64_t done = kWalks * part;
  for_each_vector(n - done, [&](int64_t i, auto count) { body(done + i, 0, count); });
}

template <bool kFar>
void read_pass(int64_t n, const float* a) {
  constexpr int kWalks = 8;
  F32x16 largest[kWalks];
  for (F32x16& x : largest) x = F32x16::zero();
  walk_side_by_side<kWalks>(n, [&](int64_t i, int w, auto count) {
    if constexpr (kFar) ask(a + i);
    largest[w] = max(largest[w], load(a + i, count));
  });
  for (int w = 1; w < kWalks; ++w) largest[0] = max(largest[0], largest[w]);
  keep(largest[0]);
}

template <bool kFar>
void negate_pass(int64_t n, float* a) {
  walk_side_by_side<4>(n, [&](int64_t i, int, auto count) {
    if constexpr (kFar) ask_to_write(a + i);
    store(F32x16::set(-1.0f) * load(a + i, count), a + i, count);
  });
}

template <bool kFar>
void copy_pass(int64_t n, const float* a, float* b) {
  walk_side_by_side<4>(n, [&](int64_t i, int, auto count) {
    if constexpr (kFar) ask(a + i);
    store(load(a + i, count), b + i, count);
  });
}

// A line past the caches, or a part of one.
inline void put_line(F32x16 x, float* to, Whole) {
  alignas(64) float line[kLanes];
  x.store(line);
  stream_line(to, line);
}
inline void put_line(F32x16 x, float* to, int count) { x.store(to, count); }

void copy_nontemporal_pass(int64_t n, const float* a, float* b) {
  constexpr int64_t kLine = 64, kElement = sizeof(float);
  // Elements up to the first whole line; no number of them gets there from an odd address.
  const auto off = static_cast<int64_t>(-reinterpret_cast<uintptr_t>(b) % kLine);
  if (off % kElement != 0) return copy_pass<true>(n, a, b);
  const int64_t head = off / kElement < n ? off / kElement : n;
  for_each_vector(head, [&](int64_t i, auto count) { store(load(a + i, count), b + i, count); });
  walk_side_by_side<8>(n - head, [&](int64_t i, int, auto count) {
    ask(a + head + i);
    put_line(load(a + head + i, count), b + head + i, count);
  });
  stream_fence();
}

template <bool kFar>
void triad_pass(int64_t n, const float* a, const float* b, float* c) {
  walk_side_by_side<2>(n, [&](int64_t i, int, auto count) {
    if constexpr (kFar) {
      ask(a + i);
      ask(b + i);
    }
    store(load(a + i, count) + load(b + i, count) * F32x16::set(0.5f), c + i, count);
  });
}

template <bool kFar>
void update_pass(int64_t n, float* a, float* b, float* c, const float* d) {
  walk_side_by_side<1>(n, [&](int64_t i, int, auto count) {
    if constexpr (kFar) {
      ask_to_write(a + i);
      ask_to_write(b + i);
      ask_to_write(c + i);
      ask(d + i);
    }
    const F32x16 x = load(d + i, count);
    store(x - load(a + i, count), a + i, count);
    store(max(load(b + i, count), x), b + i, count);
    store(min(load(c + i, count), x), c + i, count);
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
