// The matrix product: packing into fp32 panels, one register tile per summation order, and the
// epilogue. Loops over blocks, threads, and memory live in api/gemm.cpp.
//
// Panels are [k][width] fp32 with zeros at the edges. Conversion from halves is exact, so a product
// of two elements is what the orders say. Whoever fills a row of the tile never sees other rows:
// its bits depend on that row of A, on B, and on k alone.
#ifndef MPCORE_KERNELS_GEMM_INL_H_
#define MPCORE_KERNELS_GEMM_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/math.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// --- Tiles ---------------------------------------------------------------------------------------

// One FMA chain in increasing k per element, continued from `total` if asked.
template <int kRows, int kVectors, int kWidthA>
void chain_tile(int64_t k, const float* a, const float* b, float* total, bool load_total) {
  constexpr int kN = kVectors * kLanes;
  F32x16 sum[kRows][kVectors];
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j)
      sum[i][j] = load_total ? F32x16::load(total + i * kN + j * kLanes) : F32x16::zero();
  for (int64_t p = 0; p < k; ++p, a += kWidthA, b += kN) {
    F32x16 vb[kVectors];
    for (int j = 0; j < kVectors; ++j) vb[j] = F32x16::load(b + j * kLanes);
    for (int i = 0; i < kRows; ++i) {
      const F32x16 va = F32x16::set(a[i]);
      for (int j = 0; j < kVectors; ++j) sum[i][j] = fma(va, vb[j], sum[i][j]);
    }
  }
  for (int i = 0; i < kRows; ++i)
    for (int j = 0; j < kVectors; ++j) sum[i][j].store(total + i * kN + j * kLanes);
}

// The order of TDPBF16PS: per 32 k an FMA chain over the even and one over the odd k, both from
// zero; then even + odd; then added to the total. k is a multiple of 32.
constexpr int kPairBlock = 32;

template <int kRows, int kVectors, int kWidthA>
void pairs_tile(int64_t k, const float* a, const float* b, float* total, bool load_total) {
  constexpr int kN = kVectors * kLanes;
  for (int64_t block = 0; block < k; block += kPairBlock) {
    F32x16 sum[2][kRows][kVectors];
    for (int s = 0; s < 2; ++s)
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kVectors; ++j) sum[s][i][j] = F32x16::zero();
    for (int p = 0; p < kPairBlock; p += 2) {
      for (int s = 0; s < 2; ++s, a += kWidthA, b += kN) {
        F32x16 vb[kVectors];
        for (int j = 0; j < kVectors; ++j) vb[j] = F32x16::load(b + j * kLanes);
        for (int i = 0; i < kRows; ++i) {
          const F32x16 va = F32x16::set(a[i]);
          for (int j = 0; j < kVectors; ++j) sum[s][i][j] = fma(va, vb[j], sum[s][i][j]);
        }
      }
    }
    for (int i = 0; i < kRows; ++i) {
      for (int j = 0; j < kVectors; ++j) {
        float* t = total + i * kN + j * kLanes;
        const F32x16 before = load_total || block > 0 ? F32x16::load(t) : F32x16::zero();
        (before + (sum[0][i][j] + sum[1][i][j])).store(t);
      }
    }
  }
}

// A tile of 1..kRows rows, so that a thin A does not pay for rows it does not have. All heights
// read the same panels and write the same bits.
using TileFunction = void (*)(int64_t, const float*, const float*, float*, bool);

template <class Order, int kRows>
struct Heights {
  TileFunction at[kRows + 1];
  constexpr Heights() : at{} { fill<kRows>(); }
  template <int kHeight>
  constexpr void fill() {
    at[kHeight] = Order::template tile<kHeight>;
    if constexpr (kHeight > 1) fill<kHeight - 1>();
  }
};

template <class Level>
struct ChainOrder {
  static constexpr int kRows = Level::kChainRows, kVectors = Level::kChainVectors, kStep = 1;
  template <int kHeight>
  static constexpr TileFunction tile = chain_tile<kHeight, kVectors, kRows>;
};

template <class Level>
struct PairsOrder {
  static constexpr int kRows = Level::kPairRows, kVectors = Level::kPairVectors, kStep = kPairBlock;
  template <int kHeight>
  static constexpr TileFunction tile = pairs_tile<kHeight, kVectors, kRows>;
};

template <class Order>
void run_tile(int64_t k, int32_t rows, const float* a, const float* b, float* total,
              bool load_total) {
  static constexpr Heights<Order, Order::kRows> kHeights;
  kHeights.at[rows](k, a, b, total, load_total);
}

// --- Packing -------------------------------------------------------------------------------------

