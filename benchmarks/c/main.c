/* mpcore_bench: what libmpcore reaches of this machine, without Python. For the comparison with
   other libraries see `mpcore bench`, which reads and writes the same JSON. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "problems.h"
#include "report.h"

typedef struct {
  Settings settings;
  const char* filter;
  const char* isa;
  const char* json;
  int list;
} Options;

static const char kUsage[] =
    "usage: mpcore_bench [--list] [--filter TEXT] [--threads N] [--isa LEVEL]\n"
    "                    [--passes N] [--rounds N] [--min-ms MS] [--json FILE]\n"
    "Measures kernels and the limits of this machine in turns. Ends with code 1 if a result is\n"
    "wrong, 2 if the request makes no sense.\n";

/* A number in [1, most], or 0. */
static int count_of(const char* text, int most) {
  char* end;
  const long value = strtol(text, &end, 10);
  return *text != 0 && *end == 0 && value >= 1 && value <= most ? (int)value : 0;
}

/* 0: understood; else the exit code plus 1. */
static int parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    const char* name = argv[i];
    if (strcmp(name, "--list") == 0) {
      o->list = 1;
      continue;
    }
    if (strcmp(name, "--help") == 0) {
      fputs(kUsage, stdout);
      return 1;
    }
    const char* value = i + 1 < argc ? argv[++i] : "";
    int good = *value != 0;
    if (strcmp(name, "--filter") == 0)
      o->filter = value;
    else if (strcmp(name, "--isa") == 0)
      o->isa = value;
    else if (strcmp(name, "--json") == 0)
      o->json = value;
    else if (strcmp(name, "--threads") == 0)
      good = (o->settings.threads = count_of(value, 1024)) > 0;
    else if (strcmp(name, "--passes") == 0)
      good = (o->settings.passes = count_of(value, 16)) > 0;
    else if (strcmp(name, "--rounds") == 0)
      good = (o->settings.rounds = count_of(value, 16)) > 0;
    else if (strcmp(name, "--min-ms") == 0)
      good = (o->settings.least = 1e-3 * count_of(value, 10000)) > 0;
    else
      good = 0;
    if (!good) {
      fprintf(stderr, "mpcore_bench: cannot read %s %s\n%s", name, value, kUsage);
      return 3;
    }
  }
  return 0;
}

static int selected(const Problem* problem, const Options* o) {
  return o->filter == NULL || strstr(problem->text, o->filter) != NULL;
}

static void print_row(const Problem* problem, const Measured* m) {
  char place[48] = "?", bottleneck[64];
  const Summary* s = &m->mpcore.summary;
  double share = 0, limit = 0;
  if (m->best >= 0) {
    const Timed* best = &m->limit[m->best];
    const double seconds = m->which[m->best]->amount / best->amount * best->summary.median;
    name_limit(m->which[m->best], place, sizeof place);
    share = seconds / s->median;
    limit = problem->amount / seconds * 1e-9;
  }
  snprintf(bottleneck, sizeof bottleneck, "%s%s", share >= 0.6 ? "" : "kernel, then ", place);
  printf("%-28s %9.4g %-8s %5.0f%% %9.4g %5.0f%%  %s\n", problem->text,
         problem->amount / s->median * 1e-9, problem->unit, 100 * s->spread, limit, 100 * share,
         bottleneck);
}

/* All that is known about one problem. */
typedef struct {
  Problem problem;
  int right;
  Measured measured;
} Result;

/* Goes through the list once for each pass. 0: all right; 1: some are wrong; 2: it could not be
   measured. */
static int measure_all(Result* results, int count, mpcore_context* ctx, const Settings* settings) {
  int worst = 0;
  for (int i = 0; i < count; ++i) {
    results[i].right = work_is_right(&results[i].problem, ctx);
    if (!results[i].right) worst = 1;
  }
  for (int pass = 0; pass < settings->passes; ++pass) {
    for (int i = 0; i < count; ++i) {
      Result* r = &results[i];
      if (r->right && measure_pass(&r->problem, ctx, settings, pass, &r->measured) != MPCORE_OK) {
        fprintf(stderr, "mpcore_bench: %s: %s\n", r->problem.text, mpcore_last_error());
        return 2;
      }
    }
  }
  return worst;
}

static void report_all(Result* results, int count, const Options* o, FILE* json) {
  double best = 0, rate;
  for (int i = 0; i < count; ++i)
    if ((rate = best_amx_rate(&results[i].measured)) > best) best = rate;
  printf("%-28s %9s %-8s %6s %9s %6s  %s\n", "problem", "rate", "", "spread", "limit", "share",
         "bottleneck");
  for (int i = 0; i < count; ++i) {
    Result* r = &results[i];
    if (r->right) conclude(&r->measured, best);
    if (r->right)
      print_row(&r->problem, &r->measured);
    else
      printf("%-28s WRONG\n", r->problem.text);
    if (json != NULL)
      report_result(json, &r->problem, &r->measured, r->right, &o->settings, i == 0);
  }
  if (json != NULL) report_end(json);
}

static int run_all(mpcore_context* ctx, const Options* o, FILE* json) {
  Result* results = calloc((size_t)problem_count(), sizeof *results);
  int count = 0;
  if (results == NULL) {
    fprintf(stderr, "mpcore_bench: out of memory\n");
    return 2;
  }
  for (int i = 0; i < problem_count(); ++i) {
    const Problem problem = problem_at(i);
    if (selected(&problem, o)) results[count++].problem = problem;
  }
  int code = 2;
  if (count == 0) {
    fprintf(stderr, "mpcore_bench: --filter must match a problem (got %s)\n", o->filter);
  } else {
    if (json != NULL) report_begin(json, ctx, &o->settings);
    code = measure_all(results, count, ctx, &o->settings);
    if (code < 2) report_all(results, count, o, json);
  }
  free(results);
  return code;
}

/* NULL, with the reason in mpcore_last_error(), if there is no such level. */
static mpcore_context* new_context(int threads, const char* isa) {
  mpcore_context_options options;
  mpcore_context* ctx = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.num_threads = threads;
  options.isa = isa;
  return mpcore_context_create(&options, &ctx) == MPCORE_OK ? ctx : NULL;
}

static int run(Options* o) {
  FILE* json = NULL;
  mpcore_context* ctx = new_context(o->settings.threads, o->isa);
  if (ctx == NULL) {
    fprintf(stderr, "mpcore_bench: %s\n", mpcore_last_error());
    return 2;
  }
  if (o->json != NULL && (json = fopen(o->json, "w")) == NULL) {
    perror(o->json);
    mpcore_context_destroy(ctx);
    return 2;
  }
  o->settings.amx = new_context(1, "amx"); /* NULL: this CPU has none. */
  int code = run_all(ctx, o, json);
  if (json != NULL && fclose(json) != 0) {
    perror(o->json);
    code = 2;
  }
  if (json != NULL && code == 2) remove(o->json); /* It is not whole. */
  mpcore_context_destroy(o->settings.amx);
  mpcore_context_destroy(ctx);
  return code;
}

int main(int argc, char** argv) {
  Options o = {{5, 3, 2e-3, 1, NULL}, NULL, NULL, NULL, 0};
  const int code = parse(argc, argv, &o);
  if (code != 0) return code - 1;
  if (!o.list) return run(&o);
  for (int i = 0; i < problem_count(); ++i) {
    const Problem problem = problem_at(i);
    if (selected(&problem, &o)) puts(problem.text);
  }
  return 0;
}
