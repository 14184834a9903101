#define _GNU_SOURCE
#include "measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "quiet.h"

enum { kStreamArrays = 4, kTries = 4, kFewest = 3, kWarmCalls = 3 };

/* As `mpcore bench` has them; see mpcore/bench/worker.py and timing.py for the reasons. */
static const double kWarmSeconds = 5e-3, kWarmAtMost = 20e-3, kPatience = 0.03, kFullRate = 0.6,
                    kAmxSeconds = 1e-3, kBetweenRuns = 0.03;

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

/* threads == 1: CPU time; else wall time. */
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

/* Until caches and threads are at their places. */
static mpcore_status warm_up(Runner* r, int64_t calls) {
  const int64_t some = calls / 4 > 0 ? calls / 4 : 1;
  const double start = now(2);
  double past = 0;
  mpcore_status status = MPCORE_OK;
  for (int64_t done = 0;
       status == MPCORE_OK && (past < kWarmSeconds || (done < kWarmCalls && past < kWarmAtMost));
       done += some) {
    status = repeat(r, some);
    past = now(2) - start;
  }
  return status;
}

/* The rate of the bare AMX loop on one thread, for a millisecond; 0: there is none. */
static double amx_rate(const Settings* settings) {
  static int64_t iterations = 1;
  int64_t operations = 0;
  double seconds = 0;
  while (settings->amx != NULL) {
    const double start = now(1);
    if (mpcore_run_peak(settings->amx, MPCORE_PEAK_AMX_BF16, iterations, &operations) != MPCORE_OK)
      break;
    seconds = now(1) - start;
    /* What is shorter says more about the start of the loop than about the unit. */
    if (seconds >= kAmxSeconds / 2) return (double)operations / seconds;
    iterations *= 2;
  }
  return 0;
}

static mpcore_status sample(Runner* r, const Settings* settings, int pass, int bracket) {
  const int64_t calls = r->timed->calls;
  Sample* s = &r->timed->sample[r->timed->samples];
  for (int i = 0; i < (settings->threads > 1 ? kTries : 1); ++i) {
    double seconds = 0;
    if (settings->threads > 1) wait_until_quiet();
    const double before = bracket ? amx_rate(settings) : 0;
    mpcore_status status = warm_up(r, calls);
    if (status != MPCORE_OK) return status;
    const double waited = seconds_waited();
    status = timed_calls(r, calls, settings->threads, &seconds);
    if (status != MPCORE_OK) return status;
    s->disturbed = settings->threads > 1 && seconds_waited() - waited > kPatience * seconds;
    s->amx = bracket ? fmin(before, amx_rate(settings)) : 0;
    s->seconds = seconds / (double)calls;
    s->pass = pass;
    if (!s->disturbed) break;
  }
  ++r->timed->samples;
  return MPCORE_OK;
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
  s.spread = hypot((s.p95 - s.p5) / s.median, 3.29 * kBetweenRuns);
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

static mpcore_status take_turns(Runner* runners, int count, const Settings* settings, int pass,
                                int bracket) {
  mpcore_status status = MPCORE_OK;
  for (int i = 0; i < count && status == MPCORE_OK; ++i)
    status = pass == 0 ? calibrate(&runners[i], settings) : warm_up(&runners[i], 1);
  for (int round = 0; round < settings->rounds; ++round)
    for (int i = 0; i < count && status == MPCORE_OK; ++i) /* Each begins a round in turn. */
      status = sample(&runners[(i + round + pass) % count], settings, pass, bracket);
  return status;
}

mpcore_status measure_pass(const Problem* problem, mpcore_context* ctx, const Settings* settings,
                           int pass, Measured* m) {
  Runner runners[1 + kMostLimits];
  Work work;
  int count = 1, bracket = 0;
  memset(runners, 0, sizeof runners);
  mpcore_status status = work_start(&work, problem);
  runners[0] = (Runner){.ctx = ctx, .work = &work, .timed = &m->mpcore};
  snprintf(m->mpcore.name, sizeof m->mpcore.name, "mpcore");
  m->mpcore.amount = problem->amount;
  m->limits = 0;
  for (int i = 0; i < problem->limits && status == MPCORE_OK; ++i) {
    const Limit* limit = &problem->limit[i];
    Runner* r = &runners[count];
    r->ctx = ctx;
    r->timed = &m->limit[m->limits];
    status = start_probe(r, limit);
    if (status == MPCORE_UNSUPPORTED) { /* the level lacks the instruction */
      status = MPCORE_OK;
      continue;
    }
    bracket |= !limit->is_stream && limit->probe == MPCORE_PEAK_AMX_BF16;
    m->which[m->limits++] = limit;
    ++count;
  }
  if (status == MPCORE_OK) status = take_turns(runners, count, settings, pass, bracket);
  for (int i = 1; i <= kMostLimits; ++i) end_runner(&runners[i]);
  work_end(&work);
  return status;
}

static double best_of(const Timed* timed) {
  double best = 0;
  for (int i = 0; i < timed->samples; ++i) best = fmax(best, timed->sample[i].amx);
  return best;
}

double best_amx_rate(const Measured* m) {
  double best = best_of(&m->mpcore);
  for (int i = 0; i < m->limits; ++i) best = fmax(best, best_of(&m->limit[i]));
  return best;
}

/* The undisturbed first, those near the full rate of the AMX unit before others. */
static int by_worth(const void* a, const void* b) {
  const Sample *x = a, *y = b;
  if (x->disturbed != y->disturbed) return x->disturbed - y->disturbed;
  return (x->amx < y->amx) - (x->amx > y->amx);
}

static int by_pass(const void* a, const void* b) {
  return ((const Sample*)a)->pass - ((const Sample*)b)->pass;
}

/* Keeps the samples that nothing disturbed; if hardly any, the best of all. */
static void conclude_one(Timed* timed, double best_amx) {
  double seconds[kMostSamples];
  int kept = 0;
  qsort(timed->sample, (size_t)timed->samples, sizeof *timed->sample, by_worth);
  for (int i = 0; i < timed->samples; ++i) {
    const Sample* s = &timed->sample[i];
    kept += !s->disturbed && (s->amx <= 0 || s->amx >= kFullRate * best_amx);
  }
  if (kept < kFewest) kept = timed->samples < kFewest ? timed->samples : kFewest;
  timed->dropped = timed->samples - kept;
  timed->samples = kept;
  qsort(timed->sample, (size_t)kept, sizeof *timed->sample, by_pass);
  for (int i = 0; i < kept; ++i) seconds[i] = timed->sample[i].seconds;
  timed->summary = summarize(seconds, kept);
}

void conclude(Measured* m, double best_amx) {
  double least = INFINITY;
  conclude_one(&m->mpcore, best_amx);
  m->best = -1;
  for (int i = 0; i < m->limits; ++i) {
    conclude_one(&m->limit[i], best_amx);
    const double seconds = m->which[i]->amount / m->limit[i].amount * m->limit[i].summary.median;
    if (seconds < least) {
      least = seconds;
      m->best = i;
    }
  }
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
