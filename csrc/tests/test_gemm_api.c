/* gemm.h through the shared library: what it refuses, and that nothing is written then. */
#include "levels.h"

enum { kM = 5, kN = 7, kK = 6 };

static float a[kM * kK], b[kK * kN], d[kM * kN], z[kM * kN], residual[kM * kN], bias[kN];

static mpcore_matrix rows(float* data, int64_t cols) {
  const mpcore_matrix m = {data, cols, 1, 0, MPCORE_DTYPE_F32, 0};
  return m;
}

static mpcore_gemm_args valid(void) {
  mpcore_gemm_args g;
  memset(&g, 0, sizeof g);
  g.struct_size = sizeof g;
  g.batch = 1;
  g.m = kM, g.n = kN, g.k = kK;
  g.a = rows(a, kK), g.b = rows(b, kN), g.d = rows(d, kN);
  g.alpha = 1;
  return g;
}

/* The call fails with the status, says `why`, and writes nothing. */
static void expect_refused(const mpcore_gemm_args* g, mpcore_status status, const char* why) {
  for (int i = 0; i < kM * kN; ++i) d[i] = z[i] = 42;
  EXPECT(mpcore_gemm(NULL, g) == status);
  if (strstr(mpcore_last_error(), why) == NULL) fprintf(stderr, "%s\n", mpcore_last_error());
  EXPECT(strstr(mpcore_last_error(), why) != NULL);
  for (int i = 0; i < kM * kN; ++i) EXPECT(d[i] == 42 && z[i] == 42);
}

