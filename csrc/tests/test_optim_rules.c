/* The rules of optim.h beyond SGD and Adam: each formula, in double, and the laws of all. */
#include <stddef.h>

#include "optim_problem.h"

typedef mpcore_optim_args Args;

/* Every scalar that some rule reads; each reads only those its formula names. */
static Args common_args(mpcore_optimizer optimizer) {
  Args a = {0};
  a.struct_size = sizeof(a);
  a.optimizer = optimizer;
  a.step = 3;
  a.learning_rate = 0.5;
  a.beta_1 = 0.9;
  a.beta_2 = 0.99;
  a.epsilon = 1e-3;
  a.momentum = 0.5;
  a.rho = 0.8;
  a.learning_rate_power = -0.7;
  a.l1 = 0.125;
  a.l2 = 0.25;
  a.l2_shrinkage = 0.03;
  a.beta = 0.3;
  a.momentum_product = 0.2;
  a.warmup_steps = 5;
  return a;
}

static void first_moment(const Args* a, double g, double* m) { *m += (g - *m) * (1 - a->beta_1); }
static void second_moment(const Args* a, double g, double* v) {
  *v += (g * g - *v) * (1 - a->beta_2);
}
static double corrected(double moment, double beta, const Args* a) {
  return moment / (1 - pow(beta, (double)a->step));
}

static void adamax(const Args* a, double* w, double g, double* s) {
  first_moment(a, g, &s[0]);
  s[1] = fmax(a->beta_2 * s[1], fabs(g));
  *w -= a->learning_rate * corrected(s[0], a->beta_1, a) / (s[1] + a->epsilon);
}

static void nadam(const Args* a, double* w, double g, double* s) {
  const double mu = a->beta_1 * (1 - pow(0.96, (double)a->step) / 2);
  const double next = a->beta_1 * (1 - pow(0.96, (double)a->step + 1) / 2);
  const double product = a->momentum_product;
  first_moment(a, g, &s[0]);
  second_moment(a, g, &s[1]);
  const double mean = next * s[0] / (1 - product * next) + (1 - mu) * g / (1 - product);
  *w -= a->learning_rate * mean / (sqrt(corrected(s[1], a->beta_2, a)) + a->epsilon);
}

static void rmsprop(const Args* a, double* w, double g, double* s) {
  double* mean = &s[1 + (a->momentum > 0)];
  s[0] = a->rho * s[0] + (1 - a->rho) * g * g;
  if (a->centered) *mean = a->rho * *mean + (1 - a->rho) * g;
  const double spread = s[0] - (a->centered ? *mean * *mean : 0);
  double step = a->learning_rate * g / sqrt(spread + a->epsilon);
  if (a->momentum > 0) step = s[1] = a->momentum * s[1] + step;
  *w -= step;
}

static void adagrad(const Args* a, double* w, double g, double* s) {
  s[0] += g * g;
  *w -= a->learning_rate * g / sqrt(s[0] + a->epsilon);
}

static void adadelta(const Args* a, double* w, double g, double* s) {
  s[0] = a->rho * s[0] + (1 - a->rho) * g * g;
  const double x = sqrt(s[1] + a->epsilon) * g / sqrt(s[0] + a->epsilon);
  s[1] = a->rho * s[1] + (1 - a->rho) * x * x;
  *w -= a->learning_rate * x;
}

static void ftrl(const Args* a, double* w, double g, double* s) {
  const double lr = a->learning_rate, p = -a->learning_rate_power, sum = s[0] + g * g;
  s[1] += g + 2 * a->l2_shrinkage * *w - (pow(sum, p) - pow(s[0], p)) / lr * *w;
  s[0] = sum;
  const double clipped = fmax(-a->l1, fmin(a->l1, s[1]));
  *w = (clipped - s[1]) / (pow(sum, p) / lr + 2 * a->l2 + a->beta / lr);
}

static void lion(const Args* a, double* w, double g, double* s) {
  const double mean = a->beta_1 * s[0] + (1 - a->beta_1) * g;
  *w -= a->learning_rate * ((mean > 0) - (mean < 0));
  s[0] = a->beta_2 * s[0] + (1 - a->beta_2) * g;
}

