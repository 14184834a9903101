// Random calls of mpcore_gemm, from fixed seeds: sizes, strides of either sign, transposes, stacks,
// and the whole epilogue, on every level. Operands end, or begin, where their pages do; inputs are
// read-only; workspace is the host's, so that AddressSanitizer sees its ends. The scalar level is
// the judge: where the bits are promised, they are its bits. Nothing else may be written.
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "expect.h"
#include "mpcore/mpcore.h"

namespace {

constexpr int kSeeds = 500;
constexpr size_t kPage = 4096, kBytes = size_t{1} << 20;
constexpr unsigned char kUntouched = 0x5a;

int64_t size_of(mpcore_dtype dtype) { return dtype == MPCORE_DTYPE_F32 ? 4 : 2; }

// Pages between two that may not be touched.
class Guarded {
 public:
  Guarded() {
    void* const all = mmap(nullptr, kBytes + 2 * kPage, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT(all != MAP_FAILED);
    base_ = static_cast<char*>(all) + kPage;
    EXPECT(mprotect(base_ - kPage, kPage, PROT_NONE) == 0);
    EXPECT(mprotect(base_ + kBytes, kPage, PROT_NONE) == 0);
  }
  ~Guarded() { munmap(base_ - kPage, kBytes + 2 * kPage); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  char* begin() const { return base_; }
  void allow(int protection) const { EXPECT(mprotect(base_, kBytes, protection) == 0); }

 private:
  char* base_;
};

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}

  int64_t in(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(engine_);
  }
  bool chance(double p) { return std::bernoulli_distribution(p)(engine_); }
  float normal() { return std::normal_distribution<float>()(engine_); }
  template <class T, size_t n>
  T one_of(const T (&values)[n]) {
    return values[in(0, n - 1)];
  }

 private:
  std::mt19937 engine_;
};

constexpr mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16};

// Strides of count[axis] steps along each axis that lead to no element twice; the array lies
// against one end of `memory`.
void lay_out(Random& random, mpcore_matrix& x, const int64_t (&count)[3], const Guarded& memory) {
  int axes[] = {0, 1, 2};  // batch, row, column: the last one runs fastest
  if (random.chance(0.5)) std::swap(axes[1], axes[2]);
  if (random.chance(0.1)) std::swap(axes[0], axes[2]);
  int64_t strides[3], low = 0, high = 0, next = random.chance(0.05) ? 2 : 1;
  for (const int axis : {axes[2], axes[1], axes[0]}) {
    const bool backwards = random.chance(0.08);
    strides[axis] = backwards ? -next : next;
    const int64_t reach = (std::max<int64_t>(count[axis], 1) - 1) * strides[axis];
    (reach < 0 ? low : high) += reach;
    next = next * std::max<int64_t>(count[axis], 1) + (random.chance(0.3) ? random.in(1, 9) : 0);
  }
  x.batch_stride = strides[0];
  x.row_stride = strides[1];
  x.col_stride = strides[2];
  const int64_t size = size_of(x.dtype), span = (high - low + 1) * size;
  EXPECT(span <= static_cast<int64_t>(kBytes));
  const int64_t first = random.chance(0.7) ? static_cast<int64_t>(kBytes) - span : 0;
  x.data = memory.begin() + first - low * size;
}

char* at(const mpcore_matrix& x, int64_t l, int64_t i, int64_t j) {
  return static_cast<char*>(x.data) +
         (l * x.batch_stride + i * x.row_stride + j * x.col_stride) * size_of(x.dtype);
}

