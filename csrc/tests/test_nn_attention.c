/* Attention of nn.h through the shared library. */
#include "levels.h"

static const mpcore_dtype kDtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16};

enum { kBatch = 2, kHeads = 3, kDepth = 5, kValueDepth = 7 };

static void fill(double* x, void* out, mpcore_dtype dtype, int64_t n) {
  for (int64_t i = 0; i < n; ++i) x[i] = random_unit();
  put(out, dtype, x, n);
  get(x, out, dtype, n);
}

/* softmax(q k^T / 2 + bias) v of one batch element and head in double. */
typedef struct {
  const double *q, *k, *v;
  const float* bias;   /* queries x keys */
  const uint8_t* mask; /* keys */
  int64_t queries, keys;
  int causal;
} Problem;
static void attend(const Problem* a, int64_t b, int64_t h, int64_t i, double* y) {
  double p[256], sum = 0, top = -INFINITY;
  for (int64_t j = 0; j < a->keys; ++j) {
    p[j] = 0;
    for (int d = 0; d < kDepth; ++d)
      p[j] += a->q[((b * a->queries + i) * kHeads + h) * kDepth + d] *
              a->k[((b * a->keys + j) * kHeads + h) * kDepth + d] / 2;
    if (a->bias != NULL) p[j] += a->bias[i * a->keys + j];
    if ((a->mask != NULL && !a->mask[j]) || (a->causal && j > i)) p[j] = -1e300;
    top = fmax(top, p[j]);
  }
  for (int64_t j = 0; j < a->keys; ++j) sum += p[j] = exp(p[j] - top);
  for (int e = 0; e < kValueDepth; ++e) {
    y[e] = 0;
    for (int64_t j = 0; j < a->keys; ++j)
      y[e] += p[j] / sum * a->v[((b * a->keys + j) * kHeads + h) * kValueDepth + e];
  }
}

static void test_attention_is_accurate(void) {
  static const int64_t lengths[][2] = {{1, 1}, {7, 33}, {70, 20}, {130, 130}};
  for (int d = 0; d < 3; ++d) {
    for (int s = 0; s < 4; ++s) {
      for (int variant = 0; variant < 8; ++variant) {
        const int64_t nq = kBatch * lengths[s][0] * kHeads, nk = kBatch * lengths[s][1] * kHeads;
        double *q = malloc((size_t)nq * kDepth * 8), *k = malloc((size_t)nk * kDepth * 8);
        double *v = malloc((size_t)nk * kValueDepth * 8), *y = malloc((size_t)nq * kValueDepth * 8);
        void *fq = malloc((size_t)nq * kDepth * 4), *fk = malloc((size_t)nk * kDepth * 4);
        void *fv = malloc((size_t)nk * kValueDepth * 4), *fy = malloc((size_t)nq * kValueDepth * 4);
        float* bias = malloc((size_t)(lengths[s][0] * lengths[s][1]) * 4);
        uint8_t* mask = malloc((size_t)lengths[s][1]);
        fill(q, fq, kDtypes[d], nq * kDepth), fill(k, fk, kDtypes[d], nk * kDepth);
        fill(v, fv, kDtypes[d], nk * kValueDepth);
        for (int64_t i = 0; i < lengths[s][0] * lengths[s][1]; ++i) bias[i] = (float)random_unit();
        for (int64_t j = 0; j < lengths[s][1]; ++j) mask[j] = j % 3 != 1;
        const Problem p = {q,
                           k,
                           v,
                           variant & 1 ? bias : NULL,
                           variant & 2 ? mask : NULL,
                           lengths[s][0],
                           lengths[s][1],
                           variant >> 2};
        mpcore_attention_args args = {0};
        args.struct_size = sizeof(args), args.dtype = kDtypes[d];
        args.batch = kBatch, args.heads = kHeads, args.queries = p.queries, args.keys = p.keys;
        args.depth = kDepth, args.value_depth = kValueDepth;
        args.q = fq, args.k = fk, args.v = fv, args.bias = p.bias, args.mask = p.mask;
        args.bias_strides[2] = p.keys, args.scale = 0.5f, args.causal = p.causal;
        EXPECT(mpcore_attention(NULL, &args, fy) == MPCORE_OK);
        get(y, fy, kDtypes[d], nq * kValueDepth);
        int wrong = 0;
        for (int64_t i = 0; i < nq; ++i) {
          double want[kValueDepth];
          attend(&p, i / kHeads / p.queries, i % kHeads, i / kHeads % p.queries, want);
          /* Probabilities and result are rounded once each; |v| <= 1. */
          for (int e = 0; e < kValueDepth; ++e)
            wrong += !(fabs(y[i * kValueDepth + e] - want[e]) <=
                       1.1 * epsilon_of(kDtypes[d]) + 0x1p-18 + 0x1p-24 * (double)p.keys);
        }
        EXPECT(wrong == 0);
        free(q), free(k), free(v), free(y), free(fq), free(fk), free(fv), free(fy), free(bias);
        free(mask);
      }
    }
  }
}

