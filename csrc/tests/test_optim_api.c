/* optim.h through the shared library. */
#include "optim_problem.h"

/* One fp32 operation with its own rounding, whatever the compiler would contract. */
static float mul(float a, float b) {
  volatile float r = a * b;
  return r;
}
static float add(float a, float b) {
  volatile float r = a + b;
  return r;
}

enum { kN = 70001 };

static mpcore_optim_args sgd_args(double momentum, int nesterov) {
  mpcore_optim_args a = {0};
  a.struct_size = sizeof(a);
  a.optimizer = MPCORE_OPTIMIZER_SGD;
  a.step = 1;
  a.learning_rate = 0.01;
  a.momentum = momentum;
  a.nesterov = nesterov;
  return a;
}

static mpcore_optim_args adam_args(int amsgrad) {
  mpcore_optim_args a = {0};
  a.struct_size = sizeof(a);
  a.optimizer = MPCORE_OPTIMIZER_ADAM;
  a.amsgrad = amsgrad;
  a.learning_rate = 0.001;
  a.beta_1 = 0.9;
  a.beta_2 = 0.999;
  a.epsilon = 1e-7;
  a.step = 3;
  return a;
}

/* The documented formulas, operation by operation in fp32: bits must agree. */
static void test_sgd_follows_the_formula_to_the_bit(void) {
  for (int rule = 0; rule < 3; ++rule) {
    Problem p = make(kN, MPCORE_DTYPE_F32, MPCORE_DTYPE_F32, MPCORE_DTYPE_BF16, rule > 0);
    p.t.grad_multiplier = 0.3;
    p.t.weight_decay = 0.02;
    Problem q = copy_of(&p);
    mpcore_optim_args a = sgd_args(rule ? 0.9 : 0, rule == 2);
    a.clipvalue = 0.25;
    EXPECT(mpcore_optim_step(NULL, &a, 1, &p.t) == MPCORE_OK);
    float *w = q.t.param, *v = q.t.state[0];
    const float rate = (float)a.learning_rate, momentum = (float)a.momentum;
    for (int64_t i = 0; i < kN; ++i) {
      float g = mul(((const float*)q.t.grad)[i], (float)0.3);
      g = g > 0.25f ? 0.25f : g < -0.25f ? -0.25f : g;
      w[i] = add(w[i], -mul(w[i], (float)(0.02 * 0.01)));
      const float step = mul(rate, g);
      if (rule > 0) v[i] = add(mul(momentum, v[i]), -step);
      if (rule == 0) w[i] = add(w[i], -step);
      if (rule == 1) w[i] = add(w[i], v[i]);
      if (rule == 2) w[i] = add(w[i], add(mul(momentum, v[i]), -step));
    }
    EXPECT(mpcore_cast(NULL, kN, w, MPCORE_DTYPE_F32, q.t.copy, MPCORE_DTYPE_BF16) == MPCORE_OK);
    EXPECT(same(&p, &q));
    drop(&p), drop(&q);
  }
}

static void test_adam_follows_the_formula_to_the_bit(void) {
  for (int amsgrad = 0; amsgrad < 2; ++amsgrad) {
    Problem p = make(kN, MPCORE_DTYPE_F32, MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, 2 + amsgrad);
    Problem q = copy_of(&p);
    const mpcore_optim_args a = adam_args(amsgrad);
    EXPECT(mpcore_optim_step(NULL, &a, 1, &p.t) == MPCORE_OK);
    float *w = q.t.param, *m = q.t.state[0], *v = q.t.state[1], *top = q.t.state[2];
    const float alpha =
        (float)(a.learning_rate * sqrt(1 - pow(a.beta_2, 3)) / (1 - pow(a.beta_1, 3)));
    const float c1 = (float)(1 - a.beta_1), c2 = (float)(1 - a.beta_2);
    for (int64_t i = 0; i < kN; ++i) {
      const float g = ((const float*)q.t.grad)[i];
      m[i] = add(m[i], mul(add(g, -m[i]), c1));
      v[i] = add(v[i], mul(add(mul(g, g), -v[i]), c2));
      if (amsgrad && v[i] > top[i]) top[i] = v[i];
      volatile float root = sqrtf(amsgrad ? top[i] : v[i]);
      volatile float step = mul(m[i], alpha) / add(root, (float)a.epsilon);
      w[i] = add(w[i], -step);
    }
    EXPECT(mpcore_cast(NULL, kN, w, MPCORE_DTYPE_F32, q.t.copy, MPCORE_DTYPE_F16) == MPCORE_OK);
    EXPECT(same(&p, &q));
    drop(&p), drop(&q);
  }
}