// Ordinary numbers, and now and then one that needs the exact path.
void fill(Random& random, const Guarded& memory, mpcore_dtype dtype, bool special = false,
          float scale = 1) {
  constexpr float kSpecial[] = {0.0f, -0.0f, 1e-40f, 6e-8f, 3e38f, INFINITY, NAN};
  constexpr size_t kPeriod = 4093;  // a prime: rows differ
  std::vector<float> values(kBytes / static_cast<size_t>(size_of(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    if (i >= kPeriod) {
      values[i] = values[i - kPeriod];
    } else {
      values[i] =
          special && random.chance(0.0005) ? random.one_of(kSpecial) : scale * random.normal();
    }
  }
  memory.allow(PROT_READ | PROT_WRITE);
  EXPECT(mpcore_cast(nullptr, static_cast<int64_t>(values.size()), values.data(), MPCORE_DTYPE_F32,
                     memory.begin(), dtype) == MPCORE_OK);
}

struct Memory {
  Guarded a, b, d, residual, pre_activation, bias;
};

struct Call {
  mpcore_gemm_args g = {};
  bool packed = false;
  bool comparable = true;  // in another order of summation: linear, and all operands are ordinary
};

int64_t random_size(Random& random) {
  constexpr int64_t kWhole[] = {16, 32, 64, 96, 128};
  constexpr int64_t kEdges[] = {0, 1, 2, 4, 5, 8, 9, 15, 17, 31, 33, 63, 65};
  if (random.chance(0.4)) return random.one_of(kWhole);
  return random.chance(0.6) ? random.one_of(kEdges) : random.in(1, 100);
}

Call random_call(Random& random, const Memory& memory) {
  Call call;
  mpcore_gemm_args& g = call.g;
  g.struct_size = sizeof(g);
  g.batch = random.chance(0.7) ? 1 : random.in(0, 5);
  g.m = random_size(random);
  g.n = random_size(random);
  g.k = random_size(random);
  g.precision = random.one_of<mpcore_matmul_precision>({1, 1, 2, 3});
  g.alpha = random.chance(0.7) ? 1.0f : random.normal();
  g.beta = random.chance(0.7) ? 0.0f : random.normal();
  g.activation = random.chance(0.6) ? MPCORE_ACTIVATION_LINEAR
                                    : static_cast<mpcore_activation>(random.in(1, 6));
  g.a.dtype = g.b.dtype = random.one_of(kDtypes);
  g.d.dtype = random.one_of(kDtypes);
  lay_out(random, g.a, {g.batch, g.m, g.k}, memory.a);
  lay_out(random, g.b, {g.batch, g.k, g.n}, memory.b);
  lay_out(random, g.d, {g.batch, g.m, g.n}, memory.d);
  if (random.chance(0.2)) g.a.batch_stride = 0;
  const bool special = random.chance(0.4);
  // A subnormal B that counts: an A so large that the products are ordinary.
  const float scale = special && g.a.dtype != MPCORE_DTYPE_F16 && random.chance(0.5) ? 1e20f : 1;
  fill(random, memory.a, g.a.dtype, special, scale);
  fill(random, memory.b, g.b.dtype, special, scale == 1 ? 1 : 1e-39f);
  if (random.chance(0.3)) {
    g.residual.dtype = random.one_of(kDtypes);
    lay_out(random, g.residual, {g.batch, g.m, g.n}, memory.residual);
    fill(random, memory.residual, g.residual.dtype);
  }
  if (random.chance(0.3)) {
    g.pre_activation.dtype = random.one_of(kDtypes);
    lay_out(random, g.pre_activation, {g.batch, g.m, g.n}, memory.pre_activation);
  }
  if (random.chance(0.4)) {
    g.bias_dtype = random.one_of(kDtypes);
    fill(random, memory.bias, g.bias_dtype);
    g.bias = memory.bias.begin() + static_cast<int64_t>(kBytes) - g.n * size_of(g.bias_dtype);
  }
  call.packed = random.chance(0.2);
  if (call.packed) g.b.batch_stride = 0;
  call.comparable = g.activation == MPCORE_ACTIVATION_LINEAR && !special;
  for (const Guarded* input : {&memory.a, &memory.b, &memory.residual, &memory.bias})
    input->allow(PROT_READ);
  return call;
}

// What a call leaves behind.
struct Result {
  std::string d, pre_activation;  // all of their pages
  int32_t finite = -1;
  double sum_squares = -1;
};

void* allocate(void*, size_t size, size_t alignment) {
  return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
void deallocate(void*, void* pointer, size_t) { std::free(pointer); }

mpcore_context* context(const char* level, int32_t threads) {
  mpcore_context_options options = {};
  options.struct_size = sizeof(options);
  options.num_threads = threads;
  options.isa = level;
  options.allocate = allocate;
  options.deallocate = deallocate;
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_OK);
  return ctx;
}

float value(const char* p, mpcore_dtype dtype) {
  float x = 0;
  EXPECT(mpcore_cast(nullptr, 1, p, dtype, &x, MPCORE_DTYPE_F32) == MPCORE_OK);
  return x;
}

// The sign of a NaN is not promised.
void make_nans_equal(const mpcore_gemm_args& g, const mpcore_matrix& x) {
  if (x.data == nullptr) return;
  for (int64_t l = 0; l < g.batch; ++l)
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        char* const p = at(x, l, i, j);
        if (std::isnan(value(p, x.dtype)))
          std::memset(p, 0xff, static_cast<size_t>(size_of(x.dtype)));
      }
}

Result run(mpcore_context* ctx, Call call, const Memory& memory) {
  Result result;
  mpcore_gemm_args& g = call.g;
  // With beta, what D held counts; the pattern is an ordinary number in every dtype.
  std::memset(memory.d.begin(), kUntouched, kBytes);
  std::memset(memory.pre_activation.begin(), kUntouched, kBytes);
  g.finite = &result.finite;
  g.sum_squares = &result.sum_squares;
  char* block = nullptr;
  if (call.packed) {
    int64_t size = 0;
    EXPECT(mpcore_gemm_pack_size(ctx, g.k, g.n, g.b.dtype, g.precision, &size) == MPCORE_OK);
    block = static_cast<char*>(std::malloc(static_cast<size_t>(size)));
    EXPECT(mpcore_gemm_pack(ctx, g.k, g.n, &g.b, g.precision, block, size) == MPCORE_OK);
    g.packed_b = block;
  }
  EXPECT(mpcore_gemm(ctx, &g) == MPCORE_OK);
  std::free(block);
  make_nans_equal(g, g.d);
  make_nans_equal(g, g.pre_activation);
  if (std::isnan(result.sum_squares)) result.sum_squares = NAN;
  result.d.assign(memory.d.begin(), kBytes);
  result.pre_activation.assign(memory.pre_activation.begin(), kBytes);
  return result;
}

// Sums of the same products in another order, through a linear epilogue and one rounding.
bool close(float x, float y, mpcore_dtype dtype, const mpcore_gemm_args& g) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y);
  if (std::isinf(x) || std::isinf(y)) return x == y;
  const float half_ulp = dtype == MPCORE_DTYPE_F32   ? 0x1p-24f
                         : dtype == MPCORE_DTYPE_F16 ? 0x1p-11f
                                                     : 0x1p-8f;
  // Standard normal operands are below 6, and MEDIUM keeps eight bits of them.
  const bool medium = g.a.dtype == MPCORE_DTYPE_F32 && g.precision == 3;
  const float k = static_cast<float>(g.k);
  const float order = 36 * k * (medium ? 0x1p-7f : (k + 8) * 0x1p-23f) * std::fabs(g.alpha);
  return std::fabs(x - y) <= order + 2 * half_ulp * (std::fabs(x) + std::fabs(y)) + 1e-7f;
}

