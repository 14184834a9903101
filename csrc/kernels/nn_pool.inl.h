// Pooling: windows become numbers, and their gradients go back. The mode is kIeee.
#ifndef MPCORE_KERNELS_NN_POOL_INL_H_
#define MPCORE_KERNELS_NN_POOL_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/nn_conv.inl.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// The part [begin, end) of an axis that a window covers.
struct Cover {
  int64_t begin, end;
};
inline Cover cover(int64_t out, int64_t stride, int64_t pad, int64_t size, int64_t length) {
  const int64_t start = out * stride - pad;
  return {start < 0 ? 0 : start, start + size < length ? start + size : length};
}
inline Cover cover_rows(const mpcore_window2d& w, int64_t i) {
  return cover(i, w.stride_height, w.pad_top, w.window_height, w.height);
}
inline Cover cover_columns(const mpcore_window2d& w, int64_t j) {
  return cover(j, w.stride_width, w.pad_left, w.window_width, w.width);
}

// Places within a window are exact as fp32.
inline void store_places(F32x16 x, int32_t* to, int count) {
  float v[kLanes];
  int32_t places[kLanes];
  x.store(v);
  for (int l = 0; l < kLanes; ++l) places[l] = static_cast<int32_t>(v[l]);
  memcpy(to, places, sizeof(int32_t) * static_cast<size_t>(count));
}
inline F32x16 load_places(const int32_t* from, int count) {
  float v[kLanes];
  int32_t places[kLanes] = {};
  memcpy(places, from, sizeof(int32_t) * static_cast<size_t>(count));
  for (int l = 0; l < kLanes; ++l) v[l] = static_cast<float>(places[l]);
  return F32x16::load(v);
}

// Calls body(x, row of the window, column) for `count` channels of the pixels that a window covers.
template <class T, class Count, class Body>
inline void for_each_pixel(const mpcore_window2d& w, const T* channel, const Cover& rows,
                           const Cover& columns, Count count, Body&& body) {
  for (int64_t p = rows.begin; p < rows.end; ++p)
    for (int64_t q = columns.begin; q < columns.end; ++q)
      body(load(channel + (p * w.width + q) * w.channels, count), p, q);
}

void pool_kernel(const PoolRow& r) {
  const mpcore_window2d& w = *r.window;
  const Cover rows = cover_rows(w, r.row);
  const int64_t top = r.row * w.stride_height - w.pad_top;
  dispatch_compute(w.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    for (int64_t j = 0; j < w.out_width; ++j) {
      const Cover columns = cover_columns(w, j);
      const int64_t left = j * w.stride_width - w.pad_left;
      const float size =
          static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
      T* const to = static_cast<T*>(r.to) + j * w.channels;
      for_each_vector(w.channels, [&](int64_t c, auto count) {
        const T* const channel = static_cast<const T*>(r.from) + c;
        if (r.pooling == MPCORE_POOLING_AVERAGE) {
          F32x16 sum = F32x16::zero();
          for_each_pixel(w, channel, rows, columns, count,
                         [&](F32x16 x, int64_t, int64_t) { sum = sum + x; });
          return store(sum / F32x16::set(size), to + c, count);
        }
        const auto place_of = [&](int64_t p, int64_t q) {
          return F32x16::set(static_cast<float>((p - top) * w.window_width + q - left));
        };
        F32x16 best = F32x16::set(-__builtin_inff()), place = place_of(rows.begin, columns.begin);
        for_each_pixel(w, channel, rows, columns, count, [&](F32x16 x, int64_t p, int64_t q) {
          const F32x16 here = place_of(p, q);
          const Mask16 better = less(best, x), nan = is_nan(x);
          best = select(nan, x, select(better, x, best));
          place = select(nan, here, select(better, here, place));
        });
        store(best, to + c, count);
        if (r.argmax != nullptr) store_places(place, r.argmax + j * w.channels + c, count);
      });
    }
  });
}

void pool_backward_kernel(const PoolRow& r) {
  const mpcore_window2d& w = *r.window;
  dispatch_compute(w.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    for (int64_t column = 0; column < w.width; ++column) {
      for_each_vector(w.channels, [&](int64_t c, auto count) {
        F32x16 sum = F32x16::zero();
        for_each_tap(w, r.row, column, [&](int64_t i, int64_t j, int64_t tap) {
          const int64_t at = (i * w.out_width + j) * w.channels + c;
          const F32x16 dy = load(static_cast<const T*>(r.from) + at, count);
          if (r.pooling == MPCORE_POOLING_AVERAGE) {
            const Cover rows = cover_rows(w, i), columns = cover_columns(w, j);
            const int64_t size = (rows.end - rows.begin) * (columns.end - columns.begin);
            sum = sum + dy / F32x16::set(static_cast<float>(size));
            return;
          }
          const F32x16 place = load_places(r.argmax + at, count);
          const F32x16 here = F32x16::set(static_cast<float>(tap));
          const F32x16 share = select(less(place, here), F32x16::zero(), dy);
          sum = sum + select(less(here, place), F32x16::zero(), share);
        });
        store(sum, static_cast<T*>(r.to) + column * w.channels + c, count);
      });
    }
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NN_POOL_INL_H_
