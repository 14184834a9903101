#include "problems.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { F32 = MPCORE_DTYPE_F32, F16 = MPCORE_DTYPE_F16, BF16 = MPCORE_DTYPE_BF16 };

static const struct {
  const char *suite, *unit;
  Op op;
  mpcore_dtype from, to;
  int64_t m, n, k;
} kProblems[] = {
    {"cast", "GB/s", OP_CAST, F32, BF16, 1, 1 << 17, 1},
    {"cast", "GB/s", OP_CAST, F32, BF16, 1, 1 << 24, 1},
    {"cast", "GB/s", OP_CAST, BF16, F32, 1, 1 << 17, 1},
    {"cast", "GB/s", OP_CAST, BF16, F32, 1, 1 << 24, 1},
    {"cast", "GB/s", OP_CAST, F32, F16, 1, 1 << 17, 1},
    {"cast", "GB/s", OP_CAST, F32, F16, 1, 1 << 24, 1},
    {"cast", "GB/s", OP_CAST, F16, F32, 1, 1 << 17, 1},
    {"cast", "GB/s", OP_CAST, F16, F32, 1, 1 << 24, 1},
    {"grad", "GB/s", OP_ALL_FINITE, F32, F32, 1, 1 << 24, 1},
    {"grad", "GB/s", OP_UNSCALE, F32, F32, 1, 1 << 24, 1},
    {"grad", "GB/s", OP_NORMS, F32, F32, 1, 1 << 24, 1},
    {"gemm", "GFLOP/s", OP_GEMM, BF16, BF16, 64, 64, 64},
    {"gemm", "GFLOP/s", OP_GEMM, BF16, BF16, 512, 512, 512},
    {"gemm", "GFLOP/s", OP_GEMM, F16, F16, 64, 64, 64},
    {"gemm", "GFLOP/s", OP_GEMM, F16, F16, 512, 512, 512},
    {"gemm", "GFLOP/s", OP_GEMM, F32, F32, 64, 64, 64},
    {"gemm", "GFLOP/s", OP_GEMM, F32, F32, 512, 512, 512},
    {"optim", "GB/s", OP_ADAMW, F32, F32, 1, 1 << 22, 1},
    {"nn", "GB/s", OP_RELU, BF16, BF16, 4096, 1024, 1},
    {"nn", "GB/s", OP_SOFTMAX, F32, F32, 4096, 1024, 1},
};

int problem_count(void) { return (int)(sizeof kProblems / sizeof *kProblems); }

static const char* short_name(mpcore_dtype dtype) {
  return dtype == MPCORE_DTYPE_F16 ? "f16" : dtype == MPCORE_DTYPE_BF16 ? "bf16" : "f32";
}

static void add_limit(Problem* p, int is_stream, int32_t probe, int64_t bytes, double amount) {
  p->limit[p->limits++] = (Limit){is_stream, probe, bytes, amount};
}

/* 128K, 16M: as `mpcore bench` writes sizes. */
static void size_name(int64_t n, char out[24]) {
  const int shift = n % (1 << 20) == 0 ? 20 : n % (1 << 10) == 0 ? 10 : 0;
  const char* const suffix = shift == 20 ? "M" : shift == 10 ? "K" : "";
  snprintf(out, 24, "%" PRId64 "%s", n >> shift, suffix);
}

