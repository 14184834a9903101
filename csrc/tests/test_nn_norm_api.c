/* Normalisation in nn.h through the shared library. */
#include "levels.h"

static const mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16};
static const float kEpsilon = 1e-3f;

/* A problem: rows x cols of x and dy, with parameters of the columns. */
typedef struct problem {
  int64_t rows, cols, n;
  mpcore_dtype dtype;
  size_t bytes;
  double *x, *dy;
  void *x_data, *dy_data, *y, *dx;
  float *gamma, *beta, *dgamma, *dbeta, *mean, *rstd;
} problem;

static problem make(int64_t rows, int64_t cols, mpcore_dtype dtype) {
  problem p;
  p.rows = rows, p.cols = cols, p.n = rows * cols, p.dtype = dtype;
  p.bytes = (size_t)(p.n * mpcore_dtype_size(dtype));
  const size_t longest = (size_t)(rows > cols ? rows : cols) * sizeof(float);
  float** floats[] = {&p.gamma, &p.beta, &p.dgamma, &p.dbeta, &p.mean, &p.rstd};
  void** arrays[] = {&p.x_data, &p.dy_data, &p.y, &p.dx};
  p.x = malloc((size_t)p.n * 8), p.dy = malloc((size_t)p.n * 8);
  for (int i = 0; i < 6; ++i) *floats[i] = malloc(longest);
  for (int i = 0; i < 4; ++i) *arrays[i] = malloc(p.bytes);
  for (int64_t i = 0; i < p.n; ++i) p.x[i] = 3 * random_unit() + 1, p.dy[i] = random_unit();
  for (int64_t j = 0; j < cols; ++j)
    p.gamma[j] = (float)random_unit() + 1.5f, p.beta[j] = (float)random_unit();
  put(p.x_data, dtype, p.x, p.n), get(p.x, p.x_data, dtype, p.n);
  put(p.dy_data, dtype, p.dy, p.n), get(p.dy, p.dy_data, dtype, p.n);
  return p;
}

static void discard(problem* p) {
  free(p->x), free(p->dy), free(p->x_data), free(p->dy_data), free(p->y), free(p->dx);
  free(p->gamma), free(p->beta), free(p->dgamma), free(p->dbeta), free(p->mean), free(p->rstd);
}

/* Elements of `data` beyond `error` plus a rounding away from `want`. */
static int64_t beyond(const void* data, mpcore_dtype dtype, const double* want, int64_t n,
                      double error) {
  double* got = malloc((size_t)n * 8);
  const double unit = epsilon_of(dtype) / 2;
  int64_t wrong = 0;
  get(got, data, dtype, n);
  for (int64_t i = 0; i < n; ++i)
    wrong += !(fabs(got[i] - want[i]) <= error + unit * fabs(want[i]));
  free(got);
  return wrong;
}

/* Forward and backward of rows (along columns: `by_row` 0) against double. */
static void expect_accurate(problem* p, int by_row, int center, double error) {
  const int64_t lines = by_row ? p->rows : p->cols, length = by_row ? p->cols : p->rows;
  const int64_t next = by_row ? 1 : p->cols, line = by_row ? p->cols : 1;
  double *y = malloc((size_t)p->n * 8), *dx = malloc((size_t)p->n * 8);
  double* dgamma = calloc((size_t)p->cols, 8);
  double* dbeta = calloc((size_t)p->cols, 8);
  for (int64_t l = 0; l < lines; ++l) {
    const int64_t at = l * line;
    double mean = 0, square = 0, sum_g = 0, sum_gh = 0;
    for (int64_t k = 0; k < length; ++k) mean += p->x[at + k * next] / (double)length;
    if (!center) mean = 0;
    for (int64_t k = 0; k < length; ++k)
      square += (p->x[at + k * next] - mean) * (p->x[at + k * next] - mean) / (double)length;
    const double rstd = 1 / sqrt(square + kEpsilon);
    for (int64_t k = 0; k < length; ++k) {
      const int64_t i = at + k * next, j = i % p->cols;
      const double h = (p->x[i] - mean) * rstd, g = p->dy[i] * p->gamma[j];
      y[i] = h * p->gamma[j] + (center ? p->beta[j] : 0);
      sum_g += g / (double)length, sum_gh += g * h / (double)length;
      dgamma[j] += p->dy[i] * h, dbeta[j] += p->dy[i];
    }
    if (!center) sum_g = 0;
    for (int64_t k = 0; k < length; ++k) {
      const int64_t i = at + k * next;
      const double h = (p->x[i] - mean) * rstd;
      dx[i] = rstd * (p->dy[i] * p->gamma[i % p->cols] - sum_g - h * sum_gh);
    }
  }
  EXPECT(beyond(p->y, p->dtype, y, p->n, error) == 0);
  EXPECT(beyond(p->dx, p->dtype, dx, p->n, error) == 0);
  EXPECT(beyond(p->dgamma, MPCORE_DTYPE_F32, dgamma, p->cols, error * (double)p->rows) == 0);
  if (center)
    EXPECT(beyond(p->dbeta, MPCORE_DTYPE_F32, dbeta, p->cols, error * (double)p->rows) == 0);
  free(y), free(dx), free(dgamma), free(dbeta);
}