bool has_scalar_bits(const mpcore_gemm_args& g, const char* level) {
  return std::strcmp(level, "amx") != 0 || g.a.dtype == MPCORE_DTYPE_BF16 ||
         (g.a.dtype == MPCORE_DTYPE_F32 && g.precision == MPCORE_MATMUL_PRECISION_HIGHEST);
}

// Compares the elements of an output, and then expects what lies between them untouched.
bool matches(const mpcore_gemm_args& g, const mpcore_matrix& x, const Guarded& memory,
             const std::string& expected, std::string found) {
  bool good = true;
  for (int64_t l = 0; l < g.batch; ++l)
    for (int64_t i = 0; i < g.m; ++i)
      for (int64_t j = 0; j < g.n; ++j) {
        const auto offset = static_cast<size_t>(at(x, l, i, j) - memory.begin());
        good &=
            close(value(&expected[offset], x.dtype), value(&found[offset], x.dtype), x.dtype, g);
        std::memset(&found[offset], kUntouched, static_cast<size_t>(size_of(x.dtype)));
      }
  return good && std::all_of(found.begin(), found.end(),
                             [](char c) { return c == static_cast<char>(kUntouched); });
}

void test_seed(uint32_t seed, const Memory& memory, const std::vector<const char*>& levels) {
  Random random(seed);
  const Call call = random_call(random, memory);
  const mpcore_gemm_args& g = call.g;
  mpcore_context* const judge = context("scalar", 1);
  const Result expected = run(judge, call, memory);
  mpcore_context_destroy(judge);
  EXPECT(matches(g, g.d, memory.d, expected.d, expected.d));
  for (const char* level : levels) {
    const int before = expect_failures;
    mpcore_context* const ctx = context(level, seed % 2 == 0 ? 1 : 2);
    const Result found = run(ctx, call, memory);
    mpcore_context_destroy(ctx);
    if (has_scalar_bits(g, level)) {
      EXPECT(found.d == expected.d);
      EXPECT(found.pre_activation == expected.pre_activation);
      EXPECT(found.finite == expected.finite);
      EXPECT(std::memcmp(&found.sum_squares, &expected.sum_squares, sizeof(double)) == 0);
    } else if (call.comparable) {
      EXPECT(matches(g, g.d, memory.d, expected.d, found.d));
    }
    if (expect_failures > before)
      std::fprintf(stderr, "seed %u, level %s: m=%lld n=%lld k=%lld batch=%lld dtype=%d\n", seed,
                   level, static_cast<long long>(g.m), static_cast<long long>(g.n),
                   static_cast<long long>(g.k), static_cast<long long>(g.batch), g.a.dtype);
  }
}

}  // namespace

int main() {
  std::vector<const char*> levels;
  for (int32_t i = 0; i < mpcore_isa_count(); ++i) {
    const char* name;
    int32_t available;
    EXPECT(mpcore_isa_describe(i, &name, &available, nullptr) == MPCORE_OK);
    if (available) levels.push_back(name);
  }
  const Memory memory;
  for (uint32_t seed = 0; seed < kSeeds; ++seed) test_seed(seed, memory, levels);
  return expect_result();
}