/* Leaves the direction of the step in s[2]; the norms of all give its length. */
static void lamb(const Args* a, double* w, double g, double* s) {
  (void)w;
  first_moment(a, g, &s[0]);
  second_moment(a, g, &s[1]);
  s[2] = corrected(s[0], a->beta_1, a) / (sqrt(corrected(s[1], a->beta_2, a)) + a->epsilon);
}

static void schedule_free(const Args* a, double* w, double g, double* s) {
  const double warmup = (double)a->warmup_steps, t = (double)a->step, y = s[0];
  const double rate = a->learning_rate * (t < warmup ? t / warmup : 1);
  second_moment(a, g, &s[1]);
  s[0] -= rate * g / (sqrt(corrected(s[1], a->beta_2, a)) + a->epsilon);
  const double x = (*w - (1 - a->beta_1) * y) / a->beta_1;
  *w = (1 - a->beta_1) * s[0] + a->beta_1 * ((1 - 1 / t) * x + s[0] / t);
}

typedef struct {
  mpcore_optimizer optimizer;
  void (*formula)(const Args*, double*, double, double*);
  int states;
  int squares; /* s[0] is a sum of squares */
  double momentum;
  int32_t centered;
} Rule;

static const Rule kRules[] = {
    {MPCORE_OPTIMIZER_ADAMAX, adamax, 2, 0, 0, 0},
    {MPCORE_OPTIMIZER_NADAM, nadam, 2, 0, 0, 0},
    {MPCORE_OPTIMIZER_RMSPROP, rmsprop, 1, 1, 0, 0},
    {MPCORE_OPTIMIZER_RMSPROP, rmsprop, 2, 1, 0.5, 0},
    {MPCORE_OPTIMIZER_RMSPROP, rmsprop, 2, 1, 0, 1},
    {MPCORE_OPTIMIZER_RMSPROP, rmsprop, 3, 1, 0.5, 1},
    {MPCORE_OPTIMIZER_ADAGRAD, adagrad, 1, 1, 0, 0},
    {MPCORE_OPTIMIZER_ADADELTA, adadelta, 2, 1, 0, 0},
    {MPCORE_OPTIMIZER_FTRL, ftrl, 2, 1, 0, 0},
    {MPCORE_OPTIMIZER_LION, lion, 1, 0, 0, 0},
    {MPCORE_OPTIMIZER_LAMB, lamb, 2, 0, 0, 0},
    {MPCORE_OPTIMIZER_SCHEDULE_FREE_ADAMW, schedule_free, 2, 0, 0, 0},
};
enum { kRuleCount = sizeof(kRules) / sizeof(kRules[0]), kSmall = 515 };

static Args args_of(const Rule* rule) {
  Args a = common_args(rule->optimizer);
  a.momentum = rule->momentum;
  a.centered = rule->centered;
  return a;
}

/* A sum of squares starts above the square of any mean of numbers in [-1, 1). */
static Problem problem_of(const Rule* rule, int64_t n, mpcore_dtype param, mpcore_dtype grad,
                          mpcore_dtype copy) {
  Problem p = make(n, param, grad, copy, rule->states);
  if (rule->squares) {
    double* x = malloc((size_t)(n + 1) * sizeof(*x));
    get(x, p.t.state[0], p.t.state_dtype, n);
    for (int64_t i = 0; i < n; ++i) x[i] = 1 + fabs(x[i]);
    put(p.t.state[0], p.t.state_dtype, x, n);
    free(x);
  }
  return p;
}

static void expect_near(const void* got, mpcore_dtype dtype, double* want, double unit) {
  double x[kSmall];
  get(x, got, dtype, kSmall);
  for (int i = 0; i < kSmall; ++i) EXPECT(fabs(x[i] - want[i]) <= unit * (1 + fabs(want[i])));
}