static void name_elementwise(Problem* p) {
  static const char* const kNames[] = {"", "all_finite", "unscale", "norms",
                                       "", "adamw",      "relu",    "softmax"};
  const char* op = kNames[p->op];
  const char* from = short_name(p->from);
  char m[24], n[24], shape[64];
  size_name(p->m, m);
  size_name(p->n, n);
  if (p->op == OP_CAST) {
    snprintf(p->text, sizeof p->text, "cast:%s:%s:%s", from, short_name(p->to), n);
    snprintf(p->fields, sizeof p->fields, "\"from\": \"%s\", \"to\": \"%s\", \"n\": \"%s\"", from,
             short_name(p->to), n);
    return;
  }
  snprintf(shape, sizeof shape, "%sx%s", m, n);
  if (p->op == OP_ADAMW) {
    snprintf(p->text, sizeof p->text, "optim:adamw:none:%s", shape);
    snprintf(p->fields, sizeof p->fields,
             "\"op\": \"adamw\", \"copy\": \"none\", \"shape\": \"%s\"", shape);
    return;
  }
  snprintf(p->text, sizeof p->text, "%s:%s:%s:%s", p->suite, op, from, shape);
  snprintf(p->fields, sizeof p->fields, "\"op\": \"%s\", \"dtype\": \"%s\", \"shape\": \"%s\"", op,
           from, shape);
}

static void need_product(Problem* p) {
  char shape[64];
  const int64_t moved = (p->m * p->k + p->k * p->n) * mpcore_dtype_size(p->from) +
                        p->m * p->n * mpcore_dtype_size(p->to);
  p->operations = p->amount = 2.0 * (double)p->m * (double)p->n * (double)p->k;
  p->bytes = (double)moved;
  snprintf(shape, sizeof shape, "%" PRId64 "x%" PRId64 "x%" PRId64, p->m, p->n, p->k);
  snprintf(p->text, sizeof p->text, "gemm:%s:%s:%s", shape, short_name(p->from), short_name(p->to));
  snprintf(p->fields, sizeof p->fields, "\"shape\": \"%s\", \"dtype\": \"%s\", \"out\": \"%s\"",
           shape, short_name(p->from), short_name(p->to));
  add_limit(p, 0, MPCORE_PEAK_FMA_F32, 0, p->amount);
  if (p->from == MPCORE_DTYPE_BF16) {
    add_limit(p, 0, MPCORE_PEAK_DOT_BF16, 0, p->amount);
    add_limit(p, 0, MPCORE_PEAK_AMX_BF16, 0, p->amount);
  }
  if (p->from == MPCORE_DTYPE_F16) /* each number is two bf16 numbers, exactly */
    add_limit(p, 0, MPCORE_PEAK_AMX_BF16, 0, 4 * p->amount);
}

static void need_stream(Problem* p) {
  const int64_t n = p->m * p->n, size = mpcore_dtype_size(p->from);
  name_elementwise(p);
  switch (p->op) {
    case OP_ALL_FINITE:
    case OP_NORMS:
      p->bytes = (double)(n * size);
      add_limit(p, 1, MPCORE_STREAM_READ, n * size, p->bytes);
      break;
    case OP_UNSCALE:
      p->bytes = (double)(2 * n * size);
      add_limit(p, 1, MPCORE_STREAM_NEGATE, n * size, p->bytes);
      break;
    case OP_ADAMW:
      p->bytes = (double)(7 * n * size);
      add_limit(p, 1, MPCORE_STREAM_UPDATE, 4 * n * size, p->bytes);
      break;
    default:
      p->bytes = (double)(n * (size + mpcore_dtype_size(p->to)));
      add_limit(p, 1, MPCORE_STREAM_COPY, (int64_t)p->bytes, p->bytes);
      add_limit(p, 1, MPCORE_STREAM_COPY_NONTEMPORAL, (int64_t)p->bytes, p->bytes);
      if (size > mpcore_dtype_size(p->to)) /* it reads more than it writes, too */
        add_limit(p, 1, MPCORE_STREAM_TRIAD, (int64_t)p->bytes, p->bytes);
  }
  p->amount = p->bytes;
}

Problem problem_at(int index) {
  Problem p;
  memset(&p, 0, sizeof p);
  p.suite = kProblems[index].suite;
  p.unit = kProblems[index].unit;
  p.op = kProblems[index].op;
  p.from = kProblems[index].from;
  p.to = kProblems[index].to;
  p.m = kProblems[index].m;
  p.n = kProblems[index].n;
  p.k = kProblems[index].k;
  if (p.op == OP_GEMM)
    need_product(&p);
  else
    need_stream(&p);
  return p;
}

