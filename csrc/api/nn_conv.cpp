// Convolution, by blocks of windows that become rows of a matrix, and one product for each.
#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "api/check.h"
#include "api/gemm_args.h"
#include "api/gemm_pack.h"
#include "api/gemm_problem.h"
#include "api/gemm_product.h"
#include "api/nn_window.h"
#include "runtime/context.h"
#include "runtime/error.h"

namespace mpcore {
namespace {

// Of a block of windows: it stays in the second cache between its writing and its product.
constexpr int64_t kBlockBytes = int64_t{1} << 20;

constexpr int64_t kFloat = sizeof(float);

struct Conv {
  const mpcore_window2d& w;
  int64_t filters, groups;

  int64_t channels() const { return w.channels / groups; }    // of a group
  int64_t group_filters() const { return filters / groups; }  // of a group
  int64_t k() const { return window_size(w) * channels(); }   // of a group's product
  int64_t columns() const { return window_size(w) * w.channels; }
  int64_t output_size() const { return w.batch * out_pixels(w) * filters; }
  int64_t kernel_size() const { return k() * filters; }
  // Is an image its own matrix of windows?
  bool is_pointwise() const {
    return window_size(w) == 1 && w.stride_height == 1 && w.stride_width == 1 && w.pad_top == 0 &&
           w.pad_left == 0 && w.out_height == w.height && w.out_width == w.width;
  }
};

mpcore_status check_conv(const char* function, const mpcore_window2d* window, int64_t filters,
                         int64_t groups) {
  if (const auto s = check_size(function, "filters", filters)) return s;
  if (const auto s = check_window(function, window, filters)) return s;
  if (groups >= 1 && window->channels % groups == 0 && filters % groups == 0) return MPCORE_OK;
  return fail(MPCORE_INVALID_ARGUMENT,
              "%s: groups must be >= 1 and divide channels and filters (got groups=%" PRId64
              ", channels=%" PRId64 ", filters=%" PRId64 ")",
              function, groups, window->channels, filters);
}

// Output rows of one image, or several images whole. How an image is cut depends on its own sizes.
struct Block {
  int64_t image, images;
  int64_t row, rows;

  int64_t count() const { return images * rows; }
};

// Calls body(block) for the blocks of windows in order, `row_bytes` being those of an output row;
// once with an empty block if there is nothing.
template <class Body>
mpcore_status for_each_block(const mpcore_window2d& w, int64_t row_bytes, Body&& body) {
  if (w.batch == 0 || out_pixels(w) == 0) return body(Block{0, 0, 0, 0});
  const int64_t most = std::max<int64_t>(1, kBlockBytes / std::max<int64_t>(1, row_bytes));
  const int64_t images = std::max<int64_t>(1, most / w.out_height);
  const int64_t cuts = ceil_div(w.out_height, most), rows = ceil_div(w.out_height, cuts);
  for (int64_t image = 0; image < w.batch; image += images)
    for (int64_t row = 0; row < w.out_height; row += rows)
      if (const auto s = body(Block{image, std::min(images, w.batch - image), row,
                                    std::min(rows, w.out_height - row)}))
        return s;
  return MPCORE_OK;
}
int64_t largest_block_rows(const mpcore_window2d& w, int64_t row_bytes) {
  int64_t rows = 0;
  for_each_block(w, row_bytes, [&](const Block& block) {
    rows = std::max(rows, block.count());
    return mpcore_status{MPCORE_OK};
  });
  return rows;
}

class Convolution {
 public:
  Convolution(Session& session, const Conv& conv) : session_(session), c_(conv) {}

  mpcore_status forward(mpcore_activation activation, const void* x, const void* kernel,
                        const float* bias, void* y, void* pre_activation) {
    if (const auto s = pack_kernel(kernel, false)) return s;
    if (const auto s = copy_bias(bias)) return s;
    return with_windows(x, [&](const Block& block, const void* rows) {
      return for_each_group([&](int64_t g) {
        GemmProblem problem = product(pixels(block), c_.group_filters(), c_.k());
        problem.a = windows(rows, g);
        problem.packed_b = packed(g);
        problem.d = outputs(y, block, g);
        if (pre_activation != nullptr) problem.pre_activation = outputs(pre_activation, block, g);
        problem.bias = bias_ == nullptr ? nullptr : bias_ + g * c_.group_filters();
        problem.activation = activation;
        return multiply(session_, problem);
      });
    });
  }

