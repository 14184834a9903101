// Products on matrix tiles at the edges: operands that end where their page ends, every residue of
// the tile sizes, and a tile configuration of the caller that must come back. The level below is
// the judge: bf16 has its bits. Exits with 77 (skipped) without AMX.
#include <immintrin.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "expect.h"
#include "mpcore/mpcore.h"

namespace {

constexpr size_t kPage = 4096, kPages = 16;

// Memory whose last byte is the last that may be touched.
class Guarded {
 public:
  Guarded() {
    base_ = static_cast<char*>(mmap(nullptr, (kPages + 1) * kPage, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT(base_ != MAP_FAILED);
    EXPECT(mprotect(base_ + kPages * kPage, kPage, PROT_NONE) == 0);
  }
  ~Guarded() { munmap(base_, (kPages + 1) * kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  void* ending(size_t bytes) const {
    EXPECT(bytes <= kPages * kPage);
    return base_ + kPages * kPage - bytes;
  }

 private:
  char* base_;
};

struct Shape {
  int64_t m, n, k;
};

void fill(std::mt19937& random, void* data, int64_t n, mpcore_dtype dtype) {
  std::uniform_real_distribution<float> value(-2, 2);
  for (int64_t i = 0; i < n; ++i) {
    const float x = value(random);
    EXPECT(mpcore_cast(nullptr, 1, &x, MPCORE_DTYPE_F32,
                       static_cast<char*>(data) + i * (dtype == MPCORE_DTYPE_F32 ? 4 : 2),
                       dtype) == MPCORE_OK);
  }
}

void multiply(const char* level, const Shape& s, mpcore_dtype dtype, bool ta, bool tb, void* a,
              void* b, float* d) {
  mpcore_gemm_args g = {};
  g.struct_size = sizeof(g);
  g.batch = 1;
  g.alpha = 1;
  g.m = s.m;
  g.n = s.n;
  g.k = s.k;
  g.precision = MPCORE_MATMUL_PRECISION_HIGH;
  g.a.data = a;
  g.a.row_stride = ta ? 1 : s.k;
  g.a.col_stride = ta ? s.m : 1;
  g.b.data = b;
  g.b.row_stride = tb ? 1 : s.n;
  g.b.col_stride = tb ? s.k : 1;
  g.d.data = d;
  g.d.row_stride = s.n;
  g.d.col_stride = 1;
  g.a.dtype = g.b.dtype = dtype;
  g.d.dtype = MPCORE_DTYPE_F32;
  EXPECT(mpcore_set_isa(nullptr, level) == MPCORE_OK);
  EXPECT(mpcore_gemm(nullptr, &g) == MPCORE_OK);
}

// Sums of products of values below 2 in two orders: k + 1 roundings of at most 4 k each.
bool close(float x, float y, int64_t k) {
  const float bound = 4.0f * static_cast<float>(k) * static_cast<float>(k + 1) * 0x1p-23f;
  return x - y <= bound && y - x <= bound;
}

void test_page_edges(const Shape& s) {
  std::mt19937 random(static_cast<uint32_t>(s.m * 10000 + s.n * 100 + s.k));
  const Guarded a_memory, b_memory, d_memory, expected_memory;
  for (const mpcore_dtype dtype : {MPCORE_DTYPE_BF16, MPCORE_DTYPE_F16, MPCORE_DTYPE_F32}) {
    const size_t size = dtype == MPCORE_DTYPE_F32 ? 4 : 2;
    void* const a = a_memory.ending(static_cast<size_t>(s.m * s.k) * size);
    void* const b = b_memory.ending(static_cast<size_t>(s.k * s.n) * size);
    const size_t d_bytes = static_cast<size_t>(s.m * s.n) * sizeof(float);
    float* const d = static_cast<float*>(d_memory.ending(d_bytes));
    float* const expected = static_cast<float*>(expected_memory.ending(d_bytes));
    fill(random, a, s.m * s.k, dtype);
    fill(random, b, s.k * s.n, dtype);
    for (int transposes = 0; transposes < 4; ++transposes) {
      const bool ta = transposes & 1, tb = transposes & 2;
      multiply("avx512_fp16", s, dtype, ta, tb, a, b, expected);
      multiply("amx", s, dtype, ta, tb, a, b, d);
      if (dtype == MPCORE_DTYPE_BF16) {
        EXPECT(std::memcmp(d, expected, d_bytes) == 0);
      } else {
        for (int64_t i = 0; i < s.m * s.n; ++i) EXPECT(close(d[i], expected[i], s.k));
      }
    }
  }
}

struct TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {32};
  uint8_t rows[16] = {7};
};

[[gnu::target("amx-tile")]] void load_config(const void* config) { _tile_loadconfig(config); }
[[gnu::target("amx-tile")]] void store_config(void* config) { _tile_storeconfig(config); }
[[gnu::target("amx-tile")]] void release() { _tile_release(); }

void test_configuration_comes_back() {
  float a[4] = {1, 2, 3, 4}, b[4] = {1, 0, 0, 1}, d[4];
  alignas(64) const TileConfig mine;
  alignas(64) TileConfig left;
  load_config(&mine);
  multiply("amx", {2, 2, 2}, MPCORE_DTYPE_F32, false, false, a, b, d);
  store_config(&left);
  release();
  EXPECT(std::memcmp(&mine, &left, sizeof(mine)) == 0);
  EXPECT(std::memcmp(a, d, sizeof(d)) == 0);

  multiply("amx", {2, 2, 2}, MPCORE_DTYPE_F32, false, false, a, b, d);
  store_config(&left);
  EXPECT(left.palette == 0);  // nothing was loaded, nothing is
}

}  // namespace

int main() {
  if (mpcore_set_isa(nullptr, "amx") != MPCORE_OK) {
    std::printf("skipped: %s\n", mpcore_last_error());
    return 77;
  }
  EXPECT(mpcore_set_num_threads(nullptr, 2) == MPCORE_OK);
  for (const int64_t m : {1, 15, 16, 17, 32, 33, 49})
    for (const int64_t n : {1, 16, 31, 33, 64, 65})
      for (const int64_t k : {1, 2, 31, 32, 33, 64, 95}) test_page_edges({m, n, k});
  EXPECT(mpcore_set_num_threads(nullptr, 1) == MPCORE_OK);
  test_configuration_comes_back();
  return expect_result();
}
