/* Convolution and pooling of nn.h through the shared library. */
#include "levels.h"

static const mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16};

typedef struct {
  mpcore_window2d w;
  int64_t filters, groups;
} Case;

static Case make_case(mpcore_dtype dtype, int which) {
  /* batch, height, width, channels, out_height, out_width, window, stride, dilation, pad */
  static const int64_t sizes[][16] = {
      {2, 5, 6, 3, 3, 4, 3, 3, 1, 1, 1, 1, 0, 0, 4, 1},
      {2, 7, 6, 4, 4, 3, 3, 2, 2, 2, 1, 1, 1, 0, 6, 2},
      {1, 9, 8, 6, 5, 4, 3, 3, 1, 1, 2, 3, 1, 2, 6, 3},
      {3, 4, 4, 5, 4, 4, 1, 1, 1, 1, 1, 1, 0, 0, 7, 1},
      {1, 3, 3, 2, 3, 3, 5, 7, 1, 1, 1, 1, 2, 3, 3, 1},
      {1, 90, 60, 16, 30, 60, 5, 3, 3, 1, 1, 1, 1, 1, 4, 1},
  };
  const int64_t* s = sizes[which];
  const Case c = {{sizeof(mpcore_window2d), dtype, s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7],
                   s[8], s[9], s[10], s[11], s[12], s[13]},
                  s[14],
                  s[15]};
  return c;
}
enum { kCases = 6 };

static int64_t input_size(const mpcore_window2d* w) {
  return w->batch * w->height * w->width * w->channels;
}
static int64_t pixels(const mpcore_window2d* w) { return w->batch * w->out_height * w->out_width; }

/* n random elements of a dtype at `out`, and what they are. */
static void fill(double* x, void* out, mpcore_dtype dtype, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = random_unit();
  put(out, dtype, x, n);
  get(x, out, dtype, n);
}

/* Calls for every term of a convolution: *y += x * k and the like, and the magnitudes. */
typedef struct {
  double *x, *k, *y, *dx, *dk, *y_size, *dx_size, *dk_size;
} Arrays;
static void convolve(const Case* c, Arrays a, const double* dz) {
  const mpcore_window2d* w = &c->w;
  const int64_t depth = w->channels / c->groups, own = c->filters / c->groups;
  for (int64_t at = 0; at < pixels(w); ++at) {
    const int64_t j = at % w->out_width, i = at / w->out_width % w->out_height;
    const int64_t image = at / w->out_width / w->out_height;
    for (int64_t p = 0; p < w->window_height; ++p) {
      for (int64_t q = 0; q < w->window_width; ++q) {
        const int64_t row = i * w->stride_height - w->pad_top + p * w->dilation_height;
        const int64_t col = j * w->stride_width - w->pad_left + q * w->dilation_width;
        if (row < 0 || row >= w->height || col < 0 || col >= w->width) continue;
        for (int64_t f = 0; f < c->filters; ++f) {
          for (int64_t d = 0; d < depth; ++d) {
            const int64_t xi =
                ((image * w->height + row) * w->width + col) * w->channels + f / own * depth + d;
            const int64_t ki = ((p * w->window_width + q) * depth + d) * c->filters + f;
            const int64_t yi = at * c->filters + f;
            a.y[yi] += a.x[xi] * a.k[ki], a.y_size[yi] += fabs(a.x[xi] * a.k[ki]);
            a.dx[xi] += dz[yi] * a.k[ki], a.dx_size[xi] += fabs(dz[yi] * a.k[ki]);
            a.dk[ki] += dz[yi] * a.x[xi], a.dk_size[ki] += fabs(dz[yi] * a.x[xi]);
          }
        }
      }
    }
  }
}

static int misses(const double* got, const double* want, const double* size, int64_t n,
                  double roundings, mpcore_dtype dtype) {
  int wrong = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double error = roundings * 0x1p-24 * size[i] + 0x1p-120;
    const double tiny = dtype == MPCORE_DTYPE_F16 ? 0x1p-24 : 0;
    wrong +=
        !(fabs(got[i] - want[i]) <= error + epsilon_of(dtype) / 2 * (fabs(want[i]) + error) + tiny);
  }
  return wrong;
}