static void test_attention_without_a_score_that_counts_shares_equally(void) {
  const float q[1] = {1}, k[3] = {1, 2, 3}, v[3] = {3, 6, 9};
  const uint8_t mask[3] = {0, 0, 0};
  float y;
  mpcore_attention_args args = {0};
  args.struct_size = sizeof(args), args.batch = args.heads = args.queries = 1, args.keys = 3;
  args.depth = args.value_depth = 1, args.q = q, args.k = k, args.v = v, args.mask = mask;
  args.scale = 1, args.causal = 1;
  EXPECT(mpcore_attention(NULL, &args, &y) == MPCORE_OK);
  EXPECT(fabsf(y - 6) < 1e-6f);
}

static void test_attention_backward_agrees_with_differences(void) {
  enum { kQueries = 70, kKeys = 9 };
  const int64_t nq = kBatch * kQueries * kHeads, nk = kBatch * kKeys * kHeads;
  float *q = malloc((size_t)nq * kDepth * 4), *k = malloc((size_t)nk * kDepth * 4);
  float *v = malloc((size_t)nk * kValueDepth * 4), *dy = malloc((size_t)nq * kValueDepth * 4);
  double* x[4];
  for (int i = 0; i < 4; ++i) x[i] = malloc((size_t)nq * kValueDepth * 8);
  fill(x[0], q, 0, nq * kDepth), fill(x[1], k, 0, nk * kDepth), fill(x[2], v, 0, nk * kValueDepth);
  fill(x[3], dy, 0, nq * kValueDepth);
  float *dq = malloc((size_t)nq * kDepth * 4), *dk = malloc((size_t)nk * kDepth * 4);
  float* dv = malloc((size_t)nk * kValueDepth * 4);
  mpcore_attention_args args = {0};
  args.struct_size = sizeof(args), args.batch = kBatch, args.heads = kHeads;
  args.queries = kQueries, args.keys = kKeys, args.depth = kDepth, args.value_depth = kValueDepth;
  args.q = q, args.k = k, args.v = v, args.scale = 0.5f, args.causal = 1;
  EXPECT(mpcore_attention_backward(NULL, &args, dy, dq, dk, dv) == MPCORE_OK);
  const Problem p = {x[0], x[1], x[2], NULL, NULL, kQueries, kKeys, 1};
  const float* gradients[3] = {dq, dk, dv};
  const int64_t sizes[3] = {nq * kDepth, nk * kDepth, nk * kValueDepth};
  int wrong = 0;
  for (int which = 0; which < 3; ++which) {
    for (int64_t at = 0; at < sizes[which]; at += 41) {
      double difference = 0;
      const double kept = x[which][at];
      for (int side = -1; side <= 1; side += 2) {
        x[which][at] = kept + side * 1e-5;
        for (int64_t i = 0; i < nq; ++i) {
          double y[kValueDepth];
          attend(&p, i / kHeads / kQueries, i % kHeads, i / kHeads % kQueries, y);
          for (int e = 0; e < kValueDepth; ++e)
            difference += side * y[e] * x[3][i * kValueDepth + e] / 2e-5;
        }
      }
      x[which][at] = kept;
      wrong += !(fabs(difference - gradients[which][at]) <= 2e-5);
    }
  }
  EXPECT(wrong == 0);
  for (int i = 0; i < 4; ++i) free(x[i]);
  free(q), free(k), free(v), free(dy), free(dq), free(dk), free(dv);
}