/* fp32 (f64) arithmetic on any parameter: within the roundings of the formula and one of the store.
 */
static void test_adam_stores_every_dtype_with_one_rounding(void) {
  static const mpcore_dtype dtypes[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16,
                                        MPCORE_DTYPE_F64};
  for (int pd = 0; pd < 4; ++pd) {
    for (int gd = 0; gd < 4; ++gd) {
      if (dtypes[gd] == MPCORE_DTYPE_F64 && dtypes[pd] != MPCORE_DTYPE_F64) continue;
      enum { kSmall = 49 };
      double w[kSmall], g[kSmall], m[kSmall], v[kSmall], got[kSmall];
      Problem p = make(kSmall, dtypes[pd], dtypes[gd], MPCORE_DTYPE_BF16, 2);
      const mpcore_dtype state = pd == 3 ? MPCORE_DTYPE_F64 : MPCORE_DTYPE_F32;
      get(w, p.t.param, dtypes[pd], kSmall);
      get(g, p.t.grad, dtypes[gd], kSmall);
      get(m, p.t.state[0], state, kSmall);
      get(v, p.t.state[1], state, kSmall);
      const mpcore_optim_args a = adam_args(0);
      EXPECT(mpcore_optim_step(NULL, &a, 1, &p.t) == MPCORE_OK);
      get(got, p.t.param, dtypes[pd], kSmall);
      const double alpha = a.learning_rate * sqrt(1 - pow(a.beta_2, 3)) / (1 - pow(a.beta_1, 3));
      const double work = epsilon_of(state), unit = epsilon_of(dtypes[pd]);
      for (int i = 0; i < kSmall; ++i) {
        m[i] += (g[i] - m[i]) * (1 - a.beta_1);
        v[i] += (g[i] * g[i] - v[i]) * (1 - a.beta_2);
        const double step = m[i] * alpha / (sqrt(v[i]) + a.epsilon), want = w[i] - step;
        /* m has an absolute error of a few ulp of max(|m|, |g|) <= 1 */
        const double bound = unit * fabs(want) / 2 +
                             8 * work * (fabs(want) + fabs(step) + alpha / (sqrt(v[i]) + 1e-7));
        EXPECT(fabs(got[i] - want) <= bound);
      }
      uint16_t cast[kSmall];
      EXPECT(mpcore_cast(NULL, kSmall, p.t.param, dtypes[pd], cast, MPCORE_DTYPE_BF16) ==
             MPCORE_OK);
      EXPECT(memcmp(cast, p.t.copy, sizeof(cast)) == 0); /* the copy is that of what was stored */
      drop(&p);
    }
  }
}

static void test_clipping_keeps_nan_and_zero_decay_keeps_infinity(void) {
  float w[4] = {1, 1, 1, INFINITY}, g[4] = {1e30f, -INFINITY, NAN, 1};
  mpcore_optim_tensor t = {0};
  mpcore_optim_args a = sgd_args(0, 0);
  t.size = 4, t.param = w, t.grad = g, t.grad_multiplier = 1;
  a.learning_rate = 0.5;
  a.clipvalue = 1;
  EXPECT(mpcore_optim_step(NULL, &a, 1, &t) == MPCORE_OK);
  EXPECT(w[0] == 0.5f && w[1] == 1.5f && isnan(w[2]) && w[3] == INFINITY);
}

