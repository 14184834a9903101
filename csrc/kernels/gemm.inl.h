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
                 int64_t count, int64_t k, int32_t width, float* panel) {
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
}

// --- Epilogue ------------------------------------------------------------------------------------

// `n` elements of a row from column j on, as fp32.
template <class Count>
inline F32x16 read_row(const mpcore_matrix& x, int64_t i, int64_t j, Count n) {
  return dispatch_compute(x.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    const T* p = static_cast<const T*>(x.data) + i * x.row_stride + j * x.col_stride;
    if (x.col_stride == 1) return load(p, n);
    T gathered[kLanes] = {};
    for (int l = 0; l < n; ++l) memcpy(&gathered[l], p + l * x.col_stride, sizeof(T));
    return F32x16::load(gathered);
  });
}

template <class Count>
inline void write_row(F32x16 value, const mpcore_matrix& x, int64_t i, int64_t j, Count n) {
  dispatch_compute(x.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    T* p = static_cast<T*>(x.data) + i * x.row_stride + j * x.col_stride;
    if (x.col_stride == 1) return store(value, p, n);
    T rounded[kLanes];
    value.store(rounded);
    for (int l = 0; l < n; ++l) memcpy(p + l * x.col_stride, &rounded[l], sizeof(T));
  });
}

// What `value` becomes when it is stored in the dtype; lanes from n on are 0.
inline F32x16 as_stored(F32x16 value, mpcore_dtype dtype, int n) {
  return dispatch_compute(dtype, [&](auto* tag) {
    Pointee<decltype(tag)> rounded[kLanes];
    value.store(rounded);
    return F32x16::load(rounded, n);
  });
}

// The sum of the squares of the lanes, in double, by halving.
inline double sum_squares_of(F32x16 x) {
  float v[kLanes];
  x.store(v);
  double s[kLanes];
  for (int i = 0; i < kLanes; ++i) s[i] = static_cast<double>(v[i]) * static_cast<double>(v[i]);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) s[i] += s[i + half];
  return s[0];
}

// Finishes row i of the range. Adds y - y of what was written to `check`: 0 if finite, else NaN.
template <mpcore_activation kActivation>
inline void finish_row(const GemmEpilogue& e, int64_t i, F32x16& check) {
  const float* total = e.total + i * e.total_stride;
  const F32x16 alpha = F32x16::set(e.alpha), beta = F32x16::set(e.beta);
  for_each_vector(e.cols, [&](int64_t j, auto n) {
    F32x16 z = load(total + j, n) * alpha;
    if (e.beta != 0.0f) z = fma(beta, read_row(e.d, i, j, n), z);
    if (e.bias != nullptr) z = z + load(e.bias + j, n);
    if (e.pre_activation.data != nullptr) write_row(z, e.pre_activation, i, j, n);
    F32x16 y = activate<kActivation>(z);
    if (e.residual.data != nullptr) y = y + read_row(e.residual, i, j, n);
    write_row(y, e.d, i, j, n);
    if (e.squares == nullptr && !e.check_finite) return;
    y = as_stored(y, e.d.dtype, n);
    check = check + (y - y);
    if (e.squares != nullptr)
      e.squares[i * e.squares_stride + (e.column + j) / kSquareColumns] += sum_squares_of(y);
  });
}

bool epilogue_kernel(const GemmEpilogue& e) {
  F32x16 check = F32x16::zero();
  dispatch_activation(e.activation, [&](auto activation) {
    for (int64_t i = 0; i < e.rows; ++i) finish_row<decltype(activation)::value>(e, i, check);
  });
  return reduce_add(check) == 0.0f;
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