  mpcore_status backward_kernel(const void* x, const void* dz, float* dkernel) {
    bool first = true;
    return with_windows(x, [&](const Block& block, const void* rows) {
      const auto status = for_each_group([&](int64_t g) {
        GemmProblem problem = product(c_.k(), c_.group_filters(), pixels(block));
        problem.a = windows(rows, g);
        std::swap(problem.a.row_stride, problem.a.col_stride);
        problem.b = outputs(const_cast<void*>(dz), block, g);
        problem.d = matrix(dkernel + g * c_.group_filters(), c_.filters, MPCORE_DTYPE_F32);
        problem.beta = first ? 0.0f : 1.0f;
        return multiply(session_, problem);
      });
      first = false;
      return status;
    });
  }

  mpcore_status backward_input(const void* dz, const void* kernel, void* dx) {
    if (const auto s = pack_kernel(kernel, true)) return s;
    const mpcore_window2d& w = c_.w;
    if (c_.is_pointwise()) return gradient_rows(dz, {0, w.batch, 0, w.out_height}, dx, w.dtype);
    const int64_t row_bytes = w.out_width * c_.columns() * kFloat;
    const int64_t rows = largest_block_rows(w, row_bytes);
    auto* const columns = static_cast<float*>(session_.workspace(rows * row_bytes));
    if (columns == nullptr) return MPCORE_OUT_OF_MEMORY;
    float* sums = nullptr;  // of an image that is cut
    if (rows < w.out_height) {
      sums = static_cast<float*>(session_.workspace(image_size(w) * kFloat));
      if (sums == nullptr) return MPCORE_OUT_OF_MEMORY;
    }
    return for_each_block(w, row_bytes, [&](const Block& block) -> mpcore_status {
      if (block.count() == 0) return clear(dx);
      if (const auto s = gradient_rows(dz, block, columns, MPCORE_DTYPE_F32)) return s;
      return add_columns(block, columns, sums, dx);
    });
  }

 private:
  int64_t size() const { return dtype_size(c_.w.dtype); }
  int64_t pixels(const Block& block) const { return block.count() * c_.w.out_width; }

  static mpcore_matrix matrix(const void* data, int64_t row_stride, mpcore_dtype dtype) {
    return {const_cast<void*>(data), row_stride, 1, 0, dtype, 0};
  }
  // The part of a group.
  mpcore_matrix windows(const void* rows, int64_t g) const {
    return matrix(advance(rows, g * c_.k() * size()), c_.columns(), c_.w.dtype);
  }
  mpcore_matrix outputs(void* y, const Block& block, int64_t g) const {
    const int64_t pixel = (block.image * c_.w.out_height + block.row) * c_.w.out_width;
    return matrix(advance(y, (pixel * c_.filters + g * c_.group_filters()) * size()), c_.filters,
                  c_.w.dtype);
  }
  GemmProblem product(int64_t m, int64_t n, int64_t k) const {
    const mpcore_matrix none = matrix(nullptr, 0, c_.w.dtype);
    return plain_product(m, n, k, none, none, none, precision());
  }
  mpcore_matmul_precision precision() const {
    return resolve_precision(session_, c_.w.dtype, MPCORE_MATMUL_PRECISION_DEFAULT);
  }

  template <class Body>
  mpcore_status for_each_group(Body&& body) {
    for (int64_t g = 0; g < c_.groups; ++g)
      if (const auto s = body(g)) return s;
    return MPCORE_OK;
  }