/* Ordinary numbers, the same in every run. */
static mpcore_status fill(void* out, mpcore_dtype dtype, int64_t n) {
  enum { kBlock = 4096 };
  static float block[kBlock];
  uint64_t state = 1;
  for (int i = 0; i < kBlock; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    block[i] = (float)(int64_t)state * 0x1p-62f;
  }
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t count = n - i < kBlock ? n - i : kBlock;
    char* to = (char*)out + i * mpcore_dtype_size(dtype);
    const mpcore_status status = mpcore_cast(NULL, count, block, MPCORE_DTYPE_F32, to, dtype);
    if (status != MPCORE_OK) return status;
  }
  return MPCORE_OK;
}

static mpcore_status add_array(Work* work, int at, mpcore_dtype dtype, int64_t n) {
  work->size[at] = n * mpcore_dtype_size(dtype);
  const mpcore_status status = mpcore_buffer_allocate(work->size[at], &work->array[at]);
  return status != MPCORE_OK ? status : fill(work->array[at], dtype, n);
}

mpcore_status work_start(Work* work, const Problem* p) {
  const int64_t n = p->m * p->n;
  mpcore_status status = MPCORE_OK;
  memset(work, 0, sizeof *work);
  work->problem = p;
  work->multiplier = 2;
  if (p->op == OP_GEMM) {
    status = add_array(work, 0, p->from, p->m * p->k);
    if (status == MPCORE_OK) status = add_array(work, 1, p->from, p->k * p->n);
    if (status == MPCORE_OK) status = add_array(work, 2, p->to, n);
    return status;
  }
  status = add_array(work, 0, p->from, n);
  if (status == MPCORE_OK) status = add_array(work, 1, p->to, n);
  if (p->op != OP_ADAMW) return status;
  for (int i = 2; i < 4 && status == MPCORE_OK; ++i) status = add_array(work, i, p->from, n);
  /* The second moment is a mean of squares. */
  for (int64_t i = 0; i < n && status == MPCORE_OK; ++i)
    ((float*)work->array[3])[i] *= ((float*)work->array[3])[i];
  return status;
}

void work_end(Work* work) {
  for (int i = 0; i < kMostArrays; ++i) mpcore_buffer_free(work->array[i], work->size[i]);
  memset(work, 0, sizeof *work);
}

static mpcore_status run_product(Work* work, mpcore_context* ctx) {
  const Problem* p = work->problem;
  mpcore_gemm_args args;
  memset(&args, 0, sizeof args);
  args.struct_size = sizeof args;
  args.batch = 1;
  args.alpha = 1;
  args.m = p->m;
  args.n = p->n;
  args.k = p->k;
  args.a.data = work->array[0];
  args.a.row_stride = p->k;
  args.b.data = work->array[1];
  args.b.row_stride = args.d.row_stride = p->n;
  args.d.data = work->array[2];
  args.a.col_stride = args.b.col_stride = args.d.col_stride = 1;
  args.a.dtype = args.b.dtype = p->from;
  args.d.dtype = p->to;
  return mpcore_gemm(ctx, &args);
}

static mpcore_status run_adamw(Work* work, mpcore_context* ctx) {
  mpcore_optim_tensor tensor;
  mpcore_optim_args args;
  memset(&tensor, 0, sizeof tensor);
  memset(&args, 0, sizeof args);
  tensor.size = work->problem->n;
  tensor.param = work->array[0];
  tensor.grad = work->array[1];
  tensor.state[0] = work->array[2];
  tensor.state[1] = work->array[3];
  tensor.grad_multiplier = 1;
  tensor.weight_decay = 0.01;
  args.struct_size = sizeof args;
  args.optimizer = MPCORE_OPTIMIZER_ADAM;
  args.learning_rate = 1e-3;
  args.beta_1 = 0.9;
  args.beta_2 = 0.999;
  args.epsilon = 1e-8;
  args.step = 1;
  return mpcore_optim_step(ctx, &args, 1, &tensor);
}

