/* The calls of grad.h that write one tensor from another: accumulate, lerp, unscale to outputs. */
#include "levels.h"

static const mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16,
                                       MPCORE_DTYPE_F64};
static const mpcore_dtype kWritten[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F64};

static mpcore_tensor_ref ref(void* data, int64_t size, mpcore_dtype dtype) {
  mpcore_tensor_ref r = {0};
  r.data = data;
  r.size = size;
  r.dtype = dtype;
  return r;
}

/* Doubles hold products of floats exactly, and sums so that one more rounding is the only one. */
static double rounded(double x, mpcore_dtype dtype) {
  return dtype == MPCORE_DTYPE_F64 ? x : (float)x;
}

typedef double (*formula)(double y, double x, double factor, mpcore_dtype dtype);

static double accumulate_formula(double y, double x, double factor, mpcore_dtype dtype) {
  return rounded(y + rounded(rounded(x, dtype) * rounded(factor, dtype), dtype), dtype);
}

static double lerp_formula(double y, double x, double factor, mpcore_dtype dtype) {
  const double rest = rounded(1 - factor, dtype);
  return rounded(
      rounded(rounded(x, dtype) * rest, dtype) + rounded(y * rounded(factor, dtype), dtype), dtype);
}

/* Lengths around vectors, steps, parts, and blocks; arrays are not aligned; bytes around them stay.
 */
static void expect_formula(mpcore_status (*call)(mpcore_context*, int64_t, const mpcore_tensor_ref*,
                                                 const mpcore_tensor_ref*, double),
                           formula expected, double factor) {
  enum { kMax = 300007 };
  static const int64_t lengths[] = {0,    1,    15,    16,    17,     31,     32,
                                    33,   49,   63,    1023,  1024,   1025,   8191,
                                    8192, 8193, 32768, 32801, 131072, 131075, kMax};
  double* x = malloc(kMax * sizeof(*x));
  double* y = malloc(kMax * sizeof(*y));
  unsigned char* from = malloc(kMax * 8 + 1);
  unsigned char* to = malloc(kMax * 8 + 9);
  unsigned char* want = malloc(kMax * 8 + 9);
  for (int w = 0; w < 2; ++w) {
    for (int d = 0; d < 4; ++d) {
      for (size_t l = 0; l < sizeof(lengths) / sizeof(*lengths); ++l) {
        const int64_t n = lengths[l];
        const size_t bytes = (size_t)(n * mpcore_dtype_size(kWritten[w]));
        for (int64_t i = 0; i < n; ++i) x[i] = ldexp(random_unit(), (int)(i % 30) - 20);
        for (int64_t i = 0; i < n; ++i) y[i] = random_unit();
        put(from + 1, kDtypes[d], x, n);
        get(x, from + 1, kDtypes[d], n);
        memset(to, 0xa5, bytes + 9);
        put(to + 1, kWritten[w], y, n);
        get(y, to + 1, kWritten[w], n);
        memcpy(want, to, bytes + 9);
        for (int64_t i = 0; i < n; ++i) y[i] = expected(y[i], x[i], factor, kWritten[w]);
        put(want + 1, kWritten[w], y, n);
        const mpcore_tensor_ref written = ref(to + 1, n, kWritten[w]);
        const mpcore_tensor_ref read = ref(from + 1, n, kDtypes[d]);
        EXPECT(call(NULL, 1, &written, &read, factor) == MPCORE_OK);
        EXPECT(memcmp(to, want, bytes + 9) == 0);
      }
    }
  }
  free(x), free(y), free(from), free(to), free(want);
}

