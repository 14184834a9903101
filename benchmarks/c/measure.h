/* Samples, and what many of them say. */
#ifndef MPCORE_BENCH_MEASURE_H_
#define MPCORE_BENCH_MEASURE_H_

#include <stdint.h>

#include "problems.h"

enum { kMostSamples = 256 };

typedef struct {
  int passes, rounds;
  double least; /* seconds of a sample */
  int threads;
  mpcore_context* amx; /* of one thread, to look at the AMX unit; NULL: there is none */
} Settings;

typedef struct {
  double seconds; /* of a call */
  double amx;     /* rate of the bare AMX loop around it; 0: not looked at */
  int pass, disturbed;
} Sample;

typedef struct {
  double median, p5, p95, min, mad, spread;
} Summary;

/* One thing that was timed: mpcore, or a limit. */
typedef struct {
  char name[48];
  int64_t calls;
  double amount; /* of one call */
  int samples, dropped;
  Sample sample[kMostSamples];
  Summary summary;
} Timed;

/* A problem and the limits that this machine has. Begins as zeros. */
typedef struct {
  Timed mpcore;
  int limits;
  Timed limit[kMostLimits];
  const Limit* which[kMostLimits];
  int best; /* the limit that allows the least time; -1: none */
} Measured;

/* Times a problem and its limits in turns, in memory of their own, for one more pass. */
mpcore_status measure_pass(const Problem* problem, mpcore_context* ctx, const Settings* settings,
                           int pass, Measured* m);

/* The best rate of the AMX unit seen around any sample. */
double best_amx_rate(const Measured* m);

/* Drops samples of slow AMX phases, and sums up the others. */
void conclude(Measured* m, double best_amx);

/* "memory read", "L2 copy", "AMX". */
void name_limit(const Limit* limit, char* out, int size);

#endif /* MPCORE_BENCH_MEASURE_H_ */