static void test_subnormals_count_as_zero(void) {
  float w[2] = {1, 2}, g[2] = {1e-40f, 0}, m[2] = {0, 1e-40f}, v[2] = {0, 1e-40f};
  float top[2] = {0, 1e-40f};
  mpcore_optim_tensor t = {0};
  const mpcore_optim_args a = adam_args(1);
  t.size = 2, t.param = w, t.grad = g, t.grad_multiplier = 1;
  t.state[0] = m, t.state[1] = v, t.state[2] = top;
  EXPECT(mpcore_optim_step(NULL, &a, 1, &t) == MPCORE_OK);
  EXPECT(w[0] == 1 && w[1] == 2);
  for (int i = 0; i < 2; ++i) EXPECT(m[i] == 0 && v[i] == 0 && top[i] == 0);
  volatile float tiny = 1e-40f; /* and the caller's own arithmetic still has them */
  EXPECT(tiny / 2 > 0);
}

static void run_everything(mpcore_context* ctx, unsigned char* out) {
  static const int64_t sizes[] = {kN, 17, 0, 8192, 1, 49, 1025};
  static const mpcore_dtype params[] = {MPCORE_DTYPE_F32, MPCORE_DTYPE_F32,  MPCORE_DTYPE_F16,
                                        MPCORE_DTYPE_F64, MPCORE_DTYPE_BF16, MPCORE_DTYPE_F32,
                                        MPCORE_DTYPE_F64};
  static const mpcore_dtype grads[] = {MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16, MPCORE_DTYPE_F16,
                                       MPCORE_DTYPE_F16, MPCORE_DTYPE_BF16, MPCORE_DTYPE_F32,
                                       MPCORE_DTYPE_F64};
  random_state = 9;
  for (int rule = 0; rule < 5; ++rule) {
    static const int states[] = {0, 1, 1, 2, 3};
    Problem problems[7];
    mpcore_optim_tensor tensors[7];
    for (int i = 0; i < 7; ++i) {
      problems[i] = make(sizes[i], params[i], grads[i],
                         i % 2 ? MPCORE_DTYPE_F16 : MPCORE_DTYPE_BF16, states[rule]);
      problems[i].t.grad_multiplier = 1.0 / 3;
      problems[i].t.weight_decay = i % 3 * 0.01;
      tensors[i] = problems[i].t;
    }
    if (rule < 3) {
      const mpcore_optim_args a = sgd_args(rule ? 0.9 : 0, rule == 2);
      EXPECT(mpcore_optim_step(ctx, &a, 7, tensors) == MPCORE_OK);
    } else {
      const mpcore_optim_args a = adam_args(rule == 4);
      EXPECT(mpcore_optim_step(ctx, &a, 7, tensors) == MPCORE_OK);
    }
    for (int i = 0; i < 7; ++i) {
      for (int k = 0; k < 7; ++k) {
        if (problems[i].bytes[k]) memcpy(out, *slot(&tensors[i], k), problems[i].bytes[k]);
        out += problems[i].bytes[k];
      }
      drop(&problems[i]);
    }
  }
}

static void expect_refused(Problem* p, const mpcore_optim_args* a, mpcore_status status,
                           const char* field) {
  Problem before = copy_of(p);
  EXPECT(mpcore_optim_step(NULL, a, 1, &p->t) == status);
  EXPECT(error_names("mpcore_optim_step", field));
  EXPECT(same(p, &before));
  drop(&before);
}

