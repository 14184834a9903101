/* grad.h through the shared library. */
#include "levels.h"

static const mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16,
                                       MPCORE_DTYPE_F64};

static mpcore_tensor_ref ref(void* data, int64_t size, mpcore_dtype dtype) {
  mpcore_tensor_ref r = {0};
  r.data = data;
  r.size = size;
  r.dtype = dtype;
  return r;
}

static void test_all_finite_sees_every_element(void) {
  enum { kMax = 5000 };
  static const double bad[] = {INFINITY, -INFINITY, NAN};
  static const double largest[] = {0x1.fffffep127, 65504, 0x1.fep127, 0x1.fffffffffffffp1023};
  static double x[kMax];
  static unsigned char data[kMax * 8 + 1];
  for (int d = 0; d < 4; ++d) {
    const int64_t size = mpcore_dtype_size(kDtypes[d]);
    for (int64_t n = 1; n <= kMax; n = n < 50 ? n + 1 : n * 3 + 1) {
      for (int64_t i = 0; i < n; ++i) x[i] = i % 2 ? largest[d] : -largest[d];
      put(data + 1, kDtypes[d], x, n); /* not aligned */
      mpcore_tensor_ref t = ref(data + 1, n, kDtypes[d]);
      int32_t finite = -1;
      EXPECT(mpcore_all_finite(NULL, 1, &t, &finite) == MPCORE_OK && finite == 1);
      for (int64_t i = 0; i < n; i += n < 50 ? 1 : 191) {
        unsigned char saved[8];
        unsigned char* at = data + 1 + i * size;
        memcpy(saved, at, (size_t)size);
        put(at, kDtypes[d], &bad[i % 3], 1);
        EXPECT(mpcore_all_finite(NULL, 1, &t, &finite) == MPCORE_OK && finite == 0);
        memcpy(at, saved, (size_t)size);
      }
    }
  }
}

static void test_all_finite_takes_many_tensors(void) {
  enum { kSizes = 5 };
  static const int64_t sizes[kSizes] = {3, 0, 300000, 1, 1025};
  mpcore_tensor_ref tensors[kSizes];
  int32_t finite = -1;
  EXPECT(mpcore_all_finite(NULL, 0, NULL, &finite) == MPCORE_OK && finite == 1);
  for (int t = 0; t < kSizes; ++t)
    tensors[t] = ref(sizes[t] ? calloc((size_t)sizes[t], 4) : NULL, sizes[t], MPCORE_DTYPE_F32);
  EXPECT(mpcore_all_finite(NULL, kSizes, tensors, &finite) == MPCORE_OK && finite == 1);
  for (int t = 0; t < kSizes; ++t) {
    if (sizes[t] == 0) continue;
    float* last = (float*)tensors[t].data + sizes[t] - 1;
    *last = NAN;
    EXPECT(mpcore_all_finite(NULL, kSizes, tensors, &finite) == MPCORE_OK && finite == 0);
    *last = 0;
  }
  for (int t = 0; t < kSizes; ++t) free(tensors[t].data);
}

static void test_unscale_multiplies_in_fp32_and_rounds_once(void) {
  enum { kN = 70001 };
  double* x = malloc(kN * sizeof(*x));
  double* y = malloc(kN * sizeof(*y));
  void* data = malloc(kN * 8);
  void* want = malloc(kN * 8);
  for (int d = 0; d < 4; ++d) {
    const mpcore_dtype dtype = kDtypes[d];
    for (int64_t i = 0; i < kN; ++i) x[i] = random_unit() * 60000;
    put(data, dtype, x, kN);
    get(x, data, dtype, kN);
    const double multiplier = 0x1.8p-20;
    for (int64_t i = 0; i < kN; ++i)
      y[i] = dtype == MPCORE_DTYPE_F64 ? x[i] * multiplier : (float)(x[i] * multiplier);
    put(want, dtype, y, kN);
    mpcore_tensor_ref t = ref(data, kN, dtype);
    int32_t finite = -1;
    EXPECT(mpcore_unscale(NULL, 1, &t, NULL, multiplier, &finite) == MPCORE_OK && finite == 1);
    EXPECT(memcmp(data, want, (size_t)(kN * mpcore_dtype_size(dtype))) == 0);
  }
  /* It is the results that must be finite, after rounding: 65520 is infinite in f16. */
  for (int overflow = 0; overflow < 2; ++overflow) {
    const double value = 16380 - !overflow;
    put(data, MPCORE_DTYPE_F16, &value, 1);
    mpcore_tensor_ref t = ref(data, 1, MPCORE_DTYPE_F16);
    int32_t finite = -1;
    EXPECT(mpcore_unscale(NULL, 1, &t, NULL, 4.0, &finite) == MPCORE_OK && finite == !overflow);
    EXPECT(mpcore_unscale(NULL, 1, &t, NULL, 1.0, NULL) == MPCORE_OK);
  }
  for (int64_t at = 0; at < kN; at += 1000) { /* wherever they are */
    int32_t finite = -1;
    memset(data, 0, kN * 4);
    ((float*)data)[at] = 3e38f;
    mpcore_tensor_ref t = ref(data, kN, MPCORE_DTYPE_F32);
    EXPECT(mpcore_unscale(NULL, 1, &t, NULL, 2.0, &finite) == MPCORE_OK && finite == 0);
  }
  free(x), free(y), free(data), free(want);
}

