/* nn.h through the shared library. */
#include "levels.h"

static const mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16};

static double activation(int f, double x) {
  if (f == MPCORE_ACTIVATION_RELU) return x < 0 ? 0 : x;
  if (f == MPCORE_ACTIVATION_SIGMOID) return 1 / (1 + exp(-x));
  if (f == MPCORE_ACTIVATION_TANH) return tanh(x);
  return x;
}

static void test_activation_forward_is_accurate(void) {
  enum { kN = 40001 };
  double* x = malloc(kN * sizeof(*x));
  double* y = malloc(kN * sizeof(*y));
  void *from = malloc(kN * 4), *to = malloc(kN * 4);
  for (int d = 0; d < 3; ++d) {
    for (int f = 0; f < 4; ++f) {
      for (int64_t i = 0; i < kN; ++i) x[i] = ldexp(random_unit(), (int)(i % 24) - 16);
      put(from, kDtypes[d], x, kN);
      get(x, from, kDtypes[d], kN);
      EXPECT(mpcore_activation_forward(NULL, f, kN, from, to, kDtypes[d]) == MPCORE_OK);
      get(y, to, kDtypes[d], kN);
      int wrong = 0;
      for (int64_t i = 0; i < kN; ++i) { /* 3 ulp of fp32, one rounding, underflow */
        const double want = activation(f, x[i]);
        const double bound = fabs(want) * (3 * 0x1p-23 + epsilon_of(kDtypes[d]) / 2);
        const double tiny = kDtypes[d] == MPCORE_DTYPE_F16 ? 0x1p-25 : 0x1p-126;
        wrong += !(fabs(y[i] - want) <= bound + tiny);
      }
      EXPECT(wrong == 0);
      EXPECT(mpcore_activation_forward(NULL, f, kN, from, from, kDtypes[d]) == MPCORE_OK);
      EXPECT(memcmp(from, to, kN * (size_t)mpcore_dtype_size(kDtypes[d])) == 0);
    }
  }
  free(x), free(y), free(from), free(to);
}

static void test_activation_forward_of_special_values(void) {
  const float x[6] = {INFINITY, -INFINITY, NAN, -0.0f, 0x1p-140f, -200};
  float y[6];
  EXPECT(mpcore_activation_forward(NULL, 1, 6, x, y, 0) == MPCORE_OK);
  EXPECT(y[0] == INFINITY && y[1] == 0 && isnan(y[2]) && y[4] == x[4] && y[5] == 0);
  EXPECT(mpcore_activation_forward(NULL, 2, 6, x, y, 0) == MPCORE_OK);
  EXPECT(y[0] == 1 && y[1] == 0 && isnan(y[2]) && y[3] == 0.5f && y[4] == 0.5f && y[5] == 0);
  EXPECT(mpcore_activation_forward(NULL, 3, 6, x, y, 0) == MPCORE_OK);
  EXPECT(y[0] == 1 && y[1] == -1 && isnan(y[2]) && y[3] == 0 && signbit(y[3]));
  EXPECT(y[4] == x[4] && y[5] == -1);
}

/* db in its documented order: fp32 over leaves of 64 rows, the leaves in double. With relu and
   linear dz has no rounding of its own, so the bits are known. */
