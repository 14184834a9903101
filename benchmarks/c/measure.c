#define _GNU_SOURCE
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kStreamArrays = 4 };

static const char* const kPeaks[] = {"fma_f32", "dot_bf16", "amx_bf16"};
static const char* const kPeakPlaces[] = {"FMA", "VDPBF16PS", "AMX"};
static const char* const kStreams[] = {"read",  "negate", "copy", "copy_nontemporal",
                                       "triad", "update"};
static const char* const kStreamPlaces[] = {"read", "negate", "copy", "copy", "triad", "update"};
static const int kArrays[] = {1, 1, 2, 2, 3, 4};

/* What repeats: a problem, or a probe with its arrays. */
typedef struct {
  mpcore_context* ctx;
  Work* work; /* or NULL: */
  Limit limit;
  int64_t n;
  float* array[kStreamArrays];
  int64_t size;
  Timed* timed;
} Runner;

static double now(int threads) {
  struct timespec t;
  /* One thread: CPU time, which does not count what other processes take. */
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static mpcore_status repeat(Runner* r, int64_t calls) {
  if (r->work == NULL) {
    int64_t done = 0;
    const mpcore_status status =
        r->limit.is_stream ? mpcore_run_stream(r->ctx, r->limit.probe, calls, r->n, r->array, &done)
                           : mpcore_run_peak(r->ctx, r->limit.probe, calls, &done);
    r->timed->amount = (double)done / (double)calls;
    return status;
  }
  for (int64_t i = 0; i < calls; ++i) {
    const mpcore_status status = work_run(r->work, r->ctx);
    if (status != MPCORE_OK) return status;
  }
  return MPCORE_OK;
}

static mpcore_status timed_calls(Runner* r, int64_t calls, int threads, double* seconds) {
  const double start = now(threads);
  const mpcore_status status = repeat(r, calls);
  *seconds = now(threads) - start;
  return status;
}

static mpcore_status calibrate(Runner* r, const Settings* settings) {
  double seconds = 0;
  r->timed->calls = 1;
  for (;;) {
    const mpcore_status status = timed_calls(r, r->timed->calls, 2, &seconds);
    if (status != MPCORE_OK || seconds >= settings->least) return status;
    const double grown = settings->least / fmax(seconds, 1e-9) * 1.2 * (double)r->timed->calls;
    const int64_t most = r->timed->calls * 100;
    r->timed->calls = grown < (double)most ? (int64_t)grown + 1 : most;
  }
}

static mpcore_status sample(Runner* r, const Settings* settings) {
  double seconds = 0;
  const int64_t warm = r->timed->calls / 4 > 0 ? r->timed->calls / 4 : 1;
  mpcore_status status = repeat(r, warm);
  if (status != MPCORE_OK) return status;
  status = timed_calls(r, r->timed->calls, settings->threads, &seconds);
  r->timed->seconds[r->timed->samples++] = seconds / (double)r->timed->calls;
  return status;
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double quantile(const double* sorted, int n, double share) {
  const double at = share * (n - 1);
  const int low = (int)at, high = low + 1 < n ? low + 1 : n - 1;
  return sorted[low] + (at - low) * (sorted[high] - sorted[low]);
}

static Summary summarize(const double* seconds, int n) {
  double sorted[kMostSamples];
  Summary s;
  memcpy(sorted, seconds, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, ascending);
  s.median = quantile(sorted, n, 0.5);
  s.p5 = quantile(sorted, n, 0.05);
  s.p95 = quantile(sorted, n, 0.95);
  s.min = sorted[0];
  s.spread = (s.p95 - s.p5) / s.median;
  for (int i = 0; i < n; ++i) sorted[i] = fabs(seconds[i] - s.median);
  qsort(sorted, (size_t)n, sizeof *sorted, ascending);
  s.mad = quantile(sorted, n, 0.5);
  return s;
}

static mpcore_status start_probe(Runner* r, const Limit* limit) {
  r->limit = *limit;
  snprintf(r->timed->name, sizeof r->timed->name, "%s",
           limit->is_stream ? kStreams[limit->probe] : kPeaks[limit->probe]);
  if (!limit->is_stream) return mpcore_run_peak(r->ctx, limit->probe, 0, NULL);
  const int arrays = kArrays[limit->probe];
  r->n = limit->bytes / 4 / arrays / 64 * 64;
  r->size = r->n * 4;
  for (int i = 0; i < arrays; ++i) {
    const mpcore_status status = mpcore_buffer_allocate(r->size, (void**)&r->array[i]);
    if (status != MPCORE_OK) return status;
    for (int64_t j = 0; j < r->n; ++j) r->array[i][j] = (float)(j % 977) - 488;
  }
  return MPCORE_OK;
}

static void end_runner(Runner* r) {
  for (int i = 0; i < kStreamArrays; ++i) mpcore_buffer_free(r->array[i], r->size);
}

static mpcore_status take_turns(Runner* runners, int count, const Settings* settings) {
  mpcore_status status = MPCORE_OK;
  for (int i = 0; i < count && status == MPCORE_OK; ++i) status = calibrate(&runners[i], settings);
  for (int round = 0; round < settings->passes * settings->rounds; ++round)
    for (int i = 0; i < count && status == MPCORE_OK; ++i) /* Each begins a round in turn. */
      status = sample(&runners[(i + round) % count], settings);
  return status;
}

static void find_best(Measured* out) {
  double least = INFINITY;
  out->best = -1;
  for (int i = 0; i < out->limits; ++i) {
    const double seconds =
        out->which[i]->amount / out->limit[i].amount * out->limit[i].summary.median;
    if (seconds < least) {
      least = seconds;
      out->best = i;
    }
  }
}

mpcore_status measure(const Problem* problem, mpcore_context* ctx, const Settings* settings,
                      Measured* out) {
  Runner runners[1 + kMostLimits];
  Work work;
  int count = 1;
  memset(out, 0, sizeof *out);
  memset(runners, 0, sizeof runners);
  mpcore_status status = work_start(&work, problem);
  runners[0] = (Runner){.ctx = ctx, .work = &work, .timed = &out->mpcore};
  snprintf(out->mpcore.name, sizeof out->mpcore.name, "mpcore");
  out->mpcore.amount = problem->amount;
  for (int i = 0; i < problem->limits && status == MPCORE_OK; ++i) {
    Runner* r = &runners[count];
    r->ctx = ctx;
    r->timed = &out->limit[out->limits];
    status = start_probe(r, &problem->limit[i]);
    if (status == MPCORE_UNSUPPORTED) { /* the level lacks the instruction */
      status = MPCORE_OK;
      continue;
    }
    out->which[out->limits++] = &problem->limit[i];
    ++count;
  }
  if (status == MPCORE_OK) status = take_turns(runners, count, settings);
  for (int i = 0; i < count && status == MPCORE_OK; ++i) {
    Timed* timed = runners[i].timed;
    timed->summary = summarize(timed->seconds, timed->samples);
  }
  find_best(out);
  for (int i = 1; i <= kMostLimits; ++i) end_runner(&runners[i]);
  work_end(&work);
  return status;
}

void name_limit(const Limit* limit, char* out, int size) {
  const char* where = "memory";
  if (!limit->is_stream) {
    snprintf(out, (size_t)size, "%s", kPeakPlaces[limit->probe]);
    return;
  }
  if (limit->bytes <= sysconf(_SC_LEVEL2_CACHE_SIZE)) where = "L2";
  if (limit->bytes <= sysconf(_SC_LEVEL1_DCACHE_SIZE)) where = "L1";
  snprintf(out, (size_t)size, "%s %s", where, kStreamPlaces[limit->probe]);
}