static void run_everything(mpcore_context* ctx, unsigned char* out) {
  random_state = 3;
  for (int d = 0; d < 3; ++d) {
    if (kDtypes[d] == MPCORE_DTYPE_F16) continue; /* has an order of its own on amx */
    enum { kQueries = 130, kKeys = 77 };
    const int64_t nq = kBatch * kQueries * kHeads * kDepth, nk = kBatch * kKeys * kHeads * kDepth;
    double* x = malloc((size_t)nq * 8);
    unsigned char* arrays = malloc((size_t)(2 * nq + 2 * nk) * 4);
    unsigned char *k = arrays + nq * 4, *v = k + nk * 4, *dy = v + nk * 4;
    uint8_t mask[kKeys];
    for (int j = 0; j < kKeys; ++j) mask[j] = j % 5 != 0;
    fill(x, arrays, kDtypes[d], nq), fill(x, k, kDtypes[d], nk), fill(x, v, kDtypes[d], nk);
    fill(x, dy, kDtypes[d], nq);
    for (int variant = 0; variant < 4; ++variant) {
      mpcore_attention_args args = {0};
      args.struct_size = sizeof(args), args.dtype = kDtypes[d], args.batch = kBatch;
      args.heads = kHeads, args.queries = kQueries, args.keys = kKeys;
      args.depth = args.value_depth = kDepth, args.q = arrays, args.k = k, args.v = v;
      args.mask = variant & 1 ? mask : NULL, args.scale = 2, args.causal = variant >> 1;
      EXPECT(mpcore_attention(ctx, &args, out) == MPCORE_OK);
      EXPECT(mpcore_attention_backward(ctx, &args, dy, out + 4 * nq, out + 8 * nq,
                                       out + 8 * nq + 4 * nk) == MPCORE_OK);
      out += 8 * (nq + nk);
    }
    free(x), free(arrays);
  }
}

static void test_errors_name_the_field_and_write_nothing(void) {
  float x[4] = {0}, y[4] = {9, 9, 9, 9};
  mpcore_attention_args args = {0};
  args.struct_size = sizeof(args), args.batch = args.heads = args.queries = args.keys = 1;
  args.depth = args.value_depth = 4, args.q = args.k = args.v = x;
#define REFUSED(change, undo, field)                                     \
  do {                                                                   \
    change;                                                              \
    EXPECT(mpcore_attention(NULL, &args, y) == MPCORE_INVALID_ARGUMENT); \
    EXPECT(error_names("mpcore_attention", field));                      \
    undo;                                                                \
  } while (0)
  REFUSED(args.struct_size = 4, args.struct_size = sizeof(args), "struct_size");
  REFUSED(args.heads = -1, args.heads = 1, "heads");
  REFUSED(args.keys = 0, args.keys = 1, "keys");
  REFUSED(args.causal = 2, args.causal = 0, "causal");
  REFUSED(args.q = NULL, args.q = x, "q must");
  REFUSED(args.batch = INT64_MAX / 8, args.batch = 1, "memory");
  REFUSED(args.mask_strides[1] = -1, args.mask_strides[1] = 0, "mask_strides");
#undef REFUSED
  args.dtype = MPCORE_DTYPE_F64;
  EXPECT(mpcore_attention(NULL, &args, y) == MPCORE_UNSUPPORTED);
  args.dtype = MPCORE_DTYPE_F32;
  EXPECT(mpcore_attention(NULL, &args, x) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_attention(NULL, NULL, y) == MPCORE_INVALID_ARGUMENT);
  EXPECT(mpcore_attention_backward(NULL, &args, y, y, y, y) == MPCORE_INVALID_ARGUMENT);
  for (int i = 0; i < 4; ++i) EXPECT(y[i] == 9);
}

int main(void) {
  test_attention_is_accurate();
  test_attention_without_a_score_that_counts_shares_equally();
  test_attention_backward_agrees_with_differences();
  test_errors_name_the_field_and_write_nothing();
  expect_same_everywhere(run_everything, 24 * 1000 * 1000);
  return expect_result();
}