static void test_dense_backward_sums_in_the_documented_order(void) {
  static const int64_t shapes[][2] = {{0, 5},   {1, 1},   {3, 17},    {64, 16},  {65, 49},
                                      {130, 7}, {1, 700}, {2500, 33}, {70, 1100}};
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < 9; ++s) {
      for (int f = 0; f < 2; ++f) {
        const int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
        const size_t bytes = (size_t)(n * mpcore_dtype_size(kDtypes[d]));
        double* x = malloc((size_t)(n + 1) * 8);
        void *y = malloc(bytes + 1), *dy = malloc(bytes + 1), *dz = malloc(bytes + 1);
        float* db = malloc((size_t)cols * 4);
        double* want = malloc((size_t)(n + 1) * 8);
        for (int64_t i = 0; i < n; ++i) x[i] = i % 3 ? random_unit() : 0;
        put(y, kDtypes[d], x, n);
        get(x, y, kDtypes[d], n);
        for (int64_t i = 0; i < n; ++i) want[i] = random_unit();
        put(dy, kDtypes[d], want, n);
        get(want, dy, kDtypes[d], n);
        if (f == MPCORE_ACTIVATION_RELU)
          for (int64_t i = 0; i < n; ++i) want[i] = x[i] > 0 ? want[i] : 0;
        EXPECT(mpcore_dense_backward(NULL, f, rows, cols, f ? y : NULL, dy, dz, db, kDtypes[d]) ==
               MPCORE_OK);
        get(x, dz, kDtypes[d], n);
        EXPECT(n == 0 || memcmp(x, want, (size_t)n * 8) == 0);
        int wrong = 0;
        for (int64_t j = 0; j < cols; ++j) {
          double total = 0;
          for (int64_t group = 0; group < rows; group += 1024) {
            double part = 0;
            for (int64_t leaf = group; leaf < rows && leaf < group + 1024; leaf += 64) {
              float sum = 0;
              for (int64_t i = leaf; i < rows && i < leaf + 64; ++i)
                sum += (float)want[i * cols + j];
              part += sum;
            }
            total += part;
          }
          wrong += db[j] != (float)total;
        }
        EXPECT(wrong == 0);
        /* In place, and either output alone. */
        float* alone = malloc((size_t)cols * 4);
        EXPECT(mpcore_dense_backward(NULL, f, rows, cols, y, dy, NULL, alone, kDtypes[d]) ==
               MPCORE_OK);
        EXPECT(memcmp(alone, db, (size_t)cols * 4) == 0);
        EXPECT(mpcore_dense_backward(NULL, f, rows, cols, y, dy, dy, NULL, kDtypes[d]) ==
               MPCORE_OK);
        EXPECT(memcmp(dy, dz, bytes) == 0);
        free(x), free(y), free(dy), free(dz), free(db), free(want), free(alone);
      }
    }
  }
}

static void test_dense_backward_differentiates_sigmoid_and_tanh(void) {
  const float y[4] = {0.25f, 0.5f, -0.75f, 1}, dy[4] = {2, -8, 1, 3};
  float dz[4], db[2];
  EXPECT(mpcore_dense_backward(NULL, 2, 2, 2, y, dy, dz, db, 0) == MPCORE_OK);
  EXPECT(dz[0] == 0.375f && dz[1] == -2 && dz[2] == -1.3125f && dz[3] == 0);
  EXPECT(db[0] == 0.375f - 1.3125f && db[1] == -2);
  EXPECT(mpcore_dense_backward(NULL, 3, 2, 2, y, dy, dz, db, 0) == MPCORE_OK);
  EXPECT(dz[0] == 1.875f && dz[1] == -6 && dz[2] == 0.4375f && dz[3] == 0);
}