static void test_special_values(void) {
  /* Tensors of their own sizes; nothing beside infinities is lost. */
  float total[3] = {1, INFINITY, -0.0f}, x[3] = {INFINITY, 1, -0.0f};
  mpcore_tensor_ref to[2], from[2];
  to[0] = ref(NULL, 0, MPCORE_DTYPE_F64), from[0] = ref(NULL, 0, MPCORE_DTYPE_F16);
  to[1] = ref(total, 3, MPCORE_DTYPE_F32), from[1] = ref(x, 3, MPCORE_DTYPE_F32);
  EXPECT(mpcore_accumulate(NULL, 2, to, from, -1.0) == MPCORE_OK);
  EXPECT(total[0] == -INFINITY && total[1] == INFINITY && total[2] == 0 && !signbit(total[2]));

  /* A factor of 0 leaves its operand out. */
  float average[3] = {NAN, INFINITY, 7};
  const float weights[3] = {-0.0f, 0x1p-149f, 3e38f};
  mpcore_tensor_ref a = ref(average, 3, MPCORE_DTYPE_F32);
  mpcore_tensor_ref w = ref((void*)weights, 3, MPCORE_DTYPE_F32);
  EXPECT(mpcore_lerp(NULL, 1, &a, &w, 0.0) == MPCORE_OK);
  EXPECT(memcmp(average, weights, sizeof(weights)) == 0);
  float infinite[3] = {NAN, INFINITY, -INFINITY};
  w = ref(infinite, 3, MPCORE_DTYPE_F32);
  EXPECT(mpcore_lerp(NULL, 1, &a, &w, 1.0) == MPCORE_OK);
  EXPECT(memcmp(average, weights, sizeof(weights)) == 0);

  /* The tensor itself. */
  EXPECT(mpcore_accumulate(NULL, 1, &a, &a, -1.0) == MPCORE_OK);
  EXPECT(average[0] == 0 && average[1] == 0 && average[2] == 0);
}

static void test_unscale_to_outputs(void) {
  enum { kN = 140001 };
  float* x = malloc(kN * sizeof(*x));
  float* y = malloc((kN + 1) * sizeof(*y));
  for (int i = 0; i < kN; ++i) x[i] = (float)random_unit();
  y[kN] = 7;
  mpcore_tensor_ref from = ref(x, kN, MPCORE_DTYPE_F32), to = ref(y, kN, MPCORE_DTYPE_F32);
  const float last = x[kN - 1];
  int32_t finite = -1;
  EXPECT(mpcore_unscale(NULL, 1, &from, &to, 0.1, &finite) == MPCORE_OK && finite == 1);
  int different = 0;
  for (int i = 0; i < kN; ++i) different += y[i] != (float)((double)x[i] * 0.1f);
  EXPECT(different == 0 && y[kN] == 7 && x[kN - 1] == last);
  EXPECT(mpcore_unscale(NULL, 1, &from, &from, 0.1, &finite) == MPCORE_OK && finite == 1);
  EXPECT(memcmp(x, y, kN * sizeof(*x)) == 0);
  free(x), free(y);
}

static void test_errors_name_the_field_and_write_nothing(void) {
  float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8};
  mpcore_tensor_ref to[2], from[2], bad;
  for (int t = 0; t < 2; ++t) {
    to[t] = ref(a + 2 * t, 2, MPCORE_DTYPE_F32);
    from[t] = ref(b + 2 * t, 2, MPCORE_DTYPE_F32);
  }
  const mpcore_tensor_ref good = to[1];
