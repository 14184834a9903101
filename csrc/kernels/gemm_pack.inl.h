// Packing of operands into fp32 panels. Conversion from halves is exact.
#ifndef MPCORE_KERNELS_GEMM_PACK_INL_H_
#define MPCORE_KERNELS_GEMM_PACK_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// A panel of `width` lines by k. Whole vectors are stored, also where they reach beyond the lines:
// what they put into the next k is overwritten when that k comes, since k increases; only at the
// end of the panel are they cut.
struct Panel {
  float* data;
  int64_t k;
  int32_t width;

  // Lane l of x is element p of line `line + l`.
  inline void put(F32x16 x, int64_t line, int64_t p) const {
    const int64_t offset = p * width + line, room = k * width - offset;
    room >= kLanes ? x.store(data + offset) : x.store(data + offset, static_cast<int>(room));
  }
};

// Elements of a line between what is read and what is asked for.
constexpr int kPackAhead = 256;

template <class T>
inline F32x16 load_first(const T* p, int64_t n) {
  return n >= kLanes ? F32x16::load(p) : F32x16::load(p, static_cast<int>(n));
}

// Where the lines of a source stand: side by side or `stride` apart, or anywhere by `index`.
struct Lines {
  const int64_t* index;
  int64_t stride, count;

  inline int64_t offset(int64_t i) const { return (index != nullptr ? index[i] : i) * stride; }
};

// Lines are contiguous along k: sixteen elements of each of sixteen lines, then a transposition.
template <class T>
inline void pack_along_k(const T* src, const Lines& lines, int64_t first, const Panel& to) {
  const int64_t end = lines.count - first < to.width ? lines.count : first + to.width;
  for (int64_t line = 0; line < to.width; line += kLanes) {
    const T* from[kLanes];
    int present = 0;
    for (; present < kLanes && first + line + present < end; ++present)
      from[present] = src + lines.offset(first + line + present);
    for (int64_t p = 0; p < to.k; p += kLanes) {
      F32x16 x[kLanes];
      for (int l = 0; l < kLanes; ++l) {
        x[l] = l < present ? load_first(from[l] + p, to.k - p) : F32x16::zero();
        if (l < present) __builtin_prefetch(from[l] + p + kPackAhead, 0, 2);  // L1 lacks the ways
      }
      transpose(x);
      const int depth = static_cast<int>(to.k - p < kLanes ? to.k - p : kLanes);
      for (int q = 0; q < depth; ++q) to.put(x[q], line, p + q);
    }
  }
}

// Any strides: gathers sixteen elements, then converts them together.
template <class T>
inline void pack_strided(const T* src, int64_t k_stride, const Lines& lines, int64_t first,
                         const Panel& to) {
  const int64_t end = lines.count - first < to.width ? lines.count : first + to.width;
  for (int64_t p = 0; p < to.k; ++p) {
    for (int64_t line = 0; line < to.width; line += kLanes) {
      T gathered[kLanes] = {};
      for (int64_t l = first + line; l < end && l < first + line + kLanes; ++l)
        memcpy(&gathered[l - first - line], src + lines.offset(l) + p * k_stride, sizeof(T));
      to.put(F32x16::load(gathered), line, p);
    }
  }
}

// Lines stand side by side: each k is one contiguous run, spread over the panels.
template <class T>
inline void pack_across_k(const T* src, int64_t k_stride, int64_t count, int64_t panel_size,
                          Panel to) {
  float* const begin = to.data;
  for (int64_t p = 0; p < to.k; ++p) {
    to.data = begin;
    for (int64_t first = 0; first < count; first += to.width, to.data += panel_size) {
      for (int64_t line = 0; line < to.width; line += kLanes) {
        const int64_t i = first + line;
        const T* from = src + p * k_stride + i;
        to.put(i < count ? load_first(from, count - i) : F32x16::zero(), line, p);
      }
    }
  }
}

void pack_kernel(const GemmPack& g) {
  const int64_t panel_size = g.k_padded * g.width;
  const Lines lines{g.lines, g.line_stride, g.count};
  dispatch_compute(g.dtype, [&](auto* tag) {
    const auto* src = static_cast<const Pointee<decltype(tag)>*>(g.src);
    Panel panel{g.panels, g.k, g.width};
    if (g.lines == nullptr && g.line_stride == 1)
      return pack_across_k(src, g.k_stride, g.count, panel_size, panel);
    for (int64_t first = 0; first < g.count; first += g.width, panel.data += panel_size)
      g.k_stride == 1 ? pack_along_k(src, lines, first, panel)
                      : pack_strided(src, g.k_stride, lines, first, panel);
  });
  const size_t padding = sizeof(float) * static_cast<size_t>((g.k_padded - g.k) * g.width);
  float* panel = g.panels;
  for (int64_t first = 0; padding > 0 && first < g.count; first += g.width, panel += panel_size)
    memset(panel + g.k * g.width, 0, padding);
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_GEMM_PACK_INL_H_
