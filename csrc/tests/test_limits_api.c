/* The probes: what they count, where they write, and what they refuse. Arrays are allocated to
   the element, so that a sanitizer sees a pass that goes too far. */
#include <stdlib.h>

#include "levels.h"

static const int kArrays[] = {1, 1, 2, 2, 3, 4};
static const int64_t kPassed[] = {1, 2, 2, 2, 3, 7};

static float expected(mpcore_stream stream, int array, float a, float b, float c, float d) {
  switch (stream) {
    case MPCORE_STREAM_NEGATE:
      return array == 0 ? -a : b;
    case MPCORE_STREAM_COPY:
    case MPCORE_STREAM_COPY_NONTEMPORAL:
      return a;
    case MPCORE_STREAM_TRIAD:
      return array == 0 ? a : array == 1 ? b : a + b * 0.5f;
    case MPCORE_STREAM_UPDATE:
      return array == 0 ? d - a : array == 1 ? (b > d ? b : d) : array == 2 ? (c < d ? c : d) : d;
    default:
      return a;
  }
}

static void test_stream(mpcore_context* ctx, mpcore_stream stream, int64_t n) {
  float *now[4] = {0}, *before[4] = {0};
  int64_t bytes = -1;
  for (int i = 0; i < kArrays[stream]; ++i) {
    now[i] = malloc((size_t)n * sizeof(float) + (n == 0));
    before[i] = malloc((size_t)n * sizeof(float) + (n == 0));
    for (int64_t j = 0; j < n; ++j) now[i][j] = before[i][j] = (float)random_unit();
  }
  EXPECT(mpcore_run_stream(ctx, stream, 1, n, now, &bytes) == MPCORE_OK);
  EXPECT(bytes == n * 4 * kPassed[stream]);
  for (int i = 0; i < kArrays[stream]; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const float a = before[0][j], b = before[1] ? before[1][j] : 0;
      const float c = before[2] ? before[2][j] : 0, d = before[3] ? before[3][j] : 0;
      EXPECT(now[i][j] == expected(stream, i, a, b, c, d));
    }
  }
  for (int i = 0; i < 4; ++i) {
    free(now[i]);
    free(before[i]);
  }
}

static void test_level(const char* name) {
  mpcore_context_options options = {0};
  mpcore_context* ctx = NULL;
  int64_t one = 0, two = 0;
  options.struct_size = sizeof(options);
  options.num_threads = 2;
  options.isa = name;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_OK);
  for (mpcore_stream stream = 0; stream <= MPCORE_STREAM_UPDATE; ++stream) {
    static const int64_t kSizes[] = {0, 1, 33, 1003, 70001};
    for (int i = 0; i < 5; ++i) test_stream(ctx, stream, kSizes[i]);
  }
  EXPECT(mpcore_run_peak(ctx, MPCORE_PEAK_FMA_F32, 1, &one) == MPCORE_OK);
  EXPECT(mpcore_run_peak(ctx, MPCORE_PEAK_FMA_F32, 2, &two) == MPCORE_OK);
  EXPECT(one > 0 && two == 2 * one);
  for (mpcore_peak peak = MPCORE_PEAK_DOT_BF16; peak <= MPCORE_PEAK_AMX_BF16; ++peak) {
    const mpcore_status status = mpcore_run_peak(ctx, peak, 1, NULL);
    EXPECT(status == MPCORE_OK ||
           (status == MPCORE_UNSUPPORTED && error_names("mpcore_run_peak", name)));
  }
  mpcore_context_destroy(ctx);
}

static void test_refusals(void) {
  float x[8] = {0};
  float *same[2] = {x, x}, *one[1] = {x}, *none[1] = {NULL};
  EXPECT(mpcore_run_peak(NULL, 3, 1, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_run_peak", "peak"));
  EXPECT(mpcore_run_peak(NULL, 0, -1, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_run_peak", "iterations"));
  EXPECT(mpcore_run_stream(NULL, 6, 1, 8, one, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_run_stream", "stream"));
  EXPECT(mpcore_run_stream(NULL, 0, 1, 8, NULL, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_run_stream", "arrays"));
  EXPECT(mpcore_run_stream(NULL, 0, 1, 8, none, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_run_stream(NULL, 0, 1, -1, one, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_run_stream(NULL, MPCORE_STREAM_COPY, 1, 8, same, NULL) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_run_stream", "overlap"));
  EXPECT(mpcore_run_stream(NULL, 0, INT32_MAX, INT64_MAX / 8, none, NULL) ==
         MPCORE_INVALID_ARGUMENT);
}

static void test_descriptions(void) {
  const char *compiler = NULL, *commit = NULL, *text = NULL;
  EXPECT(mpcore_build_info(&compiler, NULL, NULL, &commit) == MPCORE_OK);
  EXPECT(compiler != NULL && commit != NULL);
  for (mpcore_column column = 0; column <= MPCORE_COLUMN_OPTIM; ++column) {
    text = NULL;
    EXPECT(mpcore_kernel_describe(NULL, column, MPCORE_DTYPE_BF16, &text) == MPCORE_OK);
    EXPECT(text != NULL && text[0] != 0);
  }
  EXPECT(mpcore_kernel_describe(NULL, 5, MPCORE_DTYPE_F32, &text) == MPCORE_INVALID_ARGUMENT);
  EXPECT(error_names("mpcore_kernel_describe", "column"));
  EXPECT(mpcore_kernel_describe(NULL, 0, MPCORE_DTYPE_I8, &text) != MPCORE_OK);
  EXPECT(mpcore_kernel_describe(NULL, 0, MPCORE_DTYPE_F32, NULL) == MPCORE_INVALID_ARGUMENT);
}

int main(void) {
  for (int32_t level = 0; level < mpcore_isa_count(); ++level) {
    const char* name;
    int32_t available;
    EXPECT(mpcore_isa_describe(level, &name, &available, NULL) == MPCORE_OK);
    if (available) test_level(name);
  }
  test_refusals();
  test_descriptions();
  return expect_result();
}