/* All numbers are of order 1, so an update is off by a few units of its arithmetic. */
static void test_rule_follows_its_formula(const Rule* rule, mpcore_dtype dtype) {
  static double w[kSmall], g[kSmall], s[kSmall][4], slot[kSmall];
  Problem p = problem_of(rule, kSmall, dtype, dtype, 0);
  const Args a = args_of(rule);
  get(w, p.t.param, dtype, kSmall);
  get(g, p.t.grad, dtype, kSmall);
  for (int k = 0; k < rule->states; ++k) {
    get(slot, p.t.state[k], dtype, kSmall);
    for (int i = 0; i < kSmall; ++i) s[i][k] = slot[i];
  }
  EXPECT(mpcore_optim_step(NULL, &a, 1, &p.t) == MPCORE_OK);
  double norm_w = 0, norm_u = 0;
  for (int i = 0; i < kSmall; ++i) {
    rule->formula(&a, &w[i], g[i], s[i]);
    norm_w += w[i] * w[i];
    norm_u += s[i][2] * s[i][2];
  }
  if (rule->formula == lamb)
    for (int i = 0; i < kSmall; ++i) w[i] -= a.learning_rate * sqrt(norm_w / norm_u) * s[i][2];
  const double unit = 8 * epsilon_of(dtype);
  expect_near(p.t.param, dtype, w, unit);
  for (int k = 0; k < rule->states; ++k) {
    for (int i = 0; i < kSmall; ++i) slot[i] = s[i][k];
    expect_near(p.t.state[k], dtype, slot, unit);
  }
  drop(&p);
}

static void run_everything(mpcore_context* ctx, unsigned char* out) {
  static const int64_t sizes[] = {8209, 17, 0, 1, 49, 1025};
  static const mpcore_dtype params[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_F64,
                                        MPCORE_DTYPE_F32, MPCORE_DTYPE_F64, MPCORE_DTYPE_BF16};
  static const mpcore_dtype grads[] = {MPCORE_DTYPE_BF16, MPCORE_DTYPE_F16, MPCORE_DTYPE_F64,
                                       MPCORE_DTYPE_F32,  MPCORE_DTYPE_F16, MPCORE_DTYPE_F32};
  enum { kTensors = sizeof(sizes) / sizeof(sizes[0]) };
  random_state = 5;
  for (int r = 0; r < kRuleCount; ++r) {
    Problem problems[kTensors];
    mpcore_optim_tensor tensors[kTensors];
    Args a = args_of(&kRules[r]);
    a.rounding = r % 2 ? MPCORE_ROUNDING_STOCHASTIC : MPCORE_ROUNDING_NEAREST;
    a.seed = 7;
    for (int i = 0; i < kTensors; ++i) {
      problems[i] = problem_of(&kRules[r], sizes[i], params[i], grads[i],
                               i % 2 ? MPCORE_DTYPE_F16 : MPCORE_DTYPE_BF16);
      problems[i].t.grad_multiplier = 0.75;
      problems[i].t.weight_decay = i % 3 * 0.01;
      problems[i].t.index = i;
      tensors[i] = problems[i].t;
    }
    EXPECT(mpcore_optim_step(ctx, &a, kTensors, tensors) == MPCORE_OK);
    for (int i = 0; i < kTensors; ++i) {
      for (int k = 0; k < 7; ++k) {
        if (problems[i].bytes[k]) memcpy(out, *slot(&tensors[i], k), problems[i].bytes[k]);
        out += problems[i].bytes[k];
      }
      drop(&problems[i]);
    }
  }
}

