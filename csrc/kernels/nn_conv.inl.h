// Convolutions as matrix products: windows become rows of a matrix, and its gradient goes back to
// the images. A row holds (group, window row, window column, channel of the group). kIeee.
#ifndef MPCORE_KERNELS_NN_CONV_INL_H_
#define MPCORE_KERNELS_NN_CONV_INL_H_

#include <stdint.h>
#include <string.h>

#include "dispatch/kernel_table.h"
#include "kernels/vec.inl.h"

namespace mpcore {
namespace {

// Short runs, for which a call of memcpy costs more than the bytes.
inline void copy_run(char* to, const char* from, int64_t bytes) {
  for (; bytes >= 64; bytes -= 64, to += 64, from += 64) memcpy(to, from, 64);
  for (; bytes >= 8; bytes -= 8, to += 8, from += 8) memcpy(to, from, 8);
  for (; bytes > 0; bytes -= 2, to += 2, from += 2) memcpy(to, from, 2);
}
inline void clear_run(char* to, int64_t bytes) { memset(to, 0, static_cast<size_t>(bytes)); }

inline int64_t clamp(int64_t x, int64_t low, int64_t high) {
  return x < low ? low : x > high ? high : x;
}

// One row of a window whose columns are neighbours and all channels of which follow each other.
inline void lower_run(const mpcore_window2d& w, const char* line, int64_t column, int64_t pixel,
                      char* to) {
  const int64_t left = clamp(-column, 0, w.window_width);
  const int64_t right = clamp(w.width - column, left, w.window_width);
  clear_run(to, left * pixel);
  copy_run(to + left * pixel, line + (column + left) * pixel, (right - left) * pixel);
  clear_run(to + right * pixel, (w.window_width - right) * pixel);
}

void im2col_kernel(const mpcore_window2d& w, int64_t groups, int64_t size, const void* image,
                   int64_t out_row, void* rows) {
  const int64_t pixel = w.channels * size, run = pixel / groups;
  const bool whole = groups == 1 && w.dilation_width == 1;
  char* to = static_cast<char*>(rows);
  for (int64_t j = 0; j < w.out_width; ++j) {
    const int64_t column = j * w.stride_width - w.pad_left;
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t p = 0; p < w.window_height; ++p) {
        const int64_t row = out_row * w.stride_height - w.pad_top + p * w.dilation_height;
        const bool inside = row >= 0 && row < w.height;
        const char* line = static_cast<const char*>(image) + row * w.width * pixel;
        if (!inside || whole) {
          if (inside) {
            lower_run(w, line, column, pixel, to);
          } else {
            clear_run(to, w.window_width * run);
          }
          to += w.window_width * run;
          continue;
        }
        for (int64_t q = 0; q < w.window_width; ++q, to += run) {
          const int64_t at = column + q * w.dilation_width;
          if (at >= 0 && at < w.width) {
            copy_run(to, line + at * pixel + g * run, run);
          } else {
            clear_run(to, run);
          }
        }
      }
    }
  }
}

// Calls body(output position, element of its window) for the windows along one axis that have
// position `at`, in the order of their elements.
template <class Body>
inline void for_each_window(int64_t at, int64_t pad, int64_t size, int64_t dilation, int64_t stride,
                            int64_t count, Body&& body) {
  const int64_t start = at + pad, last = start / stride;
  for (int64_t i = last < count ? last : count - 1; i >= 0; --i) {
    const int64_t offset = start - i * stride;
    if (offset > (size - 1) * dilation) return;
    if (dilation == 1) {
      body(i, offset);
    } else if (offset % dilation == 0) {
      body(i, offset / dilation);
    }
  }
}

// Calls body(row, column of the output, element of its window) for the windows that have a pixel.
template <class Body>
inline void for_each_tap(const mpcore_window2d& w, int64_t row, int64_t column, Body&& body) {
  for_each_window(row, w.pad_top, w.window_height, w.dilation_height, w.stride_height, w.out_height,
                  [&](int64_t i, int64_t p) {
                    for_each_window(column, w.pad_left, w.window_width, w.dilation_width,
                                    w.stride_width, w.out_width, [&](int64_t j, int64_t q) {
                                      body(i, j, p * w.window_width + q);
                                    });
                  });
}

// Channels whose sums are carried together: 1 KiB of the nearest cache.
constexpr int64_t kChannelBlock = 256;

void col2im_kernel(const ColumnSums& s) {
  const mpcore_window2d& w = *s.window;
  const int64_t channels = w.channels / s.groups;
  const int64_t run = w.window_height * w.window_width * channels, line = s.groups * run;
  alignas(64) float sum[kChannelBlock];
  // Channels [c, c + n) of the group at `out`.
  const auto add_up = [&](int64_t column, int64_t g, int64_t c, int64_t n, int64_t out) {
    for_each_vector(n, [&](int64_t i, auto count) {
      (s.load ? load(s.sums + out + i, count) : F32x16::zero()).store(sum + i);
    });
    for_each_tap(w, s.row, column, [&](int64_t i, int64_t j, int64_t tap) {
      if (i < s.first || i >= s.first + s.rows) return;
      const int64_t row = (i - s.first) * w.out_width + j;
      const float* from = s.columns + row * line + g * run + tap * channels + c;
      for_each_vector(n, [&](int64_t l, auto count) {
        (F32x16::load(sum + l) + load(from + l, count)).store(sum + l);
      });
    });
  };
  dispatch_compute(w.dtype, [&](auto* tag) {
    using T = Pointee<decltype(tag)>;
    for (int64_t at = 0; at < w.width * s.groups; ++at) {
      const int64_t column = at / s.groups, g = at % s.groups;
      for (int64_t c = 0; c < channels; c += kChannelBlock) {
        const int64_t n = channels - c < kChannelBlock ? channels - c : kChannelBlock;
        const int64_t out = at * channels + c;
        add_up(column, g, c, n, out);
        for_each_vector(n, [&](int64_t i, auto count) {
          const F32x16 total = F32x16::load(sum + i);
          if (s.dx != nullptr) {
            store(total, static_cast<T*>(s.dx) + out + i, count);
          } else {
            store(total, s.sums + out + i, count);
          }
        });
      }
    }
  });
}

}  // namespace
}  // namespace mpcore

#endif  // MPCORE_KERNELS_NN_CONV_INL_H_
