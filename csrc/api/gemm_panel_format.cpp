// How the FMA panels keep a B that is packed ahead: panels as wide as the level's tiles, [panel][k]
// [width], in B's own dtype.
#include <algorithm>
#include <cstdint>

#include "api/check.h"
#include "api/gemm_panels.h"

namespace mpcore {
namespace {

constexpr int64_t kDepth = 512;  // of a panel at a time: 64 KiB

int64_t panels_size(const Session& session, const PackedShape& shape) {
  const int64_t nr = gemm_order(session.kernels().gemm, shape.dtype).nr;
  int64_t size;
  if (__builtin_mul_overflow(ceil_div(shape.n, nr) * nr, shape.k * dtype_size(shape.dtype), &size))
    return -1;
  return size;
}

// Each panel is widened to fp32 in a buffer of its own, part by part, and rounded back: exact.
mpcore_status pack_panels(Session& session, const PackedShape& shape, const mpcore_matrix& b,
                          void* data) {
  if (shape.k == 0 || shape.n == 0) return MPCORE_OK;
  const KernelTable& kernels = session.kernels();
  const int64_t nr = gemm_order(kernels.gemm, shape.dtype).nr;
  const int64_t panels = ceil_div(shape.n, nr);
  const int64_t tasks = std::min<int64_t>(panels, 4 * session.num_threads());
  float* const buffers =
      static_cast<float*>(session.workspace(tasks * kDepth * nr * int64_t{sizeof(float)}));
  if (buffers == nullptr) return MPCORE_OUT_OF_MEMORY;
  return session.parallel_for(tasks, FpMode::kIeee, [&](int64_t t) {
    float* const buffer = buffers + t * kDepth * nr;
    for (int64_t panel = t; panel < panels; panel += tasks) {
      for (int64_t p = 0; p < shape.k; p += kDepth) {
        const int64_t j = panel * nr, k = std::min(kDepth, shape.k - p);
        kernels.gemm.pack({.src = element(b, p, j),
                           .dtype = b.dtype,
                           .lines = nullptr,
                           .line_stride = b.col_stride,
                           .k_stride = b.row_stride,
                           .count = std::min(nr, shape.n - j),
                           .k = k,
                           .k_padded = k,
                           .width = static_cast<int32_t>(nr),
                           .panels = buffer});
        kernels.cast(buffer, MPCORE_DTYPE_F32,
                     static_cast<char*>(data) + (j * shape.k + p * nr) * dtype_size(b.dtype),
                     b.dtype, k * nr);
      }
    }
  });
}

}  // namespace

const PackFormat kPanelFormat = {.size = panels_size, .pack = pack_panels};

}  // namespace mpcore
