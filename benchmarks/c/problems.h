/* What mpcore_bench measures: problems named as in `mpcore bench`. */
#ifndef MPCORE_BENCH_PROBLEMS_H_
#define MPCORE_BENCH_PROBLEMS_H_

#include <stdint.h>

#include "mpcore/mpcore.h"

enum { kMostLimits = 3, kMostArrays = 5 };

typedef enum {
  OP_CAST,
  OP_ALL_FINITE,
  OP_UNSCALE,
  OP_NORMS,
  OP_GEMM,
  OP_ADAMW,
  OP_RELU,
  OP_SOFTMAX
} Op;

/* A limit: a peak of the arithmetic, or a stream over `bytes` of memory. `amount` operations or
   bytes of it are what one call of the problem needs; the best of the alternatives counts. */
typedef struct {
  int is_stream;
  int32_t probe;
  int64_t bytes;
  double amount;
} Limit;

typedef struct {
  const char* suite;
  const char* unit;
  Op op;
  mpcore_dtype from, to;
  int64_t m, n, k;
  char text[128];
  char fields[192]; /* as JSON */
  double amount;    /* bytes or operations of one call */
  double operations, bytes;
  int limits;
  Limit limit[kMostLimits];
} Problem;

/* Arrays of one problem, and the call made ready. */
typedef struct {
  const Problem* problem;
  void* array[kMostArrays];
  int64_t size[kMostArrays]; /* bytes */
  double multiplier;
} Work;

int problem_count(void);
Problem problem_at(int index);

/* Each returns MPCORE_OK or the status of the call that failed. */
mpcore_status work_start(Work* work, const Problem* problem);
mpcore_status work_run(Work* work, mpcore_context* ctx);
void work_end(Work* work);

/* 1 if the results of the context are right, 0 if not: compared with the lowest level bit by bit,
   matrix products with sums in double. */
int work_is_right(const Problem* problem, mpcore_context* ctx);

#endif /* MPCORE_BENCH_PROBLEMS_H_ */
