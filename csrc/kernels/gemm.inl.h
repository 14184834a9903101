// The matrix product: one register tile per summation order. Packing and the epilogue have their
// own files; loops over blocks, threads, and memory live in api/gemm_panels.cpp.
//
// Panels are [k][width] fp32 with zeros at the edges. Conversion from halves is exact, so a product
// of two elements is what the orders say. Whoever fills a row of the tile never sees other rows:
// its bits depend on that row of A, on B, and on k alone.
#ifndef MPCORE_KERNELS_GEMM_INL_H_
#define MPCORE_KERNELS_GEMM_INL_H_

#include <stdint.h>

#include "dispatch/kernel_table.h"
#include "kernels/gemm_epilogue.inl.h"
#include "kernels/gemm_pack.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// Where a tile finds B and its totals: element p of column j at b[p * b_stride + j].
template <class T>
struct TileColumns {
  const T* b;
  int64_t b_stride;
  float* total;
  int64_t total_stride;

  inline F32x16 load_b(int64_t p, int j) const {
    return F32x16::load(b + p * b_stride + j * kLanes);
  }
  inline float* at(int i, int j) const { return total + i * total_stride + j * kLanes; }
  inline void ask_ahead(int64_t) const {}
};

// The same for a packed B; with each k, a cache line of what comes after is asked for.
template <int kWidth>
struct PanelColumns : TileColumns<float> {
  const float* next;

  PanelColumns(const float* b, float* total, const float* after)
      : TileColumns<float>{b, kWidth, total, kWidth}, next(after) {}
  inline void ask_ahead(int64_t p) const { __builtin_prefetch(next + p * kLanes, 0, 2); }
};

// One FMA chain in increasing k per element, continued from the total if asked. A is [k][width].
struct Chain {
  // A panel of B comes from L2 as fast as it is used.
  static constexpr int kStep = 1, kBlock = 512;

  template <class F>
  static inline void dispatch(mpcore_dtype dtype, F&& f) {
    dtype == MPCORE_DTYPE_F16 ? f(static_cast<F16*>(nullptr)) : f(static_cast<float*>(nullptr));
  }

  template <int kRows, int kVectors, class Columns>
  static inline void run(int64_t k, const float* a, int64_t width, const Columns& c,
                         bool load_total) {
    F32x16 sum[kRows][kVectors];
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j)
        sum[i][j] = load_total ? F32x16::load(c.at(i, j)) : F32x16::zero();
    for (int64_t p = 0; p < k; ++p, a += width) {
      F32x16 b[kVectors];
      for (int j = 0; j < kVectors; ++j) b[j] = c.load_b(p, j);
      c.ask_ahead(p);
      for (int i = 0; i < kRows; ++i) {
        const F32x16 x = F32x16::set(a[i]);
        for (int j = 0; j < kVectors; ++j) sum[i][j] = fma(x, b[j], sum[i][j]);
      }
    }
    for (int i = 0; i < kRows; ++i)
      for (int j = 0; j < kVectors; ++j) sum[i][j].store(c.at(i, j));
  }
};

// The order of TDPBF16PS: per 32 k an FMA chain over the even and one over the odd k, both from
// zero; then even + odd; then added to the total. A last block may be shorter.
struct Pairs {
  // With half as many rows to a tile, a panel of B has to stay in L1.
  static constexpr int kStep = 32, kBlock = 192;

  template <class F>
  static inline void dispatch(mpcore_dtype, F&& f) {
    f(static_cast<BF16*>(nullptr));
  }

  template <int kRows, int kVectors, class Columns>
  static inline void run(int64_t k, const float* a, int64_t width, const Columns& c,
                         bool load_total) {
    for (int64_t block = 0; block < k; block += kStep) {
      F32x16 even[kRows][kVectors], odd[kRows][kVectors];
      for (int i = 0; i < kRows; ++i)
        for (int j = 0; j < kVectors; ++j) even[i][j] = odd[i][j] = F32x16::zero();
      const int64_t end = k - block < kStep ? k : block + kStep;
      const auto add = [&](int64_t p, F32x16(&sum)[kRows][kVectors]) {
        F32x16 b[kVectors];
        for (int j = 0; j < kVectors; ++j) b[j] = c.load_b(p, j);
        for (int i = 0; i < kRows; ++i) {
          const F32x16 x = F32x16::set(a[p * width + i]);
          for (int j = 0; j < kVectors; ++j) sum[i][j] = fma(x, b[j], sum[i][j]);
        }
      };
      int64_t p = block;
      for (; p + 1 < end; p += 2) {
        add(p, even);
        add(p + 1, odd);
      }
      if (p < end) add(p, even);
      // Totals are not to be fetched before this point: there is no register left for them.
      asm volatile("" ::: "memory");
      for (int i = 0; i < kRows; ++i) {
        for (int j = 0; j < kVectors; ++j) {
          float* const total = c.at(i, j);
          const F32x16 before = load_total || block > 0 ? F32x16::load(total) : F32x16::zero();
          (before + (even[i][j] + odd[i][j])).store(total);
        }
      }
    }
  }
};

// A tile of 1..kRows rows, so that a thin A does not pay for rows it does not have. All heights
// write the same bits.
template <class Order, int kRows, int kVectors, class Columns>
inline void run_height(int32_t rows, int64_t k, const float* a, int64_t width, const Columns& c,
                       bool load_total) {
  if constexpr (kRows > 1) {
    if (rows < kRows)
      return run_height<Order, kRows - 1, kVectors>(rows, k, a, width, c, load_total);
  }
  Order::template run<kRows, kVectors>(k, a, width, c, load_total);
}

// Both operands in panels.
template <class Order, int kRows, int kVectors>
void tile_kernel(int64_t k, int32_t rows, const float* a, const float* b, float* total,
                 bool load_total, const float* next) {
  constexpr int kWidth = kVectors * kLanes;
  const PanelColumns<kWidth> columns(b, total, next);
  run_height<Order, kRows, kVectors>(rows, k, a, kRows, columns, load_total);
}

// B where the caller has it: for so few rows of A that packing B costs more than it saves.
template <class Order, int kRows, int kVectors>
void thin_kernel(const GemmThin& g) {
  Order::dispatch(g.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    for (int64_t j = 0; j < g.cols; j += kVectors * kLanes) {
      const TileColumns<T> columns{static_cast<const T*>(g.b) + j, g.b_stride, g.total + j,
                                   g.total_stride};
      run_height<Order, kRows, kVectors>(g.rows, g.k, g.a, g.rows, columns, g.load_total);
    }
  });
}

// --- Table ---------------------------------------------------------------------------------------

template <class Order, int kRows, int kVectors>
constexpr GemmOrder make_order() {
  static_assert(kRows * kVectors * kLanes <= kMaxGemmTile);
  return {.mr = kRows,
          .nr = kVectors * kLanes,
          .k_step = Order::kStep,
          .k_block = Order::kBlock,
          .tile = tile_kernel<Order, kRows, kVectors>,
          .thin = thin_kernel<Order, kRows, kVectors>};
}

template <class Level>
constexpr GemmKernels make_gemm_kernels() {
  return {.chain = make_order<Chain, Level::kChainRows, Level::kChainVectors>(),
          .pairs = make_order<Pairs, Level::kPairRows, Level::kPairVectors>(),
          .pack = pack_kernel,
          .epilogue = epilogue_kernel};
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_GEMM_INL_H_