static double* zeros(int64_t n) { return calloc((size_t)n + 1, 8); }

static void test_conv2d_and_its_gradients_are_accurate(void) {
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < kCases; ++s) {
      const Case c = make_case(kDtypes[d], s);
      const int64_t nx = input_size(&c.w), ny = pixels(&c.w) * c.filters;
      const int64_t k = c.w.window_height * c.w.window_width * c.w.channels / c.groups;
      const int64_t nk = k * c.filters;
      Arrays a = {zeros(nx), zeros(nk), zeros(ny), zeros(nx),
                  zeros(nk), zeros(ny), zeros(nx), zeros(nk)};
      double *dz = zeros(ny), *got = zeros(nx + ny + nk);
      void *x = malloc((size_t)nx * 4), *kernel = malloc((size_t)nk * 4);
      void *g = malloc((size_t)ny * 4), *out = malloc((size_t)(nx + ny + nk) * 4);
      float* dk = malloc((size_t)nk * 4);
      fill(a.x, x, kDtypes[d], nx), fill(a.k, kernel, kDtypes[d], nk), fill(dz, g, kDtypes[d], ny);
      convolve(&c, a, dz);
      EXPECT(mpcore_conv2d(NULL, &c.w, c.filters, c.groups, 0, x, kernel, NULL, out, NULL) ==
             MPCORE_OK);
      get(got, out, kDtypes[d], ny);
      EXPECT(misses(got, a.y, a.y_size, ny, (double)k + 8, kDtypes[d]) == 0);
      EXPECT(mpcore_conv2d_backward_input(NULL, &c.w, c.filters, c.groups, g, kernel, out) ==
             MPCORE_OK);
      get(got, out, kDtypes[d], nx);
      EXPECT(misses(got, a.dx, a.dx_size, nx, (double)k * (double)c.filters + 8, kDtypes[d]) == 0);
      EXPECT(mpcore_conv2d_backward_kernel(NULL, &c.w, c.filters, c.groups, x, g, dk) == MPCORE_OK);
      get(got, dk, MPCORE_DTYPE_F32, nk);
      EXPECT(misses(got, a.dk, a.dk_size, nk, (double)pixels(&c.w) + 8, MPCORE_DTYPE_F32) == 0);
      free(a.x), free(a.k), free(a.y), free(a.dx), free(a.dk), free(a.y_size), free(a.dx_size);
      free(a.dk_size), free(dz), free(got), free(x), free(kernel), free(g), free(out), free(dk);
    }
  }
}

static void test_conv2d_applies_bias_and_activation_once(void) {
  const mpcore_window2d w = {sizeof(w), 0, 1, 1, 3, 1, 1, 2, 1, 2, 1, 1, 1, 1, 0, 0};
  const float x[3] = {1, -2, 3}, kernel[4] = {1, 2, 10, 20}, bias[2] = {0.5f, -30};
  float y[4], z[4];
  EXPECT(mpcore_conv2d(NULL, &w, 2, 1, MPCORE_ACTIVATION_RELU, x, kernel, bias, y, z) == MPCORE_OK);
  EXPECT(z[0] == -18.5f && z[1] == -68 && z[2] == 28.5f && z[3] == 26);
  EXPECT(y[0] == 0 && y[1] == 0 && y[2] == 28.5f && y[3] == 26);
}

