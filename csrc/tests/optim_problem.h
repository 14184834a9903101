/* A tensor for an optimizer with everything its update touches, made of random numbers. */
#ifndef MPCORE_TESTS_OPTIM_PROBLEM_H_
#define MPCORE_TESTS_OPTIM_PROBLEM_H_

#include "levels.h"

typedef struct {
  mpcore_optim_tensor t;
  size_t bytes[7]; /* param, grad, copy, states */
} Problem;

static inline void** slot(mpcore_optim_tensor* t, int i) {
  return i == 0 ? &t->param : i == 1 ? (void**)&t->grad : i == 2 ? &t->copy : &t->state[i - 3];
}

static inline Problem make(int64_t n, mpcore_dtype param, mpcore_dtype grad, mpcore_dtype copy,
                           int states) {
  Problem p;
  double* x = malloc((size_t)(n + 1) * sizeof(*x));
  const mpcore_dtype state = param == MPCORE_DTYPE_F64 ? param : MPCORE_DTYPE_F32;
  memset(&p, 0, sizeof(p));
  p.t.size = n;
  p.t.param_dtype = param;
  p.t.grad_dtype = grad;
  p.t.copy_dtype = copy;
  p.t.state_dtype = state;
  p.t.grad_multiplier = 1;
  for (int i = 0; i < 3 + states; ++i) {
    if (i == 2 && copy == 0) continue;
    const mpcore_dtype dtype = i == 0 ? param : i == 1 ? grad : i == 2 ? copy : state;
    for (int64_t j = 0; j < n; ++j) x[j] = i > 3 ? fabs(random_unit()) : random_unit();
    p.bytes[i] = (size_t)(n * mpcore_dtype_size(dtype));
    *slot(&p.t, i) = malloc(p.bytes[i] + 1);
    put(*slot(&p.t, i), dtype, x, n);
  }
  free(x);
  return p;
}

static inline void drop(Problem* p) {
  for (int i = 0; i < 7; ++i) free(*slot(&p->t, i));
}

static inline Problem copy_of(const Problem* p) {
  Problem q = *p;
  for (int i = 0; i < 7; ++i) {
    if (*slot(&q.t, i) == NULL) continue;
    void* data = malloc(p->bytes[i] + 1);
    memcpy(data, *slot(&q.t, i), p->bytes[i]);
    *slot(&q.t, i) = data;
  }
  return q;
}

static inline int same(const Problem* p, const Problem* q) {
  for (int i = 0; i < 7; ++i)
    if (p->bytes[i] && memcmp(*slot((mpcore_optim_tensor*)&p->t, i),
                              *slot((mpcore_optim_tensor*)&q->t, i), p->bytes[i]) != 0)
      return 0;
  return 1;
}

#endif /* MPCORE_TESTS_OPTIM_PROBLEM_H_ */