static void test_errors_name_the_field_and_write_nothing(void) {
  Problem p = make(64, MPCORE_DTYPE_F32, MPCORE_DTYPE_F32, MPCORE_DTYPE_BF16, 2);
  const mpcore_optim_args good = adam_args(0);
  const mpcore_status bad = MPCORE_INVALID_ARGUMENT;
  static const char* fields[] = {"struct_size", "learning_rate", "beta_1",    "beta_1",
                                 "beta_2",      "epsilon",       "epsilon",   "step",
                                 "amsgrad",     "clipvalue",     "optimizer", "rounding"};
  for (int i = 0; i < 12; ++i) {
    mpcore_optim_args a = good;
    if (i == 0) a.struct_size = 4;
    if (i == 1) a.learning_rate = NAN;
    if (i == 2) a.beta_1 = 1.5;
    if (i == 3) a.beta_1 = NAN;
    if (i == 4) a.beta_2 = 1;
    if (i == 5) a.epsilon = -1e-7;
    if (i == 6) a.epsilon = NAN;
    if (i == 7) a.step = 0;
    if (i == 8) a.amsgrad = 2;
    if (i == 9) a.clipvalue = NAN;
    if (i == 10) a.optimizer = 99;
    if (i == 11) a.rounding = 7;
    expect_refused(&p, &a, bad, fields[i]);
  }
  const mpcore_optim_tensor kept = p.t;
#define REFUSED(change, status, field)                           \
  do {                                                           \
    change;                                                      \
    Problem q = p;                                               \
    p.t = kept;                                                  \
    EXPECT(mpcore_optim_step(NULL, &good, 1, &q.t) == (status)); \
    EXPECT(error_names("mpcore_optim_step", field));             \
  } while (0)
  REFUSED(p.t.size = -1, bad, "tensors[0].size");
  REFUSED(p.t.state_dtype = MPCORE_DTYPE_F16, MPCORE_UNSUPPORTED, "tensors[0].state_dtype");
  REFUSED(p.t.remainder = p.t.copy, MPCORE_UNSUPPORTED, "tensors[0].param_dtype");
  REFUSED(p.t.grad_multiplier = INFINITY, bad, "tensors[0].grad_multiplier");
  REFUSED(p.t.grad_multiplier = 1e39, bad, "tensors[0].grad_multiplier");
  REFUSED(p.t.weight_decay = NAN, bad, "tensors[0].weight_decay");
  REFUSED(p.t.weight_decay = -1e39, bad, "tensors[0].weight_decay");
  REFUSED(p.t.param_dtype = MPCORE_DTYPE_I8, MPCORE_UNSUPPORTED, "tensors[0].param_dtype");
  REFUSED(p.t.grad_dtype = MPCORE_DTYPE_F64, MPCORE_UNSUPPORTED, "tensors[0].grad_dtype");
  REFUSED(p.t.copy_dtype = MPCORE_DTYPE_F32, MPCORE_UNSUPPORTED, "tensors[0].copy_dtype");
  REFUSED(p.t.param_dtype = 42, bad, "tensors[0].param_dtype");
  REFUSED(p.t.param = NULL, bad, "tensors[0].param");
  REFUSED(p.t.grad = NULL, bad, "tensors[0].grad");
  REFUSED(p.t.state[1] = NULL, bad, "tensors[0].state[1]");
  REFUSED(p.t.state[2] = p.t.state[1], bad, "tensors[0].state[2]");
  REFUSED(p.t.grad = (char*)p.t.param + 255, bad, "must not overlap");
  REFUSED(p.t.copy = p.t.state[0], bad, "must not overlap");
#undef REFUSED
  /* A bad second tensor keeps the first one from being written. */
  Problem before = copy_of(&p);
  mpcore_optim_tensor two[2];
  two[0] = two[1] = p.t;
  two[1].size = -1;
  EXPECT(mpcore_optim_step(NULL, &good, 2, two) == bad && same(&p, &before));
  EXPECT(mpcore_optim_step(NULL, &good, -1, two) == bad &&
         error_names("mpcore_optim_step", "count"));
  EXPECT(mpcore_optim_step(NULL, &good, 1, NULL) == bad);
  EXPECT(mpcore_optim_step(NULL, NULL, 1, two) == bad && error_names("mpcore_optim_step", "args"));
  EXPECT(mpcore_optim_step(NULL, &good, 0, NULL) == MPCORE_OK);
  mpcore_optim_args sgd = sgd_args(1.5, 0);
  EXPECT(mpcore_optim_step(NULL, &sgd, 0, NULL) == bad &&
         error_names("mpcore_optim_step", "momentum"));
  sgd = sgd_args(0.5, 7);
  EXPECT(mpcore_optim_step(NULL, &sgd, 0, NULL) == bad &&
         error_names("mpcore_optim_step", "nesterov"));
  drop(&before), drop(&p);
}

int main(void) {
  test_sgd_follows_the_formula_to_the_bit();
  test_adam_follows_the_formula_to_the_bit();
  test_adam_stores_every_dtype_with_one_rounding();
  test_clipping_keeps_nan_and_zero_decay_keeps_infinity();
  test_subnormals_count_as_zero();
  test_errors_name_the_field_and_write_nothing();
  expect_same_everywhere(run_everything, 5 * (kN * 22 + 8192 * 40 + 4000 * 40));
  return expect_result();
}