/* All of the softmax family against double, within the errors of exp and of the sums. */
static void test_softmax_family_is_accurate(void) {
  static const int64_t widths[] = {1, 2, 10, 15, 16, 17, 49, 1000};
  enum { kRows = 70 };
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < 8; ++s) {
      const int64_t cols = widths[s], n = kRows * cols;
      const double unit = epsilon_of(kDtypes[d]) / 2, work = 0x1p-23 * (6 + (double)cols / 16);
      const double tiny = kDtypes[d] == MPCORE_DTYPE_F16 ? 0x1p-24 : 0x1p-126;
      double *x = malloc((size_t)n * 8), *p = malloc((size_t)n * 8), *got = malloc((size_t)n * 8);
      double* g = malloc((size_t)n * 8);
      void *in = malloc((size_t)n * 4), *out = malloc((size_t)n * 4), *dy = malloc((size_t)n * 4);
      int64_t labels[kRows];
      float scale[kRows], loss[kRows];
      int wrong = 0;
      for (int64_t i = 0; i < n; ++i) x[i] = 8 * random_unit(), g[i] = random_unit();
      put(in, kDtypes[d], x, n);
      get(x, in, kDtypes[d], n);
      put(dy, kDtypes[d], g, n);
      get(g, dy, kDtypes[d], n);
      for (int i = 0; i < kRows; ++i)
        labels[i] = (i * 7919) % cols, scale[i] = (float)random_unit();
      EXPECT(mpcore_softmax(NULL, kRows, cols, in, out, kDtypes[d]) == MPCORE_OK);
      get(got, out, kDtypes[d], n);
      EXPECT(mpcore_softmax_xent(NULL, kRows, cols, in, labels, scale, loss, NULL, kDtypes[d]) ==
             MPCORE_OK);
      for (int i = 0; i < kRows; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < cols; ++j) sum += exp(x[i * cols + j]);
        for (int64_t j = 0; j < cols; ++j) {
          double* q = &p[i * cols + j];
          *q = exp(x[i * cols + j]) / sum;
          wrong += !(fabs(got[i * cols + j] - *q) <= *q * (work + unit) + tiny);
        }
        const double want = log(sum) - x[i * cols + labels[i]];
        wrong += !(fabs(loss[i] - want) <= work + 0x1p-24 * fabs(want));
      }
      EXPECT(wrong == 0);
      /* The gradient: alone, and in place. */
      EXPECT(mpcore_softmax_xent(NULL, kRows, cols, in, labels, scale, NULL, out, kDtypes[d]) ==
             MPCORE_OK);
      EXPECT(mpcore_softmax_xent(NULL, kRows, cols, in, labels, scale, NULL, in, kDtypes[d]) ==
             MPCORE_OK);
      EXPECT(memcmp(in, out, (size_t)(n * mpcore_dtype_size(kDtypes[d]))) == 0);
      get(got, out, kDtypes[d], n);
      for (int64_t k = 0; k < n; ++k) {
        const int64_t i = k / cols;
        const double want = scale[i] * (p[k] - (k % cols == labels[i]));
        const double bound = unit * fabs(want) + fabs((double)scale[i]) * (work * p[k] + 0x1p-23);
        wrong += !(fabs(got[k] - want) <= bound + tiny);
      }
      EXPECT(wrong == 0);
      /* Backward of softmax, from a y that is what softmax gave. */
      put(out, kDtypes[d], p, n);
      get(p, out, kDtypes[d], n);
      EXPECT(mpcore_softmax_backward(NULL, kRows, cols, out, dy, dy, kDtypes[d]) == MPCORE_OK);
      get(got, dy, kDtypes[d], n);
      for (int64_t k = 0; k < n; ++k) {
        const int64_t row = k / cols * cols;
        double dot = 0;
        for (int64_t j = 0; j < cols; ++j) dot += p[row + j] * g[row + j];
        const double want = p[k] * (g[k] - dot);
        wrong += !(fabs(got[k] - want) <= unit * fabs(want) + 2 * work * p[k] + tiny);
      }
      EXPECT(wrong == 0);
      free(x), free(p), free(got), free(g), free(in), free(out), free(dy);
    }
  }
}

