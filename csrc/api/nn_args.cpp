#include "api/nn_args.h"

#include <cinttypes>
#include <cstring>

#include "runtime/error.h"

namespace mpcore {

mpcore_status check_shape(const char* function, int64_t rows, int64_t cols, int64_t min_cols) {
  if (const auto s = check_size(function, "rows", rows)) return s;
  if (const auto s = check_size(function, "cols", cols)) return s;
  if (cols < min_cols)
    return fail(MPCORE_INVALID_ARGUMENT, "%s: cols must be >= %" PRId64 " (got cols=%" PRId64 ")",
                function, min_cols, cols);
  int64_t size;
  if (__builtin_mul_overflow(rows, cols, &size) || size > INT64_MAX / 8)
    return fail(MPCORE_INVALID_ARGUMENT,
                "%s: rows * cols must fit in memory (got rows=%" PRId64 ", cols=%" PRId64 ")",
                function, rows, cols);
  return MPCORE_OK;
}

mpcore_status check_all_apart(const char* function, std::initializer_list<ByteRange> outputs,
                              std::initializer_list<ByteRange> inputs, const void* shared) {
  for (const ByteRange* out = outputs.begin(); out != outputs.end(); ++out) {
    const bool first = out == outputs.begin();
    for (const ByteRange& in : inputs)
      if (const auto s = check_apart(function, *out, in, first && in.data == shared)) return s;
    for (const ByteRange* other = out + 1; other != outputs.end(); ++other)
      if (const auto s = check_apart(function, *out, *other)) return s;
  }
  return MPCORE_OK;
}

mpcore_status add_leaves(Session& session, const float* leaf, int64_t leaves, int64_t stride,
                         int64_t cols, float* out) {
  return session.parallel_for(ceil_div(cols, kColumnStep), FpMode::kIeee, [&](int64_t strip) {
    const int64_t left = strip * kColumnStep, width = std::min(kColumnStep, cols - left);
    double total[kColumnStep] = {};
    for (int64_t first = 0; first < leaves; first += kGroupLeaves) {
      double group[kColumnStep] = {};
      for (int64_t i = first; i < std::min(first + kGroupLeaves, leaves); ++i)
        for (int64_t j = 0; j < width; ++j)
          group[j] += static_cast<double>(leaf[i * stride + left + j]);
      for (int64_t j = 0; j < width; ++j) total[j] += group[j];
    }
    for (int64_t j = 0; j < width; ++j) {
      const float rounded = static_cast<float>(total[j]);
      std::memcpy(out + left + j, &rounded, sizeof(rounded));
    }
  });
}

}  // namespace mpcore