#define REFUSED(bad_ref, status, field)                                              \
  do {                                                                               \
    bad = (bad_ref);                                                                 \
    to[1] = bad;                                                                     \
    EXPECT(mpcore_accumulate(NULL, 2, to, from, 1.0) == (status));                   \
    EXPECT(error_names("mpcore_accumulate", "totals[1]" field));                     \
    EXPECT(mpcore_lerp(NULL, 2, to, from, 0.5) == (status));                         \
    EXPECT(error_names("mpcore_lerp", "averages[1]" field));                         \
    EXPECT(mpcore_unscale(NULL, 2, from, to, 0.5, NULL) == MPCORE_INVALID_ARGUMENT); \
    EXPECT(error_names("mpcore_unscale", "outputs[1]" field));                       \
    to[1] = good;                                                                    \
  } while (0)
  REFUSED(ref(a + 2, 1, MPCORE_DTYPE_F32), MPCORE_INVALID_ARGUMENT, ".size");
  REFUSED(ref(NULL, 2, MPCORE_DTYPE_F32), MPCORE_INVALID_ARGUMENT, ".data");
  REFUSED(ref(b + 1, 2, MPCORE_DTYPE_F32), MPCORE_INVALID_ARGUMENT, "");
  REFUSED(ref(b + 2, 2, MPCORE_DTYPE_BF16), MPCORE_INVALID_ARGUMENT, "");
  REFUSED(ref(a + 2, 2, MPCORE_DTYPE_F16), MPCORE_UNSUPPORTED, ".dtype");
  to[1] = from[0]; /* the output of one is the input of the other */
  EXPECT(mpcore_accumulate(NULL, 2, to, from, 1.0) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_accumulate", "totals[1]"));
  to[1] = to[0];
  EXPECT(mpcore_unscale(NULL, 2, from, to, 1.0, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "outputs["));
  EXPECT(mpcore_unscale(NULL, 2, to, NULL, 1.0, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "tensors["));
  to[1] = good;
  EXPECT(mpcore_accumulate(NULL, 2, NULL, from, 1.0) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_accumulate(NULL, 2, to, NULL, 1.0) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_accumulate(NULL, -1, to, from, 1.0) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_accumulate(NULL, 2, to, from, INFINITY) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_accumulate", "multiplier"));
  EXPECT(mpcore_accumulate(NULL, 2, to, from, 1e39) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_unscale(NULL, 2, to, NULL, -1e39, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "multiplier"));
  static const double momenta[] = {-0.5, 1.5, NAN};
  for (int i = 0; i < 3; ++i) {
    EXPECT(mpcore_lerp(NULL, 2, to, from, momenta[i]) == MPCORE_INVALID_ARGUMENT);
    EXPECT(error_names("mpcore_lerp", "momentum"));
  }
  for (int i = 0; i < 4; ++i) EXPECT(a[i] == 1 + i && b[i] == 5 + i);
}

enum { kSizes = 5, kLargest = 290001 };
static const int64_t kShared[kSizes] = {kLargest, 0, 17, 8193, 1};
static void run_everything(mpcore_context* ctx, unsigned char* out) {
  double* x = malloc(kLargest * sizeof(*x));
  for (int w = 0; w < 2; ++w) {
    for (int d = 0; d < 4; ++d) {
      mpcore_tensor_ref to[kSizes], from[kSizes];
      random_state = 7;
      for (int s = 0; s < kSizes; ++s) {
        const int64_t n = kShared[s];
        for (int64_t i = 0; i < n; ++i) x[i] = ldexp(random_unit(), (int)(i % 30) - 20);
        from[s] = ref(malloc((size_t)n * 8 + 1), n, kDtypes[d]);
        put(from[s].data, kDtypes[d], x, n);
        to[s] = ref(out, n, kWritten[w]);
        put(out, kWritten[w], x, n);
        out += n * 8;
      }
      EXPECT(mpcore_accumulate(ctx, kSizes, to, from, 1.0 / 3) == MPCORE_OK);
      EXPECT(mpcore_lerp(ctx, kSizes, to, from, 0.9) == MPCORE_OK);
      for (int s = 0; s < kSizes; ++s) free(from[s].data);
    }
  }
  free(x);
}

int main(void) {
  expect_formula(mpcore_accumulate, accumulate_formula, 1.0 / 3);
  expect_formula(mpcore_accumulate, accumulate_formula, -0x1p-30);
  expect_formula(mpcore_lerp, lerp_formula, 0.99);
  test_special_values();
  test_unscale_to_outputs();
  test_errors_name_the_field_and_write_nothing();
  expect_same_everywhere(run_everything, 8 * 8 * (size_t)(kLargest + 17 + 8193 + 1));
  return expect_result();
}