/* log_softmax and the cross-entropy of distributions, against double. */
static void test_log_softmax_and_smoothed_xent_are_accurate(void) {
  enum { kRows = 70, kCols = 49, kN = kRows * kCols };
  static double x[kN], g[kN], got[kN];
  static float targets[kN], scale[kRows], loss[kRows], in[kN], out[kN], dy[kN];
  int64_t labels[kRows];
  const float smoothing = 0.25f;
  for (int d = 0; d < 3; ++d) {
    const double unit = epsilon_of(kDtypes[d]) / 2, work = 0x1p-23 * 12;
    int wrong = 0;
    for (int i = 0; i < kN; ++i) x[i] = 8 * random_unit(), g[i] = random_unit();
    put(in, kDtypes[d], x, kN), get(x, in, kDtypes[d], kN);
    put(dy, kDtypes[d], g, kN), get(g, dy, kDtypes[d], kN);
    for (int i = 0; i < kN; ++i) targets[i] = (float)fabs(random_unit());
    for (int i = 0; i < kRows; ++i) labels[i] = i % kCols, scale[i] = (float)random_unit();
    EXPECT(mpcore_log_softmax(NULL, kRows, kCols, in, out, kDtypes[d]) == MPCORE_OK);
    get(got, out, kDtypes[d], kN);
    EXPECT(mpcore_log_softmax_backward(NULL, kRows, kCols, out, dy, dy, kDtypes[d]) == MPCORE_OK);
    for (int kind = 0; kind < 2; ++kind) {
      EXPECT(mpcore_softmax_xent_smoothed(NULL, kRows, kCols, in, kind ? NULL : labels,
                                          kind ? targets : NULL, smoothing, scale, loss, out,
                                          kDtypes[d]) == MPCORE_OK);
      static double dx[kN];
      get(dx, out, kDtypes[d], kN);
      for (int i = 0; i < kRows; ++i) {
        double sum = 0, mass = 0, want = 0;
        for (int j = 0; j < kCols; ++j) sum += exp(x[i * kCols + j]);
        for (int j = 0; j < kCols; ++j) {
          const int k = i * kCols + j;
          const double log_p = x[k] - log(sum), t = kind ? targets[k] : j == labels[i];
          const double smooth = t * (1 - smoothing) + smoothing / kCols;
          if (kind == 0) wrong += !(fabs(got[k] - log_p) <= unit * fabs(log_p) + 4 * work);
          mass += smooth, want -= smooth * log_p;
        }
        wrong += !(fabs(loss[i] - want) <= work * (8 * mass + want));
        for (int j = 0; j < kCols; ++j) {
          const int k = i * kCols + j;
          const double t = kind ? targets[k] : j == labels[i], p = exp(x[k]) / sum;
          const double slope = p * mass - (t * (1 - smoothing) + smoothing / kCols);
          const double bound = work * (p * mass + 1) + unit * fabs(slope) + 0x1p-24;
          wrong += !(fabs(dx[k] - scale[i] * slope) <= fabs(scale[i]) * bound + 0x1p-24);
        }
      }
    }
    double back[kCols];
    get(x, dy, kDtypes[d], kN);
    for (int i = 0; i < kRows; ++i) {
      double sum = 0;
      for (int j = 0; j < kCols; ++j) sum += g[i * kCols + j];
      for (int j = 0; j < kCols; ++j) {
        const int k = i * kCols + j;
        back[j] = g[k] - exp(got[k]) * sum;
        wrong += !(fabs(x[k] - back[j]) <= unit * fabs(back[j]) + 64 * work);
      }
    }
    EXPECT(wrong == 0);
  }
}

static void test_softmax_of_special_rows(void) {
  const float inf = INFINITY;
  const float x[5][3] = {
      {3e38f, 3e38f, -3e38f}, {0, -inf, 0}, {-inf, -inf, -inf}, {1, inf, 2}, {1, NAN, 2}};
  const int64_t labels[5] = {0, 1, 0, 1, 0};
  const float scale[5] = {1, 1, 1, 1, 1};
  float y[5][3], dx[5][3], loss[5];
  EXPECT(mpcore_softmax(NULL, 5, 3, x, y, 0) == MPCORE_OK);
  EXPECT(mpcore_softmax_xent(NULL, 5, 3, x, labels, scale, loss, dx, 0) == MPCORE_OK);
  EXPECT(y[0][0] == 0.5f && y[0][2] == 0 && y[1][0] == 0.5f && y[1][1] == 0);
  EXPECT(loss[0] == (float)log(2) && loss[1] == inf && dx[1][1] == -1 && dx[1][0] == 0.5f);
  for (int i = 2; i < 5; ++i) {
    EXPECT(isnan(loss[i]));
    for (int j = 0; j < 3; ++j) EXPECT(isnan(y[i][j]) && isnan(dx[i][j]));
  }
}