#define REFUSES(change, status, why)          \
  do {                                        \
    mpcore_gemm_args g = valid();             \
    change;                                   \
    expect_refused(&g, MPCORE_##status, why); \
  } while (0)

static void test_gemm_refuses_sizes_and_scalars(void) {
  expect_refused(NULL, MPCORE_INVALID_ARGUMENT, "args must not be NULL");
  REFUSES(g.struct_size = 8, INVALID_ARGUMENT, "struct_size");
  REFUSES(g.batch = -1, INVALID_ARGUMENT, "batch must be >= 0");
  REFUSES(g.m = -1, INVALID_ARGUMENT, "m must be >= 0");
  REFUSES(g.k = -3, INVALID_ARGUMENT, "k must be >= 0");
  REFUSES(g.n = INT64_MAX, INVALID_ARGUMENT, "n must be <=");
  REFUSES((g.k = INT64_C(1) << 58, g.a.row_stride = g.a.col_stride = 0,
           g.b.row_stride = g.b.col_stride = 0),
          INVALID_ARGUMENT, "must fit in memory");
  REFUSES(g.activation = 7, INVALID_ARGUMENT, "activation must be");
  REFUSES(g.activation = -1, INVALID_ARGUMENT, "activation must be");
  REFUSES(g.precision = 4, INVALID_ARGUMENT, "precision must be");
  REFUSES((g.bias = bias, g.bias_dtype = 99), INVALID_ARGUMENT, "bias must be");
}

static void test_gemm_refuses_matrices(void) {
  REFUSES(g.a.data = NULL, INVALID_ARGUMENT, "a must not be NULL");
  REFUSES(g.b.data = NULL, INVALID_ARGUMENT, "b must not be NULL");
  REFUSES(g.d.data = NULL, INVALID_ARGUMENT, "d must not be NULL");
  REFUSES(g.a.dtype = MPCORE_DTYPE_F16, INVALID_ARGUMENT, "a and b must have one dtype");
  REFUSES(g.d.dtype = MPCORE_DTYPE_F64, UNSUPPORTED, "d must be float32");
  REFUSES(g.b.reserved = 1, INVALID_ARGUMENT, "b.reserved must be 0");
  REFUSES(g.a.row_stride = INT64_MAX / 2, INVALID_ARGUMENT, "strides of a reach");
  REFUSES(g.d.row_stride = INT64_MAX, INVALID_ARGUMENT, "strides of d reach");
  REFUSES((g.residual = rows(residual, kN), g.residual.dtype = 77), INVALID_ARGUMENT, "residual");
  REFUSES((g.pre_activation = rows(z, kN), g.pre_activation.reserved = 5), INVALID_ARGUMENT,
          "pre_activation.reserved");
}

static void test_gemm_refuses_overlaps(void) {
  REFUSES(g.d.row_stride = kN - 1, INVALID_ARGUMENT, "elements of d overlap");
  REFUSES(g.d.row_stride = 0, INVALID_ARGUMENT, "elements of d overlap");
  REFUSES(g.batch = 2, INVALID_ARGUMENT, "elements of d overlap");
  REFUSES((g.batch = 2, g.d.batch_stride = kM * kN - 1), INVALID_ARGUMENT, "elements of d overlap");
  REFUSES(g.a.data = d, INVALID_ARGUMENT, "d must not overlap a");
  REFUSES(g.b.data = d + kM * kN - 1, INVALID_ARGUMENT, "d must not overlap b");
  REFUSES((g.bias = d, g.bias_dtype = 0), INVALID_ARGUMENT, "d must not overlap bias");
  REFUSES(g.residual = rows(d + 1, kN), INVALID_ARGUMENT, "unless it is the same matrix");
  REFUSES((g.residual = rows(d, kN), g.residual.row_stride = kN + 1), INVALID_ARGUMENT,
          "d must not overlap residual");
  REFUSES(g.pre_activation = rows(d, kN), INVALID_ARGUMENT, "pre_activation must not overlap d");
  REFUSES(g.pre_activation = rows(a, kN), INVALID_ARGUMENT, "pre_activation must not overlap a");
  REFUSES((g.pre_activation = rows(z, kN), g.residual = rows(z, kN)), INVALID_ARGUMENT,
          "pre_activation must not overlap residual");
}

static void test_gemm_of_nothing_is_ok(void) {
  int32_t finite = -1;
  double squares = -1;
  mpcore_gemm_args g = valid();
  g.batch = 0, g.finite = &finite, g.sum_squares = &squares;
  EXPECT(mpcore_gemm(NULL, &g) == MPCORE_OK && finite == 1 && squares == 0);
  g = valid(), g.m = 0, g.a.data = g.d.data = NULL;
  EXPECT(mpcore_gemm(NULL, &g) == MPCORE_OK);
  g = valid(), g.k = 0, g.a.data = g.b.data = NULL;
  for (int i = 0; i < kM * kN; ++i) d[i] = NAN;
  EXPECT(mpcore_gemm(NULL, &g) == MPCORE_OK);
  for (int i = 0; i < kM * kN; ++i) EXPECT(d[i] == 0 && !signbit(d[i]));
}

static void test_packed_blocks_are_checked(void) {
  int64_t size = 0;
  EXPECT(mpcore_gemm_pack_size(NULL, kK, kN, 0, 0, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_gemm_pack_size(NULL, -1, kN, 0, 0, &size) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_gemm_pack_size(NULL, kK, kN, MPCORE_DTYPE_F64, 0, &size) == MPCORE_UNSUPPORTED);
  EXPECT(mpcore_gemm_pack_size(NULL, kK, kN, 0, 9, &size) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_gemm_pack_size(NULL, INT64_MAX / 8, INT64_MAX / 8, 0, 0, &size) ==
         MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_gemm_pack_size(NULL, kK, kN, 0, 0, &size) == MPCORE_OK);
  EXPECT(size >= (int64_t)sizeof b);

  for (int i = 0; i < kM * kK; ++i) a[i] = (float)random_unit();
  for (int i = 0; i < kK * kN; ++i) b[i] = (float)random_unit();
  const mpcore_matrix matrix = rows(b, kN);
  char* block = malloc((size_t)size + 1);
  EXPECT(mpcore_gemm_pack(NULL, kK, kN, NULL, 0, block, size) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_gemm_pack(NULL, kK, kN, &matrix, 0, NULL, size) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_gemm_pack(NULL, kK, kN, &matrix, 0, block, size - 1) == MPCORE_INVALID_ARGUMENT);
  EXPECT(strstr(mpcore_last_error(), "mpcore_gemm_pack_size") != NULL);
  EXPECT(mpcore_gemm_pack(NULL, kK, kN, &matrix, 0, b, size) == MPCORE_INVALID_ARGUMENT);

  for (int odd = 0; odd < 2; ++odd) { /* any alignment */
    float plain[kM * kN];
    EXPECT(mpcore_gemm_pack(NULL, kK, kN, &matrix, 0, block + odd, size) == MPCORE_OK);
    mpcore_gemm_args g = valid();
    EXPECT(mpcore_gemm(NULL, &g) == MPCORE_OK);
    memcpy(plain, d, sizeof plain);
    g.b.data = NULL, g.packed_b = block + odd;
    memset(d, 0, sizeof d);
    EXPECT(mpcore_gemm(NULL, &g) == MPCORE_OK && memcmp(plain, d, sizeof d) == 0);
    g.k = kK - 1;
    expect_refused(&g, MPCORE_INVALID_ARGUMENT, "k=5");
    g = valid(), g.b.data = NULL, g.packed_b = block + odd, g.n = kN - 1;
    expect_refused(&g, MPCORE_INVALID_ARGUMENT, "n=6");
    g = valid(), g.packed_b = block + odd, g.a.dtype = g.b.dtype = MPCORE_DTYPE_BF16;
    expect_refused(&g, MPCORE_INVALID_ARGUMENT, "bfloat16");
    g = valid(), g.packed_b = block + odd, g.precision = MPCORE_MATMUL_PRECISION_HIGH;
    expect_refused(&g, MPCORE_INVALID_ARGUMENT, "precision=2");
    block[odd] ^= 1;
    g = valid(), g.packed_b = block + odd;
    expect_refused(&g, MPCORE_INVALID_ARGUMENT, "must come from mpcore_gemm_pack");
  }
  free(block);
}

static void test_halves_are_packed_at_any_address(void) {
  static uint16_t x[kM * kK], y[kK * kN];
  for (int i = 0; i < kM * kK; ++i) x[i] = (uint16_t)(0x3c00 + i);
  for (int i = 0; i < kK * kN; ++i) y[i] = (uint16_t)(0x3d00 - i);
  for (mpcore_dtype dtype = MPCORE_DTYPE_F16; dtype <= MPCORE_DTYPE_BF16; ++dtype) {
    mpcore_gemm_args g = valid();
    g.a.data = x, g.b.data = y, g.a.dtype = g.b.dtype = dtype;
    float plain[kM * kN];
    EXPECT(mpcore_gemm(NULL, &g) == MPCORE_OK);
    memcpy(plain, d, sizeof plain);
    int64_t size = 0;
    EXPECT(mpcore_gemm_pack_size(NULL, kK, kN, dtype, 0, &size) == MPCORE_OK);
    char* block = malloc((size_t)size + 64);
    for (int offset = 0; offset < 64; offset += 9) {
      EXPECT(mpcore_gemm_pack(NULL, kK, kN, &g.b, 0, block + offset, size) == MPCORE_OK);
      mpcore_gemm_args packed = g;
      packed.b.data = NULL, packed.packed_b = block + offset;
      memset(d, 0, sizeof d);
      EXPECT(mpcore_gemm(NULL, &packed) == MPCORE_OK && memcmp(plain, d, sizeof d) == 0);
    }
    free(block);
  }
}

static void test_precision_is_a_setting_of_the_context(void) {
  mpcore_matmul_precision precision = 0;
  mpcore_context* ctx = NULL;
  EXPECT(mpcore_context_create(NULL, &ctx) == MPCORE_OK);
  EXPECT(mpcore_set_float32_matmul_precision(ctx, MPCORE_MATMUL_PRECISION_MEDIUM) == MPCORE_OK);
  EXPECT(mpcore_get_float32_matmul_precision(ctx, &precision) == MPCORE_OK);
  EXPECT(precision == MPCORE_MATMUL_PRECISION_MEDIUM);
  EXPECT(mpcore_get_float32_matmul_precision(NULL, &precision) == MPCORE_OK);
  EXPECT(precision == MPCORE_MATMUL_PRECISION_HIGHEST);
  EXPECT(mpcore_set_float32_matmul_precision(ctx, 4) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_set_float32_matmul_precision(ctx, MPCORE_MATMUL_PRECISION_DEFAULT) == MPCORE_OK);
  EXPECT(mpcore_get_float32_matmul_precision(ctx, &precision) == MPCORE_OK);
  EXPECT(precision == MPCORE_MATMUL_PRECISION_HIGHEST);
  EXPECT(mpcore_get_float32_matmul_precision(ctx, NULL) == MPCORE_INVALID_ARGUMENT);
  mpcore_context_destroy(ctx);
}

int main(void) {
  test_gemm_refuses_sizes_and_scalars();
  test_gemm_refuses_matrices();
  test_gemm_refuses_overlaps();
  test_gemm_of_nothing_is_ok();
  test_packed_blocks_are_checked();
  test_halves_are_packed_at_any_address();
  test_precision_is_a_setting_of_the_context();
  return expect_result();
}
