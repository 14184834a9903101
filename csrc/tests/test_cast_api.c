/* mpcore_cast and mpcore_cast_stochastic: arguments, the same bits everywhere, memory that is not
   theirs. What the bits are, the Python tests say. */
#include "levels.h"

enum { kElements = 70001 };

static const mpcore_dtype kDtypes[] = {
    MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16, MPCORE_DTYPE_F64, MPCORE_DTYPE_I8,
    MPCORE_DTYPE_I16, MPCORE_DTYPE_I32, MPCORE_DTYPE_I64,  MPCORE_DTYPE_U8,  MPCORE_DTYPE_U16,
    MPCORE_DTYPE_U32, MPCORE_DTYPE_U64, MPCORE_DTYPE_BOOL};
enum { kDtypeCount = sizeof(kDtypes) / sizeof(kDtypes[0]) };

static unsigned char source[8 * kElements];
static mpcore_dtype from, to;

static void fill(mpcore_dtype dtype) {
  const int64_t size = kElements * mpcore_dtype_size(dtype);
  for (int64_t i = 0; i < size; ++i) source[i] = (unsigned char)(int)(random_unit() * 128);
}

static void convert(mpcore_context* ctx, unsigned char* out) {
  EXPECT(mpcore_cast(ctx, kElements, source, from, out, to) == MPCORE_OK);
}

static void round_at_random(mpcore_context* ctx, unsigned char* out) {
  EXPECT(mpcore_cast_stochastic(ctx, kElements, (const float*)(const void*)source, out, to, 77,
                                12345) == MPCORE_OK);
}

/* Large enough to be written past the caches. */
static void convert_large(mpcore_context* ctx, unsigned char* out) {
  const int64_t n = (1 << 22) + 65;
  float* x = malloc((size_t)n * sizeof(float));
  for (int64_t i = 0; i < n; ++i) x[i] = (float)(i % 70001) - 30000.5f;
  EXPECT(mpcore_cast(ctx, n, x, MPCORE_DTYPE_F32, out, to) == MPCORE_OK);
  free(x);
}

static void test_every_pair_has_the_same_bits_everywhere(void) {
  for (int i = 0; i < kDtypeCount; ++i) {
    from = kDtypes[i];
    fill(from);
    for (int j = 0; j < kDtypeCount; ++j) {
      to = kDtypes[j];
      expect_same_everywhere(convert, (size_t)(kElements * mpcore_dtype_size(to)));
    }
  }
  to = MPCORE_DTYPE_BF16;
  expect_same_everywhere(convert_large, 2 * ((1 << 22) + 65));
  fill(MPCORE_DTYPE_F32);
  expect_same_everywhere(round_at_random, 2 * kElements);
  to = MPCORE_DTYPE_F16;
  expect_same_everywhere(round_at_random, 2 * kElements);
}

/* Exactly n elements are read and written, at any address: the sanitizers watch the heap blocks. */
static void test_nothing_beyond_the_ends_is_touched(void) {
  for (int64_t n = 0; n <= 130; n += n < 70 ? 1 : 20) {
    for (int i = 0; i < kDtypeCount; ++i) {
      for (int j = 0; j < kDtypeCount; ++j) {
        const size_t read = (size_t)(n * mpcore_dtype_size(kDtypes[i]));
        const size_t written = (size_t)(n * mpcore_dtype_size(kDtypes[j]));
        unsigned char* x = calloc(1, read + 1); /* ends where the source does */
        unsigned char* y = malloc(written + 1);
        memset(y, 0x5a, written + 1);
        EXPECT(mpcore_cast(NULL, n, x + 1, kDtypes[i], y, kDtypes[j]) == MPCORE_OK);
        EXPECT(y[written] == 0x5a);
        EXPECT(n == 0 || y[written - 1] == 0);
        free(x);
        free(y);
      }
    }
  }
}

static void test_errors_name_the_argument_and_write_nothing(void) {
  float x[4] = {1, 2, 3, 4};
  uint16_t y[4] = {7, 7, 7, 7};
  const mpcore_dtype f32 = MPCORE_DTYPE_F32, f16 = MPCORE_DTYPE_F16;
  EXPECT(mpcore_cast(NULL, -1, x, f32, y, f16) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast:", "n must be >= 0"));
  EXPECT(mpcore_cast(NULL, 4, NULL, f32, y, f16) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast:", "src must not be NULL"));
  EXPECT(mpcore_cast(NULL, 4, x, f32, NULL, f16) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast:", "dst must not be NULL"));
  EXPECT(mpcore_cast(NULL, 4, x, 5, y, f16) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast:", "src_dtype"));
  EXPECT(mpcore_cast(NULL, 4, x, f32, y, 99) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast:", "dst_dtype"));
  EXPECT(mpcore_cast(NULL, 4, x, f32, x, f16) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast:", "overlap"));
  EXPECT(mpcore_cast_stochastic(NULL, 4, x, y, f32, 1, 0) == MPCORE_UNSUPPORTED);
  EXPECT(error_names("mpcore_cast_stochastic:", "dst_dtype must be float16 or bfloat16"));
  EXPECT(mpcore_cast_stochastic(NULL, 4, x, y, -1, 1, 0) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast_stochastic:", "dst_dtype"));
  EXPECT(mpcore_cast_stochastic(NULL, 4, NULL, y, f16, 1, 0) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast_stochastic:", "src"));
  EXPECT(mpcore_cast_stochastic(NULL, 4, x, (uint16_t*)(void*)x + 2, f16, 1, 0) ==
         MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_cast_stochastic:", "overlap"));
  EXPECT(mpcore_cast(NULL, 0, NULL, f32, NULL, f16) == MPCORE_OK);
  EXPECT(mpcore_cast_stochastic(NULL, 0, NULL, NULL, f16, 1, 0) == MPCORE_OK);
  for (int i = 0; i < 4; ++i) EXPECT(y[i] == 7 && x[i] == (float)(i + 1));
}

static void test_in_place_where_sizes_agree(void) {
  float x[130];
  int32_t expected[130];
  for (int i = 0; i < 130; ++i) x[i] = (float)i * 1.75f - 100, expected[i] = (int32_t)x[i];
  EXPECT(mpcore_cast(NULL, 130, x, MPCORE_DTYPE_F32, x, MPCORE_DTYPE_I32) == MPCORE_OK);
  EXPECT(memcmp(x, expected, sizeof(x)) == 0);
}

int main(void) {
  test_every_pair_has_the_same_bits_everywhere();
  test_nothing_beyond_the_ends_is_touched();
  test_errors_name_the_argument_and_write_nothing();
  test_in_place_where_sizes_agree();
  return expect_result();
}