static void test_norms_neither_overflow_nor_underflow(void) {
  float a[2] = {3e38f, -4e-45f}, b[4] = {0, 3e-40f, -4e-40f, 0};
  mpcore_tensor_ref tensors[3];
  double norms[3], global;
  tensors[0] = ref(a, 1, MPCORE_DTYPE_F32);
  tensors[1] = ref(b, 4, MPCORE_DTYPE_F32);
  tensors[2] = ref(NULL, 0, MPCORE_DTYPE_F16);
  EXPECT(mpcore_norms(NULL, 3, tensors, norms, &global) == MPCORE_OK);
  EXPECT(norms[0] == (double)a[0] && norms[2] == 0 && global == (double)a[0]);
  const double exact = sqrt((double)b[1] * b[1] + (double)b[2] * b[2]);
  EXPECT(fabs(norms[1] - exact) <= 0x1p-51 * exact);
  EXPECT(mpcore_norms(NULL, 0, NULL, NULL, &global) == MPCORE_OK && global == 0);
  EXPECT(mpcore_norms(NULL, 3, tensors, NULL, NULL) == MPCORE_OK);
  a[0] = -INFINITY;
  EXPECT(mpcore_norms(NULL, 3, tensors, norms, &global) == MPCORE_OK);
  EXPECT(isinf(norms[0]) && isinf(global) && norms[1] > 0);
  a[0] = NAN;
  EXPECT(mpcore_norms(NULL, 3, tensors, NULL, &global) == MPCORE_OK && isnan(global));
}

enum { kSharedSizes = 6, kShared = 400000 };
static void run_everything(mpcore_context* ctx, unsigned char* out) {
  static const int64_t sizes[kSharedSizes] = {kShared, 17, 8192, 8193, 1, 49};
  mpcore_tensor_ref tensors[kSharedSizes * 4];
  double* x = malloc(kShared * sizeof(*x));
  double* results = (double*)out;
  int count = 0;
  random_state = 5;
  for (int d = 0; d < 4; ++d) {
    for (int s = 0; s < kSharedSizes; ++s) {
      for (int64_t i = 0; i < sizes[s]; ++i) x[i] = ldexp(random_unit(), (int)(i % 30) - 20);
      tensors[count] = ref(malloc((size_t)sizes[s] * 8), sizes[s], kDtypes[d]);
      put(tensors[count].data, kDtypes[d], x, sizes[s]);
      ++count;
    }
  }
  int32_t finite = -1;
  EXPECT(mpcore_norms(ctx, count, tensors, results, results + count) == MPCORE_OK);
  EXPECT(mpcore_unscale(ctx, count, tensors, NULL, 1.0 / 3, &finite) == MPCORE_OK && finite == 1);
  EXPECT(mpcore_all_finite(ctx, count, tensors, &finite) == MPCORE_OK && finite == 1);
  unsigned char* bytes = out + (count + 1) * sizeof(double);
  for (int t = 0; t < count; ++t) {
    const size_t size = (size_t)(tensors[t].size * mpcore_dtype_size(tensors[t].dtype));
    memcpy(bytes, tensors[t].data, size);
    bytes += size;
    free(tensors[t].data);
  }
  free(x);
}