// Lines are contiguous along k: sixteen elements of each line at a time, then a transposition
// through a small block that stays in cache.
template <class T>
inline void pack_along_k(const T* src, int64_t line_stride, int64_t count, int64_t k, int32_t width,
                         float* panel) {
  alignas(64) float block[kLanes][kLanes];
  for (int64_t p = 0; p < k; p += kLanes) {
    const int depth = static_cast<int>(k - p < kLanes ? k - p : kLanes);
    for (int64_t i0 = 0; i0 < count; i0 += kLanes) {
      const int lines = static_cast<int>(count - i0 < kLanes ? count - i0 : kLanes);
      for (int i = 0; i < lines; ++i)
        F32x16::load(src + (i0 + i) * line_stride + p, depth).store(block[i]);
      for (int q = 0; q < depth; ++q)
        for (int i = 0; i < lines; ++i) panel[(p + q) * width + i0 + i] = block[i][q];
    }
  }
}

// Lines stand side by side: each k is one contiguous run of `count` elements.
template <class T>
inline void pack_across_k(const T* src, int64_t k_stride, int64_t count, int64_t k, int32_t width,
                          float* panel) {
  for (int64_t p = 0; p < k; ++p)
    for_each_vector(count, [&](int64_t i, auto n) {
      store(load(src + p * k_stride + i, n), panel + p * width + i, n);
    });
}

// Any strides: gathers sixteen elements, then converts them together.
template <class T>
inline void pack_strided(const T* src, int64_t line_stride, int64_t k_stride, int64_t count,
                         int64_t k, int32_t width, float* panel) {
  for (int64_t p = 0; p < k; ++p)
    for_each_vector(count, [&](int64_t i, auto n) {
      T gathered[kLanes] = {};
      for (int j = 0; j < n; ++j)
        memcpy(&gathered[j], src + (i + j) * line_stride + p * k_stride, sizeof(T));
      store(F32x16::load(gathered), panel + p * width + i, n);
    });
}

void pack_kernel(const void* src, mpcore_dtype dtype, int64_t line_stride, int64_t k_stride,
                 int64_t count, int64_t k, int64_t k_padded, int32_t width, float* panel) {
  if (count < width) memset(panel, 0, sizeof(float) * static_cast<size_t>(k * width));
  dispatch_compute(dtype, [&](auto* tag) {
    const auto* typed = static_cast<const Pointee<decltype(tag)>*>(src);
    if (line_stride == 1) {
      pack_across_k(typed, k_stride, count, k, width, panel);
    } else if (k_stride == 1) {
      pack_along_k(typed, line_stride, count, k, width, panel);
    } else {
      pack_strided(typed, line_stride, k_stride, count, k, width, panel);
    }
  });
  memset(panel + k * width, 0, sizeof(float) * static_cast<size_t>((k_padded - k) * width));
}

// --- Epilogue ------------------------------------------------------------------------------------

template <mpcore_activation kActivation, class T>
inline void finish_row(const GemmEpilogue& e, const float* total, T* d) {
  for_each_vector(e.cols, [&](int64_t j, auto n) {
    F32x16 x = load(total + j, n);
    if (e.bias != nullptr) x = x + load(e.bias + j, n);
    x = activate<kActivation>(x);
    T* out = d + j * e.d_col_stride;
    if (e.d_col_stride == 1) {
      if constexpr (sizeof(T) == sizeof(float)) {
        if (e.accumulate) x = x + load(out, n);
      }
      store(x, out, n);
    } else {
      T rounded[kLanes];
      if constexpr (sizeof(T) == sizeof(float)) {
        if (e.accumulate) {
          float before[kLanes] = {};
          for (int i = 0; i < n; ++i) memcpy(&before[i], out + i * e.d_col_stride, sizeof(T));
          x = x + F32x16::load(before);
        }
      }
      x.store(rounded);
      for (int i = 0; i < n; ++i) memcpy(out + i * e.d_col_stride, &rounded[i], sizeof(T));
    }
  });
}

void epilogue_kernel(const GemmEpilogue& e) {
  dispatch_compute(e.d_dtype, [&](auto* tag) {
    auto* d = static_cast<Pointee<decltype(tag)>*>(e.d);
    dispatch_activation(e.activation, [&](auto activation) {
      for (int64_t i = 0; i < e.rows; ++i)
        finish_row<decltype(activation)::value>(e, e.total + i * e.total_stride,
                                                d + i * e.d_row_stride);
    });
  });
}

// --- Table ---------------------------------------------------------------------------------------

template <class Order>
constexpr GemmOrder make_order() {
  static_assert(Order::kRows * Order::kVectors * kLanes <= kMaxGemmTile);
  return {.mr = Order::kRows,
          .nr = Order::kVectors * kLanes,
          .k_step = Order::kStep,
          .tile = run_tile<Order>};
}

template <class Level>
constexpr GemmKernels make_gemm_kernels() {
  return {.chain = make_order<ChainOrder<Level>>(),
          .pairs = make_order<PairsOrder<Level>>(),
          .pack = pack_kernel,
          .epilogue = epilogue_kernel};
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_GEMM_INL_H_