static void run_everything(mpcore_context* ctx, unsigned char* out) {
  static const int64_t shapes[][2] = {{1, 1}, {130, 49}, {40, 1000}, {3000, 10}, {3, 33000}};
  random_state = 11;
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < 5; ++s) {
      const int64_t rows = shapes[s][0], cols = shapes[s][1], n = rows * cols;
      const size_t bytes = (size_t)(n * mpcore_dtype_size(kDtypes[d]));
      double* v = malloc((size_t)n * 8);
      void *x = malloc(bytes), *g = malloc(bytes);
      int64_t* labels = malloc((size_t)rows * 8);
      float* scale = malloc((size_t)rows * 4);
      for (int64_t i = 0; i < n; ++i) v[i] = 4 * random_unit();
      put(x, kDtypes[d], v, n);
      for (int64_t i = 0; i < n; ++i) v[i] = random_unit();
      put(g, kDtypes[d], v, n);
      for (int64_t i = 0; i < rows; ++i) labels[i] = i % cols, scale[i] = (float)random_unit();
      for (int f = 0; f < 4; ++f) {
        EXPECT(mpcore_activation_forward(ctx, f, n, x, out, kDtypes[d]) == MPCORE_OK);
        EXPECT(mpcore_dense_backward(ctx, f, rows, cols, out, g, out + bytes,
                                     (float*)(out + 2 * bytes + (-bytes & 3)),
                                     kDtypes[d]) == MPCORE_OK);
        out += 2 * bytes + (-bytes & 3) + 4 * (size_t)cols;
      }
      EXPECT(mpcore_softmax(ctx, rows, cols, x, out, kDtypes[d]) == MPCORE_OK);
      EXPECT(mpcore_softmax_backward(ctx, rows, cols, out, g, out + bytes, kDtypes[d]) ==
             MPCORE_OK);
      out += 2 * bytes + (-bytes & 3);
      EXPECT(mpcore_softmax_xent(ctx, rows, cols, x, labels, scale, (float*)out, out + 4 * rows,
                                 kDtypes[d]) == MPCORE_OK);
      out += 4 * (size_t)rows + bytes + (-bytes & 3);
      EXPECT(mpcore_log_softmax(ctx, rows, cols, x, out, kDtypes[d]) == MPCORE_OK);
      EXPECT(mpcore_log_softmax_backward(ctx, rows, cols, out, g, out + bytes, kDtypes[d]) ==
             MPCORE_OK);
      out += 2 * bytes + (-bytes & 3);
      EXPECT(mpcore_softmax_xent_smoothed(ctx, rows, cols, x, labels, NULL, 0.1f, scale,
                                          (float*)out, out + 4 * rows, kDtypes[d]) == MPCORE_OK);
      out += 4 * (size_t)rows + bytes + (-bytes & 3);
      free(v), free(x), free(g), free(labels), free(scale);
    }
  }
}