  // The kernel, or its transpose, as the right operand of every block's product.
  mpcore_status pack_kernel(const void* kernel, bool transposed) {
    const int64_t filters = c_.group_filters();
    const PackedShape shape{transposed ? filters : c_.k(), transposed ? c_.k() : filters,
                            c_.w.dtype, precision()};
    const PackFormat& format = pack_format(session_, shape);
    packed_bytes_ = (format.size(session_, shape) + 63) / 64 * 64;
    int64_t bytes;
    if (packed_bytes_ < 0 || __builtin_mul_overflow(packed_bytes_, c_.groups, &bytes))
      return fail(MPCORE_OUT_OF_MEMORY, "no memory for the packed kernel");
    packed_ = static_cast<char*>(session_.workspace(bytes));
    if (packed_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    return for_each_group([&](int64_t g) {
      mpcore_matrix part = matrix(advance(kernel, g * filters * size()), c_.filters, c_.w.dtype);
      if (transposed) std::swap(part.row_stride, part.col_stride);
      return format.pack(session_, shape, part, packed_ + g * packed_bytes_);
    });
  }
  const void* packed(int64_t g) const { return packed_ + g * packed_bytes_; }

  // Of any alignment in, aligned out.
  mpcore_status copy_bias(const float* bias) {
    if (bias == nullptr) return MPCORE_OK;
    bias_ = static_cast<float*>(session_.workspace(c_.filters * kFloat));
    if (bias_ == nullptr) return MPCORE_OUT_OF_MEMORY;
    std::memcpy(bias_, bias, static_cast<size_t>(c_.filters * kFloat));
    return MPCORE_OK;
  }

  // Calls body(block, its windows as rows of a matrix).
  template <class Body>
  mpcore_status with_windows(const void* x, Body&& body) {
    const mpcore_window2d& w = c_.w;
    if (c_.is_pointwise()) return body(Block{0, w.batch, 0, w.out_height}, x);
    const int64_t row_bytes = w.out_width * c_.columns() * size();
    void* const rows = session_.workspace(largest_block_rows(w, row_bytes) * row_bytes);
    if (rows == nullptr) return MPCORE_OUT_OF_MEMORY;
    return for_each_block(w, row_bytes, [&](const Block& block) -> mpcore_status {
      const auto status = session_.parallel_for(block.count(), FpMode::kIeee, [&](int64_t i) {
        const int64_t image = block.image + i / block.rows;
        session_.kernels().im2col(w, c_.groups, size(), advance(x, image * image_size(w) * size()),
                                  block.row + i % block.rows, advance(rows, i * row_bytes));
      });
      return status != MPCORE_OK ? status : body(block, rows);
    });
  }

  // The gradient of a block's windows.
  mpcore_status gradient_rows(const void* dz, const Block& block, void* rows, mpcore_dtype dtype) {
    return for_each_group([&](int64_t g) {
      GemmProblem problem = product(pixels(block), c_.k(), c_.group_filters());
      problem.a = outputs(const_cast<void*>(dz), block, g);
      problem.packed_b = packed(g);
      problem.d = matrix(advance(rows, g * c_.k() * dtype_size(dtype)), c_.columns(), dtype);
      return multiply(session_, problem);
    });
  }

  // The rows of an image that windows begin before, and end before: those of output row i.
  int64_t start_of(int64_t i) const {
    return std::clamp<int64_t>(i * c_.w.stride_height - c_.w.pad_top, 0, c_.w.height);
  }
  int64_t end_of(int64_t i) const {
    const int64_t reach = (c_.w.window_height - 1) * c_.w.dilation_height + 1;
    return std::clamp<int64_t>(i * c_.w.stride_height - c_.w.pad_top + reach, 0, c_.w.height);
  }

  // Adds a block to the images it comes from. A row of a cut image becomes dx with the last block
  // that reaches it.
  mpcore_status add_columns(const Block& block, const float* columns, float* sums, void* dx) {
    const mpcore_window2d& w = c_.w;
    const int64_t line = w.width * w.channels, window_row = w.out_width * c_.columns();
    const int64_t next = block.row + block.rows;
    const int64_t known = block.row == 0 ? 0 : end_of(block.row - 1);
    const int64_t from = block.row == 0 ? 0 : std::min(known, start_of(block.row));
    const int64_t to = next == w.out_height ? w.height : end_of(next - 1);
    const int64_t done = next == w.out_height ? w.height : start_of(next), rows = to - from;
    return session_.parallel_for(block.images * rows, FpMode::kIeee, [&](int64_t i) {
      const int64_t image = i / rows, row = from + i % rows;
      const int64_t at = ((block.image + image) * w.height + row) * line * size();
      session_.kernels().col2im({.window = &w,
                                 .groups = c_.groups,
                                 .row = row,
                                 .columns = columns + image * block.rows * window_row,
                                 .first = block.row,
                                 .rows = block.rows,
                                 .sums = sums == nullptr ? nullptr : sums + row * line,
                                 .load = row < known,
                                 .dx = row < done ? advance(dx, at) : nullptr});
    });
  }

  mpcore_status clear(void* dx) {
    const int64_t bytes = input_size(c_.w) * size();
    if (bytes > 0) std::memset(dx, 0, static_cast<size_t>(bytes));
    return MPCORE_OK;
  }

  Session& session_;
  const Conv& c_;
  char* packed_ = nullptr;
  int64_t packed_bytes_ = 0;
  float* bias_ = nullptr;
};

// None of these arrays may be missing, and the output lies apart from the inputs.
mpcore_status check_arrays(const char* function, const ByteRange& x, const ByteRange& y,
                           const ByteRange& output) {
  for (const ByteRange* range : {&x, &y, &output})
    if (const auto s = check_pointer(function, range->name, range->data, range->bytes)) return s;
  if (const auto s = check_apart(function, output, x)) return s;
  return check_apart(function, output, y);
}

mpcore_status conv2d(mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
                     int64_t groups, mpcore_activation activation, const void* x,
                     const void* kernel, const float* bias, void* y, void* pre_activation) {
  constexpr const char* kName = "mpcore_conv2d";
  if (const auto s = check_conv(kName, window, filters, groups)) return s;
  if (const auto s = check_activation(kName, activation)) return s;
  const Conv c{*window, filters, groups};
  const int64_t size = dtype_size(window->dtype);
  const ByteRange images{"x", x, input_size(*window) * size};
  const ByteRange weights{"kernel", kernel, c.kernel_size() * size};
  const ByteRange row{"bias", bias, filters * kFloat}, output{"y", y, c.output_size() * size};
  const ByteRange before{"pre_activation", pre_activation, output.bytes};
  if (const auto s = check_arrays(kName, images, weights, output)) return s;
  if (const auto s = check_apart(kName, output, row)) return s;
  for (const ByteRange* other : {&images, &weights, &row, &output})
    if (const auto s = check_apart(kName, before, *other)) return s;
  if (output.bytes == 0) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return Convolution(session, c).forward(activation, x, kernel, bias, y, pre_activation);
}

mpcore_status backward_input(mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
                             int64_t groups, const void* dz, const void* kernel, void* dx) {
  constexpr const char* kName = "mpcore_conv2d_backward_input";
  if (const auto s = check_conv(kName, window, filters, groups)) return s;
  const Conv c{*window, filters, groups};
  const int64_t size = dtype_size(window->dtype);
  const ByteRange output{"dx", dx, input_size(*window) * size};
  if (const auto s = check_arrays(kName, {"dz", dz, c.output_size() * size},
                                  {"kernel", kernel, c.kernel_size() * size}, output))
    return s;
  if (output.bytes == 0) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return Convolution(session, c).backward_input(dz, kernel, dx);
}

mpcore_status backward_kernel(mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
                              int64_t groups, const void* x, const void* dz, float* dkernel) {
  constexpr const char* kName = "mpcore_conv2d_backward_kernel";
  if (const auto s = check_conv(kName, window, filters, groups)) return s;
  const Conv c{*window, filters, groups};
  const int64_t size = dtype_size(window->dtype);
  const ByteRange output{"dkernel", dkernel, c.kernel_size() * kFloat};
  if (const auto s = check_arrays(kName, {"x", x, input_size(*window) * size},
                                  {"dz", dz, c.output_size() * size}, output))
    return s;
  if (output.bytes == 0) return MPCORE_OK;

  Session session(ctx);
  if (session.status() != MPCORE_OK) return session.status();
  return Convolution(session, c).backward_kernel(x, dz, dkernel);
}

}  // namespace
}  // namespace mpcore

mpcore_status mpcore_conv2d(mpcore_context* ctx, const mpcore_window2d* window, int64_t filters,
                            int64_t groups, mpcore_activation activation, const void* x,
                            const void* kernel, const float* bias, void* y, void* pre_activation) {
  return mpcore::guarded([&] {
    return mpcore::conv2d(ctx, window, filters, groups, activation, x, kernel, bias, y,
                          pre_activation);
  });
}

mpcore_status mpcore_conv2d_backward_input(mpcore_context* ctx, const mpcore_window2d* window,
                                           int64_t filters, int64_t groups, const void* dz,
                                           const void* kernel, void* dx) {
  return mpcore::guarded(
      [&] { return mpcore::backward_input(ctx, window, filters, groups, dz, kernel, dx); });
}

mpcore_status mpcore_conv2d_backward_kernel(mpcore_context* ctx, const mpcore_window2d* window,
                                            int64_t filters, int64_t groups, const void* x,
                                            const void* dz, float* dkernel) {
  return mpcore::guarded(
      [&] { return mpcore::backward_kernel(ctx, window, filters, groups, x, dz, dkernel); });
}