static void run_rows(mpcore_context* ctx, problem* p, int center) {
  if (center) {
    EXPECT(mpcore_layer_norm(ctx, p->rows, p->cols, p->x_data, p->gamma, p->beta, kEpsilon, p->y,
                             p->mean, p->rstd, p->dtype) == MPCORE_OK);
    EXPECT(mpcore_layer_norm_backward(ctx, p->rows, p->cols, p->x_data, p->gamma, p->mean, p->rstd,
                                      p->dy_data, p->dx, p->dgamma, p->dbeta,
                                      p->dtype) == MPCORE_OK);
  } else {
    EXPECT(mpcore_rms_norm(ctx, p->rows, p->cols, p->x_data, p->gamma, kEpsilon, p->y, p->rstd,
                           p->dtype) == MPCORE_OK);
    EXPECT(mpcore_rms_norm_backward(ctx, p->rows, p->cols, p->x_data, p->gamma, p->rstd, p->dy_data,
                                    p->dx, p->dgamma, p->dtype) == MPCORE_OK);
  }
}

static void run_columns(mpcore_context* ctx, problem* p) {
  float* variance = p->rstd;
  EXPECT(mpcore_batch_norm_moments(ctx, p->rows, p->cols, p->x_data, p->mean, variance, p->dtype) ==
         MPCORE_OK);
  EXPECT(mpcore_batch_norm(ctx, p->rows, p->cols, p->x_data, p->mean, variance, kEpsilon, p->gamma,
                           p->beta, p->y, p->dtype) == MPCORE_OK);
  EXPECT(mpcore_batch_norm_backward(ctx, p->rows, p->cols, p->x_data, p->mean, variance, kEpsilon,
                                    p->gamma, p->dy_data, 0, p->dx, p->dgamma, p->dbeta,
                                    p->dtype) == MPCORE_OK);
}

static void test_normalisation_is_accurate(void) {
  static const int64_t shapes[][2] = {{2, 3}, {65, 16}, {7, 49}, {64, 63}, {130, 130}, {3, 2001}};
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < 6; ++s) {
      problem p = make(shapes[s][0], shapes[s][1], kDtypes[d]);
      /* rstd is at most 32, h and its factors are below 16: some tens of fp32 roundings. */
      for (int center = 0; center < 2; ++center) {
        run_rows(NULL, &p, center);
        expect_accurate(&p, 1, center, 0x1p-24 * 4096);
      }
      run_columns(NULL, &p);
      expect_accurate(&p, 0, 1, 0x1p-24 * 4096);
      discard(&p);
    }
  }
}