static void test_pool2d_of_windows_and_back(void) {
  /* Two windows of 2 x 2 with a column in common; the second has equal maxima. */
  const mpcore_window2d w = {sizeof(w), 0, 1, 2, 3, 1, 1, 2, 2, 2, 1, 1, 1, 1, 0, 0};
  const float x[6] = {1, 5, 4, 2, -1, 5}, dy[2] = {2, 8};
  float y[2], dx[6];
  int32_t places[2];
  EXPECT(mpcore_pool2d(NULL, &w, MPCORE_POOLING_MAX, x, y, places) == MPCORE_OK);
  EXPECT(y[0] == 5 && y[1] == 5 && places[0] == 1 && places[1] == 0);
  EXPECT(mpcore_pool2d_backward(NULL, &w, MPCORE_POOLING_MAX, places, dy, dx) == MPCORE_OK);
  EXPECT(dx[0] == 0 && dx[1] == 10 && dx[2] == 0 && dx[3] == 0 && dx[4] == 0 && dx[5] == 0);
  EXPECT(mpcore_pool2d(NULL, &w, MPCORE_POOLING_AVERAGE, x, y, NULL) == MPCORE_OK);
  EXPECT(y[0] == 1.75f && y[1] == 3.25f);
  EXPECT(mpcore_pool2d_backward(NULL, &w, MPCORE_POOLING_AVERAGE, NULL, dy, dx) == MPCORE_OK);
  EXPECT(dx[0] == 0.5f && dx[1] == 2.5f && dx[2] == 2 && dx[4] == 2.5f);
  /* What is padded does not count. */
  const mpcore_window2d same = {sizeof(same), 0, 1, 1, 3, 1, 1, 2, 1, 2, 1, 2, 1, 1, 0, 0};
  EXPECT(mpcore_pool2d(NULL, &same, MPCORE_POOLING_AVERAGE, x, y, NULL) == MPCORE_OK);
  EXPECT(y[0] == 3 && y[1] == 4);
}

static void run_everything(mpcore_context* ctx, unsigned char* out) {
  random_state = 5;
  for (int d = 0; d < 3; ++d) {
    if (kDtypes[d] == MPCORE_DTYPE_F16) continue; /* has an order of its own on amx */
    for (int s = 0; s < kCases; ++s) {
      Case c = make_case(kDtypes[d], s);
      const int64_t nx = input_size(&c.w), ny = pixels(&c.w) * c.filters;
      const int64_t nk = c.w.window_height * c.w.window_width * c.w.channels / c.groups * c.filters;
      const int64_t np = pixels(&c.w) * c.w.channels;
      double* v = zeros(nx + ny + nk + np);
      void *x = malloc((size_t)nx * 4), *kernel = malloc((size_t)nk * 4);
      void* g = malloc((size_t)(ny + np) * 4);
      int32_t* places = malloc((size_t)np * 4);
      fill(v, x, kDtypes[d], nx), fill(v, kernel, kDtypes[d], nk);
      fill(v, g, kDtypes[d], ny + np);
      EXPECT(mpcore_conv2d(ctx, &c.w, c.filters, c.groups, 1, x, kernel, NULL, out, NULL) ==
             MPCORE_OK);
      EXPECT(mpcore_conv2d_backward_input(ctx, &c.w, c.filters, c.groups, g, kernel,
                                          out + 4 * ny) == MPCORE_OK);
      EXPECT(mpcore_conv2d_backward_kernel(ctx, &c.w, c.filters, c.groups, x, g,
                                           (float*)(out + 4 * (nx + ny))) == MPCORE_OK);
      out += 4 * (nx + ny + nk);
      c.w.dilation_height = c.w.dilation_width = 1;
      for (int kind = 0; kind < 2; ++kind) {
        int32_t* own = kind == MPCORE_POOLING_MAX ? places : NULL;
        EXPECT(mpcore_pool2d(ctx, &c.w, kind, x, out, own) == MPCORE_OK);
        EXPECT(mpcore_pool2d_backward(ctx, &c.w, kind, own, g, out + 4 * np) == MPCORE_OK);
        out += 4 * (np + nx);
      }
      free(v), free(x), free(kernel), free(g), free(places);
    }
  }
}