static void test_errors_name_the_field_and_write_nothing(void) {
  const mpcore_status bad = MPCORE_INVALID_ARGUMENT;
  float x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[8] = {9, 9, 9, 9, 9, 9, 9, 9}, loss[2] = {9, 9};
  const float scale[2] = {1, 1};
  int64_t labels[2] = {0, 4};
#define REFUSED(call, status, function, field) \
  EXPECT((call) == (status) && error_names("mpcore_" function, field))
  REFUSED(mpcore_activation_forward(NULL, 9, 8, x, y, 0), bad, "activation_forward", "activation");
  REFUSED(mpcore_activation_forward(NULL, 1, -1, x, y, 0), bad, "activation_forward", "n must");
  REFUSED(mpcore_activation_forward(NULL, 1, 8, NULL, y, 0), bad, "activation_forward", "x must");
  REFUSED(mpcore_activation_forward(NULL, 1, 8, x, NULL, 0), bad, "activation_forward", "y must");
  REFUSED(mpcore_activation_forward(NULL, 1, 4, x, x + 1, 0), bad, "activation_forward", "overlap");
  REFUSED(mpcore_activation_forward(NULL, 1, 4, x, y, MPCORE_DTYPE_F64), MPCORE_UNSUPPORTED,
          "activation_forward", "float64");
  REFUSED(mpcore_activation_forward(NULL, 1, 4, x, y, 55), bad, "activation_forward", "dtype");
  REFUSED(mpcore_dense_backward(NULL, 1, 2, 4, NULL, x, y, loss, 0), bad, "dense_backward", "y");
  REFUSED(mpcore_dense_backward(NULL, 0, 2, 4, NULL, NULL, y, NULL, 0), bad, "dense_backward",
          "dy");
  REFUSED(mpcore_dense_backward(NULL, 1, INT64_MAX / 16, 64, x, x, y, NULL, 0), bad,
          "dense_backward", "rows * cols");
  REFUSED(mpcore_dense_backward(NULL, 1, 1, 4, y, x, y, NULL, 0), bad, "dense_backward", "overlap");
  REFUSED(mpcore_dense_backward(NULL, 0, 1, 4, NULL, x, NULL, x, 0), bad, "dense_backward", "db");
  REFUSED(mpcore_softmax(NULL, 2, 0, x, y, 0), bad, "softmax", "cols must be >= 1");
  REFUSED(mpcore_softmax(NULL, 2, 2, x, x + 2, 0), bad, "softmax", "overlap");
  REFUSED(mpcore_softmax_backward(NULL, 2, 2, x, y, x, 0), bad, "softmax_backward", "dx");
  REFUSED(mpcore_softmax_xent(NULL, 2, 4, x, labels, scale, loss, y, 0), bad, "softmax_xent",
          "labels[1]=4");
  labels[1] = -1;
  REFUSED(mpcore_softmax_xent(NULL, 2, 4, x, labels, scale, loss, y, 0), bad, "softmax_xent",
          "labels[1]=-1");
  labels[1] = 3;
  REFUSED(mpcore_softmax_xent(NULL, 2, 4, x, labels, NULL, loss, y, 0), bad, "softmax_xent",
          "scale");
  REFUSED(mpcore_softmax_xent(NULL, 2, 4, x, NULL, scale, loss, y, 0), bad, "softmax_xent",
          "labels");
  REFUSED(mpcore_softmax_xent(NULL, 2, 4, x, labels, scale, x, y, 0), bad, "softmax_xent", "loss");
  REFUSED(mpcore_softmax_xent_smoothed(NULL, 2, 4, x, labels, x, 0, scale, loss, y, 0), bad,
          "softmax_xent_smoothed", "labels must be NULL");
  REFUSED(mpcore_softmax_xent_smoothed(NULL, 2, 4, x, NULL, NULL, 0, scale, loss, y, 0), bad,
          "softmax_xent_smoothed", "labels");
  REFUSED(mpcore_softmax_xent_smoothed(NULL, 2, 4, x, labels, NULL, 1.5f, scale, loss, y, 0), bad,
          "softmax_xent_smoothed", "smoothing");
  REFUSED(mpcore_log_softmax(NULL, 2, 0, x, y, 0), bad, "log_softmax", "cols must be >= 1");
  REFUSED(mpcore_log_softmax_backward(NULL, 2, 2, x, y, x, 0), bad, "log_softmax_backward", "dx");
#undef REFUSED
  for (int i = 0; i < 8; ++i) EXPECT(y[i] == 9 && x[i] == (float)(i + 1));
  EXPECT(loss[0] == 9 && loss[1] == 9);
  EXPECT(mpcore_softmax(NULL, 0, 3, NULL, NULL, 0) == MPCORE_OK);
  EXPECT(mpcore_activation_forward(NULL, 3, 0, NULL, NULL, 0) == MPCORE_OK);
  EXPECT(mpcore_dense_backward(NULL, 1, 0, 2, NULL, NULL, NULL, loss, 0) == MPCORE_OK);
  EXPECT(loss[0] == 0 && loss[1] == 0);
}

int main(void) {
  test_activation_forward_is_accurate();
  test_activation_forward_of_special_values();
  test_dense_backward_sums_in_the_documented_order();
  test_dense_backward_differentiates_sigmoid_and_tanh();
  test_softmax_family_is_accurate();
  test_log_softmax_and_smoothed_xent_are_accurate();
  test_softmax_of_special_rows();
  test_errors_name_the_field_and_write_nothing();
  expect_same_everywhere(run_everything, 32 * 1000 * 1000);
  return expect_result();
}