/* In place, and each output alone, give the same bits. */
static void test_outputs_alone_and_in_place(void) {
  for (int d = 0; d < 3; ++d) {
    problem p = make(70, 37, kDtypes[d]);
    float one[37];
    void* copy = malloc(p.bytes);
    run_rows(NULL, &p, 1);
    EXPECT(mpcore_layer_norm_backward(NULL, 70, 37, p.x_data, p.gamma, p.mean, p.rstd, p.dy_data,
                                      NULL, one, NULL, p.dtype) == MPCORE_OK);
    EXPECT(memcmp(one, p.dgamma, sizeof(one)) == 0);
    EXPECT(mpcore_layer_norm_backward(NULL, 70, 37, p.x_data, p.gamma, p.mean, p.rstd, p.dy_data,
                                      NULL, NULL, one, p.dtype) == MPCORE_OK);
    EXPECT(memcmp(one, p.dbeta, sizeof(one)) == 0);
    memcpy(copy, p.dy_data, p.bytes);
    EXPECT(mpcore_layer_norm_backward(NULL, 70, 37, p.x_data, p.gamma, p.mean, p.rstd, copy, copy,
                                      NULL, NULL, p.dtype) == MPCORE_OK);
    EXPECT(memcmp(copy, p.dx, p.bytes) == 0);
    memcpy(copy, p.x_data, p.bytes);
    EXPECT(mpcore_layer_norm(NULL, 70, 37, copy, p.gamma, p.beta, kEpsilon, copy, NULL, NULL,
                             p.dtype) == MPCORE_OK);
    EXPECT(memcmp(copy, p.y, p.bytes) == 0);
    run_columns(NULL, &p);
    memcpy(copy, p.x_data, p.bytes);
    EXPECT(mpcore_batch_norm(NULL, 70, 37, copy, p.mean, p.rstd, kEpsilon, p.gamma, p.beta, copy,
                             p.dtype) == MPCORE_OK);
    EXPECT(memcmp(copy, p.y, p.bytes) == 0);
    memcpy(copy, p.dy_data, p.bytes);
    EXPECT(mpcore_batch_norm_backward(NULL, 70, 37, p.x_data, p.mean, p.rstd, kEpsilon, p.gamma,
                                      copy, 0, copy, NULL, NULL, p.dtype) == MPCORE_OK);
    EXPECT(memcmp(copy, p.dx, p.bytes) == 0);
    free(copy), discard(&p);
  }
}

static void test_constant_moments_leave_a_scaled_gradient(void) {
  const float x[4] = {1, INFINITY, 3, 4}, dy[4] = {1, 2, 3, 4}, mean[2] = {0, 0};
  const float variance[2] = {3.75f, 0.75f}, gamma[2] = {4, 2};
  float dx[4], dbeta[2];
  EXPECT(mpcore_batch_norm_backward(NULL, 2, 2, x, mean, variance, 0.25f, gamma, dy, 1, dx, NULL,
                                    dbeta, 0) == MPCORE_OK);
  EXPECT(dx[0] == 2 && dx[1] == 4 && dx[2] == 6 && dx[3] == 8);
  EXPECT(dbeta[0] == 4 && dbeta[1] == 6);
}

static void test_special_rows(void) {
  const float x[4][3] = {{0.1f, 0.1f, 0.1f}, {1, INFINITY, 2}, {1, NAN, 2}, {1e20f, 1e20f, 1e20f}};
  float y[4][3], mean[4], rstd[4];
  EXPECT(mpcore_layer_norm(NULL, 4, 3, x, NULL, NULL, 1e-12f, y, mean, rstd, 0) == MPCORE_OK);
  for (int j = 0; j < 3; ++j) {
    EXPECT(y[0][j] == 0 && isnan(y[1][j]) && isnan(y[2][j]) && y[3][j] == 0);
  }
  EXPECT(mean[0] == 0.1f && fabs(rstd[0] - 1e6) < 1);
}

static void run_everything(mpcore_context* ctx, unsigned char* out) {
  static const int64_t shapes[][2] = {{1, 1}, {130, 49}, {40, 1000}, {2500, 10}, {3, 9000}};
  random_state = 17;
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < 5; ++s) {
      problem p = make(shapes[s][0], shapes[s][1], kDtypes[d]);
      for (int kind = 0; kind < 3; ++kind) {
        kind < 2 ? run_rows(ctx, &p, kind) : run_columns(ctx, &p);
        memcpy(out, p.y, p.bytes), out += p.bytes;
        memcpy(out, p.dx, p.bytes), out += p.bytes;
        memcpy(out, p.dgamma, (size_t)p.cols * 4), out += p.cols * 4;
        if (kind > 0) memcpy(out, p.dbeta, (size_t)p.cols * 4), out += p.cols * 4;
      }
      discard(&p);
    }
  }
}