static void test_errors_name_the_field_and_write_nothing(void) {
  const mpcore_status bad = MPCORE_INVALID_ARGUMENT;
  const mpcore_window2d good = {sizeof(good), 0, 1, 3, 3, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0};
  float x[18] = {0}, k[16] = {0}, y[16];
  int32_t places[8] = {0};
  for (int i = 0; i < 16; ++i) y[i] = 9;
#define CONV(w, filters, groups) mpcore_conv2d(NULL, w, filters, groups, 0, x, k, NULL, y, NULL)
#define REFUSED(call, function, field) \
  EXPECT((call) == bad && error_names("mpcore_" function, field))
#define WITH(field, value) (bad_window = good, bad_window.field = (value), &bad_window)
  mpcore_window2d bad_window;
  REFUSED(CONV(NULL, 2, 1), "conv2d", "window");
  REFUSED(CONV(WITH(struct_size, 8), 2, 1), "conv2d", "struct_size");
  REFUSED(CONV(WITH(stride_height, 0), 2, 1), "conv2d", "stride_height");
  REFUSED(CONV(WITH(pad_left, -1), 2, 1), "conv2d", "pad_left");
  REFUSED(CONV(WITH(window_width, INT64_MAX), 2, 1), "conv2d", "window_width");
  REFUSED(CONV(WITH(out_height, INT32_MAX), INT64_MAX / 16, 1), "conv2d", "memory");
  REFUSED(CONV(&good, -1, 1), "conv2d", "filters");
  REFUSED(CONV(&good, 2, 0), "conv2d", "groups");
  REFUSED(CONV(&good, 3, 2), "conv2d", "groups");
  REFUSED(mpcore_conv2d(NULL, &good, 2, 1, 9, x, k, NULL, y, NULL), "conv2d", "activation");
  REFUSED(mpcore_conv2d(NULL, &good, 2, 1, 0, NULL, k, NULL, y, NULL), "conv2d", "x must");
  REFUSED(mpcore_conv2d(NULL, &good, 2, 1, 0, x, k, NULL, x, NULL), "conv2d", "overlap");
  REFUSED(mpcore_conv2d(NULL, &good, 2, 1, 0, x, k, NULL, y, y), "conv2d", "pre_activation");
  REFUSED(mpcore_conv2d_backward_input(NULL, &good, 2, 1, y, k, NULL), "conv2d_backward_input",
          "dx");
  REFUSED(mpcore_conv2d_backward_kernel(NULL, &good, 2, 1, x, y, x), "conv2d_backward_kernel",
          "overlap");
  EXPECT(CONV(WITH(dtype, MPCORE_DTYPE_F64), 2, 1) == MPCORE_UNSUPPORTED);
  REFUSED(mpcore_pool2d(NULL, &good, 7, x, y, NULL), "pool2d", "pooling");
  REFUSED(mpcore_pool2d(NULL, &good, 1, x, y, places), "pool2d", "argmax");
  REFUSED(mpcore_pool2d(NULL, WITH(pad_top, 2), 0, x, y, NULL), "pool2d", "reach");
  REFUSED(mpcore_pool2d(NULL, WITH(stride_width, 3), 0, x, y, NULL), "pool2d", "width");
  REFUSED(mpcore_pool2d(NULL, WITH(dilation_width, 2), 0, x, y, NULL), "pool2d", "dilation");
  REFUSED(mpcore_pool2d_backward(NULL, &good, 0, NULL, y, x), "pool2d_backward", "argmax");
#undef WITH
#undef REFUSED
#undef CONV
  for (int i = 0; i < 16; ++i) EXPECT(y[i] == 9);
  mpcore_window2d none = good;
  none.batch = 0;
  EXPECT(mpcore_conv2d(NULL, &none, 2, 1, 0, NULL, k, NULL, NULL, NULL) == MPCORE_OK);
  EXPECT(mpcore_conv2d_backward_kernel(NULL, &none, 2, 1, NULL, NULL, y) == MPCORE_OK);
  for (int i = 0; i < 16; ++i) EXPECT(y[i] == 0);
}

int main(void) {
  test_conv2d_and_its_gradients_are_accurate();
  test_conv2d_applies_bias_and_activation_once();
  test_pool2d_of_windows_and_back();
  test_errors_name_the_field_and_write_nothing();
  expect_same_everywhere(run_everything, 24 * 1000 * 1000);
  return expect_result();
}