mpcore_status work_run(Work* work, mpcore_context* ctx) {
  const Problem* p = work->problem;
  const int64_t n = p->m * p->n;
  const mpcore_tensor_ref tensor = {work->array[0], n, p->from, 0};
  switch (p->op) {
    case OP_CAST:
      return mpcore_cast(ctx, n, work->array[0], p->from, work->array[1], p->to);
    case OP_ALL_FINITE:
      return mpcore_all_finite(ctx, 1, &tensor, work->array[1]);
    case OP_UNSCALE:
      /* 0.5 and 2 in turn: the numbers stay what they are. */
      work->multiplier = 1 / work->multiplier;
      return mpcore_unscale(ctx, 1, &tensor, NULL, work->multiplier, work->array[1]);
    case OP_NORMS:
      return mpcore_norms(ctx, 1, &tensor, NULL, work->array[1]);
    case OP_GEMM:
      return run_product(work, ctx);
    case OP_ADAMW:
      return run_adamw(work, ctx);
    case OP_RELU:
      return mpcore_activation_forward(ctx, MPCORE_ACTIVATION_RELU, n, work->array[0],
                                       work->array[1], p->from);
    default:
      return mpcore_softmax(ctx, p->m, p->n, work->array[0], work->array[1], p->from);
  }
}

static double element(const void* array, mpcore_dtype dtype, int64_t index) {
  double x = NAN;
  const char* at = (const char*)array + index * mpcore_dtype_size(dtype);
  return mpcore_cast(NULL, 1, at, dtype, &x, MPCORE_DTYPE_F64) == MPCORE_OK ? x : NAN;
}

/* Some elements against sums in double: float32 sums in any order, then one rounding. */
static int product_is_right(const Work* work) {
  const Problem* p = work->problem;
  const double unit = p->to == MPCORE_DTYPE_BF16  ? 0x1p-8
                      : p->to == MPCORE_DTYPE_F16 ? 0x1p-11
                                                  : 0x1p-24;
  for (int64_t i = 0; i < 64; ++i) {
    const int64_t row = i * 7 % p->m, col = i * 13 % p->n;
    double sum = 0, size = 0;
    for (int64_t k = 0; k < p->k; ++k) {
      const double x = element(work->array[0], p->from, row * p->k + k) *
                       element(work->array[1], p->from, k * p->n + col);
      sum += x;
      size += fabs(x);
    }
    const double bound = (double)(p->k + 2) * 0x1p-24 * size * (1 + unit) + unit * fabs(sum);
    if (!(fabs(element(work->array[2], p->to, row * p->n + col) - sum) <= bound)) return 0;
  }
  return 1;
}

static int same_as_lowest_level(const Problem* problem, const Work* work) {
  mpcore_context_options options;
  mpcore_context* lowest = NULL;
  Work other;
  int same = 0;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.num_threads = 1;
  options.isa = "scalar";
  if (mpcore_context_create(&options, &lowest) != MPCORE_OK) return 0;
  if (work_start(&other, problem) == MPCORE_OK && work_run(&other, lowest) == MPCORE_OK) {
    same = 1;
    for (int i = 0; i < kMostArrays; ++i)
      same = same && memcmp(work->array[i], other.array[i], (size_t)work->size[i]) == 0;
  }
  work_end(&other);
  mpcore_context_destroy(lowest);
  return same;
}

int work_is_right(const Problem* problem, mpcore_context* ctx) {
  Work work;
  int right = 0;
  if (work_start(&work, problem) == MPCORE_OK && work_run(&work, ctx) == MPCORE_OK)
    right = problem->op == OP_GEMM ? product_is_right(&work) : same_as_lowest_level(problem, &work);
  work_end(&work);
  return right;
}