static void test_loss_scale_state(void) {
  mpcore_loss_scale s;
  EXPECT(mpcore_loss_scale_init(&s) == MPCORE_OK);
  EXPECT(s.struct_size == sizeof(s) && s.growth_steps == 2000 && s.step_counter == 0);
  EXPECT(s.scale == 32768 && s.min_scale == 0x1p-126 && s.max_scale == 0x1p126);
  s.growth_steps = 3;
  for (int i = 0; i < 3; ++i) {
    EXPECT(s.scale == 32768 && s.step_counter == i);
    EXPECT(mpcore_loss_scale_update(&s, 1) == MPCORE_OK);
  }
  EXPECT(s.scale == 65536 && s.step_counter == 0);
  EXPECT(mpcore_loss_scale_update(&s, 1) == MPCORE_OK && s.step_counter == 1);
  EXPECT(mpcore_loss_scale_update(&s, 0) == MPCORE_OK && s.scale == 32768 && s.step_counter == 0);
  s.growth_steps = 1;
  for (int i = 0; i < 300; ++i) EXPECT(mpcore_loss_scale_update(&s, 1) == MPCORE_OK);
  EXPECT(s.scale == s.max_scale);
  for (int i = 0; i < 300; ++i) EXPECT(mpcore_loss_scale_update(&s, 0) == MPCORE_OK);
  EXPECT(s.scale == s.min_scale);
}

static void test_loss_scale_errors_change_nothing(void) {
  mpcore_loss_scale good;
  EXPECT(mpcore_loss_scale_init(&good) == MPCORE_OK);
  EXPECT(mpcore_loss_scale_init(NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_loss_scale_update(NULL, 1) == MPCORE_INVALID_ARGUMENT);
  static const char* fields[] = {"struct_size", "growth_steps", "step_counter", "scale",
                                 "min_scale",   "max_scale",    "min_scale"};
  for (int i = 0; i < 7; ++i) {
    mpcore_loss_scale s = good;
    if (i == 0) s.struct_size = 8;
    if (i == 1) s.growth_steps = 0;
    if (i == 2) s.step_counter = -1;
    if (i == 3) s.scale = NAN;
    if (i == 4) s.min_scale = 0;
    if (i == 5) s.max_scale = INFINITY;
    if (i == 6) s.min_scale = 2, s.max_scale = 1;
    const mpcore_loss_scale before = s;
    EXPECT(mpcore_loss_scale_update(&s, 0) == MPCORE_INVALID_ARGUMENT);
    EXPECT(memcmp(&s, &before, sizeof(s)) == 0);
    EXPECT(error_names("mpcore_loss_scale_update", fields[i]));
  }
}

static void test_errors_name_the_field(void) {
  float x[2] = {1, 2};
  int32_t finite = 7;
  mpcore_tensor_ref t[2];
  t[0] = ref(x, 2, MPCORE_DTYPE_F32);
  t[1] = t[0];
  EXPECT(mpcore_all_finite(NULL, -1, t, &finite) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_all_finite", "count"));
  EXPECT(mpcore_all_finite(NULL, 1, NULL, &finite) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_all_finite(NULL, 1, t, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_all_finite", "finite"));
  t[1].size = -3;
  EXPECT(mpcore_unscale(NULL, 2, t, NULL, 0.5, &finite) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "tensors[1].size"));
  t[1].size = INT64_MAX / 2;
  EXPECT(mpcore_unscale(NULL, 2, t, NULL, 0.5, &finite) == MPCORE_INVALID_ARGUMENT);
  t[1] = ref(NULL, 1, MPCORE_DTYPE_F32);
  EXPECT(mpcore_unscale(NULL, 2, t, NULL, 0.5, &finite) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "tensors[1].data"));
  t[1] = ref(x, 1, MPCORE_DTYPE_I32);
  EXPECT(mpcore_norms(NULL, 2, t, NULL, NULL) == MPCORE_UNSUPPORTED);
  EXPECT(error_names("mpcore_norms", "tensors[1].dtype") && error_names("mpcore_norms", "int32"));
  t[1].dtype = 99;
  EXPECT(mpcore_norms(NULL, 2, t, NULL, NULL) == MPCORE_INVALID_ARGUMENT);
  t[1] = t[0];
  t[1].reserved = 1;
  EXPECT(mpcore_unscale(NULL, 2, t, NULL, 0.5, &finite) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "tensors[1].reserved"));
  EXPECT(mpcore_unscale(NULL, 1, t, NULL, NAN, &finite) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_unscale", "multiplier"));
  EXPECT(x[0] == 1 && x[1] == 2 && finite == 7);
}

int main(void) {
  test_all_finite_sees_every_element();
  test_all_finite_takes_many_tensors();
  test_unscale_multiplies_in_fp32_and_rounds_once();
  test_norms_neither_overflow_nor_underflow();
  test_loss_scale_state();
  test_loss_scale_errors_change_nothing();
  test_errors_name_the_field();
  expect_same_everywhere(run_everything, 8 * 1024 + 17 * (kShared + 17000));
  return expect_result();
}