static void test_errors_name_the_field_and_write_nothing(void) {
  const mpcore_status bad = MPCORE_INVALID_ARGUMENT;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {9, 9, 9, 9, 9, 9, 9, 9}, m[4] = {9, 9, 9, 9};
#define REFUSED(call, status, function, field) \
  EXPECT((call) == (status) && error_names("mpcore_" function, field))
  REFUSED(mpcore_layer_norm(NULL, 2, 0, x, NULL, NULL, 1, y, m, m, 0), bad, "layer_norm",
          "cols must be >= 1");
  REFUSED(mpcore_layer_norm(NULL, 2, 4, x, NULL, NULL, 0, y, NULL, NULL, 0), bad, "layer_norm",
          "epsilon");
  REFUSED(mpcore_layer_norm(NULL, 2, 4, x, NULL, NULL, NAN, y, NULL, NULL, 0), bad, "layer_norm",
          "epsilon");
  REFUSED(mpcore_layer_norm(NULL, 2, 4, x, NULL, NULL, 1, y, m, m, 0), bad, "layer_norm",
          "mean must not overlap");
  REFUSED(mpcore_layer_norm(NULL, 1, 4, x, NULL, NULL, 1, x + 1, NULL, NULL, 0), bad, "layer_norm",
          "y must not overlap");
  REFUSED(mpcore_layer_norm(NULL, 2, 4, x, NULL, NULL, 1, y, NULL, NULL, MPCORE_DTYPE_F64),
          MPCORE_UNSUPPORTED, "layer_norm", "float64");
  REFUSED(mpcore_rms_norm(NULL, -1, 4, x, NULL, 1, y, NULL, 0), bad, "rms_norm", "rows");
  REFUSED(mpcore_rms_norm(NULL, 2, 4, NULL, NULL, 1, y, NULL, 0), bad, "rms_norm", "x must");
  REFUSED(mpcore_layer_norm_backward(NULL, 2, 4, x, NULL, NULL, m, x, y, NULL, NULL, 0), bad,
          "layer_norm_backward", "mean");
  REFUSED(mpcore_rms_norm_backward(NULL, 2, 4, x, NULL, NULL, x, y, NULL, 0), bad,
          "rms_norm_backward", "rstd");
  REFUSED(mpcore_rms_norm_backward(NULL, 2, 4, x, NULL, m, x, y, y, 0), bad, "rms_norm_backward",
          "must not overlap");
  REFUSED(mpcore_batch_norm_moments(NULL, 0, 4, x, y, m, 0), bad, "batch_norm_moments", "rows");
  REFUSED(mpcore_batch_norm_moments(NULL, 2, 4, x, y, NULL, 0), bad, "batch_norm_moments",
          "variance");
  REFUSED(mpcore_batch_norm(NULL, 2, 4, x, m, m, -1, NULL, NULL, y, 0), bad, "batch_norm",
          "epsilon");
  REFUSED(mpcore_batch_norm(NULL, 2, 4, x, m, NULL, 1, NULL, NULL, y, 0), bad, "batch_norm",
          "variance");
  REFUSED(mpcore_batch_norm_backward(NULL, 2, 4, x, m, m, 1, NULL, x, 0, y, y, NULL, 0), bad,
          "batch_norm_backward", "must not overlap");
#undef REFUSED
  for (int i = 0; i < 8; ++i) EXPECT(y[i] == 9 && x[i] == (float)(i + 1));
  for (int i = 0; i < 4; ++i) EXPECT(m[i] == 9);
  EXPECT(mpcore_layer_norm(NULL, 0, 3, NULL, NULL, NULL, 1, NULL, NULL, NULL, 0) == MPCORE_OK);
  EXPECT(mpcore_layer_norm_backward(NULL, 0, 4, NULL, NULL, NULL, NULL, NULL, NULL, m, NULL, 0) ==
         MPCORE_OK);
  EXPECT(m[0] == 0 && m[3] == 0);
}

int main(void) {
  test_normalisation_is_accurate();
  test_outputs_alone_and_in_place();
  test_constant_moments_leave_a_scaled_gradient();
  test_special_rows();
  test_errors_name_the_field_and_write_nothing();
  expect_same_everywhere(run_everything, 8 * 1000 * 1000);
  return expect_result();
}