static void test_scalar_out_of_range_is_named_and_nothing_written(void) {
#define FIELD(optimizer, name, value)                                \
  {                                                                  \
    MPCORE_OPTIMIZER_##optimizer, #name, offsetof(Args, name), value \
  }
  static const struct {
    mpcore_optimizer optimizer;
    const char* name;
    size_t offset;
    double value;
  } bad[] = {
      FIELD(ADAMAX, beta_1, 1),
      FIELD(ADAMAX, beta_2, 1.5),
      FIELD(ADAMAX, epsilon, -1),
      FIELD(NADAM, beta_2, 1),
      FIELD(NADAM, momentum_product, 1),
      FIELD(RMSPROP, rho, 1.5),
      FIELD(RMSPROP, momentum, -0.5),
      FIELD(ADAGRAD, epsilon, NAN),
      FIELD(ADADELTA, rho, -1),
      FIELD(FTRL, learning_rate, 0),
      FIELD(FTRL, learning_rate_power, 0.5),
      FIELD(FTRL, l1, -1),
      FIELD(FTRL, l2, INFINITY),
      FIELD(FTRL, l2_shrinkage, -1),
      FIELD(FTRL, beta, NAN),
      FIELD(LION, beta_1, 1.5),
      FIELD(LION, beta_2, -0.5),
      FIELD(LAMB, beta_1, 1),
      FIELD(SCHEDULE_FREE_ADAMW, beta_1, 0),
  };
#undef FIELD
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); ++i) {
    const Rule* rule = kRules;
    while (rule->optimizer != bad[i].optimizer) ++rule;
    Problem p = problem_of(rule, 33, MPCORE_DTYPE_F32, MPCORE_DTYPE_F32, 0);
    Problem before = copy_of(&p);
    Args a = args_of(rule);
    memcpy((char*)&a + bad[i].offset, &bad[i].value, sizeof(double));
    EXPECT(mpcore_optim_step(NULL, &a, 1, &p.t) == MPCORE_INVALID_ARGUMENT);
    EXPECT(error_names("mpcore_optim_step", bad[i].name));
    EXPECT(same(&p, &before));
    drop(&before), drop(&p);
  }
}

static void test_state_that_is_missing_or_too_many_is_named(void) {
  for (int r = 0; r < kRuleCount; ++r) {
    const Args a = args_of(&kRules[r]);
    const int states = kRules[r].states;
    Problem p = problem_of(&kRules[r], 33, MPCORE_DTYPE_F32, MPCORE_DTYPE_F32, 0);
    char name[32];
    mpcore_optim_tensor t = p.t;
    t.state[states - 1] = NULL;
    snprintf(name, sizeof(name), "tensors[0].state[%d]", states - 1);
    EXPECT(mpcore_optim_step(NULL, &a, 1, &t) == MPCORE_INVALID_ARGUMENT);
    EXPECT(error_names("mpcore_optim_step", name));
    t = p.t;
    t.state[states] = t.state[0];
    snprintf(name, sizeof(name), "tensors[0].state[%d]", states);
    EXPECT(mpcore_optim_step(NULL, &a, 1, &t) == MPCORE_INVALID_ARGUMENT);
    EXPECT(error_names("mpcore_optim_step", name));
    drop(&p);
  }
}

/* Where one of the norms is 0 the step is lr u. */
static void test_lamb_of_zero_weights_steps_by_the_rate(void) {
  float w[3] = {0, 0, 0}, g[3] = {1, -1, 1}, m[3] = {0}, v[3] = {0};
  mpcore_optim_tensor t = {0};
  Args a = common_args(MPCORE_OPTIMIZER_LAMB);
  a.step = 1;
  a.epsilon = 0;
  t.size = 3, t.param = w, t.grad = g, t.grad_multiplier = 1, t.state[0] = m, t.state[1] = v;
  EXPECT(mpcore_optim_step(NULL, &a, 1, &t) == MPCORE_OK);
  for (int i = 0; i < 3; ++i) EXPECT(fabs(w[i] + 0.5 * g[i]) <= 1e-6);
}

int main(void) {
  for (int r = 0; r < kRuleCount; ++r) {
    test_rule_follows_its_formula(&kRules[r], MPCORE_DTYPE_F64);
    test_rule_follows_its_formula(&kRules[r], MPCORE_DTYPE_F32);
  }
  test_scalar_out_of_range_is_named_and_nothing_written();
  test_state_that_is_missing_or_too_many_is_named();
  test_lamb_of_zero_weights_steps_by_the_rate();
  expect_same_everywhere(run_everything, kRuleCount * 9400 * 40);
  return expect_result();
}
