#include "api/gemm_tile_special.h"

#include <algorithm>
#include <cstring>

#include "api/gemm_panels.h"

namespace mpcore {

void SpecialElements::use(char* flags, const char* known_blocks) {
  rows_ = flags;
  blocks_ = flags + g_.m;
  std::memset(flags, 0, static_cast<size_t>(bytes()));
  for (int64_t c = 0; known_blocks != nullptr && c < blocks(); ++c)
    if (known_blocks[c]) set(blocks_ + c);
}

bool SpecialElements::any(int64_t i, int64_t rows, int64_t j, int64_t cols) const {
  const auto holds = [](const char* flags, int64_t count) {
    return std::memchr(flags, 1, static_cast<size_t>(count)) != nullptr;
  };
  return found_.load(std::memory_order_relaxed) &&
         (holds(rows_ + i, rows) ||
          holds(blocks_ + j / kColumnBlock, ceil_div(cols, kColumnBlock)));
}

mpcore_status SpecialElements::compute(Session& session) const {
  if (!found_.load(std::memory_order_relaxed)) return MPCORE_OK;
  auto* const index = static_cast<int64_t*>(session.workspace(g_.m * int64_t{sizeof(int64_t)}));
  if (index == nullptr) return MPCORE_OUT_OF_MEMORY;
  const auto rows = [&](char special) {
    int64_t count = 0;
    for (int64_t i = 0; i < g_.m; ++i)
      if (rows_[i] == special) index[count++] = i;
    return GemmRows{count, index};
  };
  if (const auto s = panel_product(session, g_, rows(1))) return s;
  const GemmRows ordinary = rows(0);
  for (int64_t c = 0, end; c < blocks(); c = end) {
    end = run_end(blocks_, c, blocks());
    if (!blocks_[c]) continue;
    const int64_t j = c * kColumnBlock;
    const int64_t cols = std::min(end * kColumnBlock, g_.n) - j;
    if (const auto s = panel_product(session, g_.columns(j, cols), ordinary)) return s;
  }
  return MPCORE_OK;
}

}  // namespace mpcore
