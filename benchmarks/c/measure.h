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
} Settings;

typedef struct {
  double median, p5, p95, min, mad, spread;
} Summary;

/* One thing that was timed: mpcore, or a limit. */
typedef struct {
  char name[48];
  int64_t calls;
  double amount; /* of one call */
  int samples;
  double seconds[kMostSamples];
  Summary summary;
} Timed;

typedef struct {
  Timed mpcore;
  int limits; /* that this machine has */
  Timed limit[kMostLimits];
  const Limit* which[kMostLimits];
  int best; /* the limit that allows the least time; -1: none */
} Measured;

/* Times a problem and its limits in turns. */
mpcore_status measure(const Problem* problem, mpcore_context* ctx, const Settings* settings,
                      Measured* out);

/* "memory read", "L2 copy", "AMX". */
void name_limit(const Limit* limit, char* out, int size);

#endif /* MPCORE_BENCH_MEASURE_H_ */
