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
  fflush(stdout);
}

/* 0: right; 1: wrong; 2: it could not be measured. */
static int run_problem(const Problem* problem, mpcore_context* ctx, const Options* o, FILE* json,
                       int is_first) {
  Measured m;
  memset(&m, 0, sizeof m);
  const int right = work_is_right(problem, ctx);
  if (!right)
    printf("%-28s WRONG\n", problem->text);
  else if (measure(problem, ctx, &o->settings, &m) != MPCORE_OK) {
    fprintf(stderr, "mpcore_bench: %s: %s\n", problem->text, mpcore_last_error());
    return 2;
  } else {
    print_row(problem, &m);
  }
  if (json != NULL) report_result(json, problem, &m, right, &o->settings, is_first);
  return right ? 0 : 1;
}

static int run_all(mpcore_context* ctx, const Options* o, FILE* json) {
  int worst = 0, done = 0;
  printf("%-28s %9s %-8s %6s %9s %6s  %s\n", "problem", "rate", "", "spread", "limit", "share",
         "bottleneck");
  if (json != NULL) report_begin(json, ctx, &o->settings);
  for (int i = 0; i < problem_count() && worst < 2; ++i) {
    const Problem problem = problem_at(i);
    if (!selected(&problem, o)) continue;
    const int code = run_problem(&problem, ctx, o, json, done++ == 0);
    if (code > worst) worst = code;
  }
  if (json != NULL) report_end(json);
  if (done > 0) return worst;
  fprintf(stderr, "mpcore_bench: --filter must match a problem (got %s)\n", o->filter);
  return 2;
}

static int run(const Options* o) {
  mpcore_context_options options;
  mpcore_context* ctx = NULL;
  FILE* json = NULL;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.num_threads = o->settings.threads;
  options.isa = o->isa;
  if (mpcore_context_create(&options, &ctx) != MPCORE_OK) {
    fprintf(stderr, "mpcore_bench: %s\n", mpcore_last_error());
    return 2;
  }
  if (o->json != NULL && (json = fopen(o->json, "w")) == NULL) {
    perror(o->json);
    mpcore_context_destroy(ctx);
    return 2;
  }
  int code = run_all(ctx, o, json);
  if (json != NULL && fclose(json) != 0) {
    perror(o->json);
    code = 2;
  }
  mpcore_context_destroy(ctx);
  return code;
}

int main(int argc, char** argv) {
  Options o = {{5, 2, 2e-3, 1}, NULL, NULL, NULL, 0};
  const int code = parse(argc, argv, &o);
  if (code != 0) return code - 1;
  if (!o.list) return run(&o);
  for (int i = 0; i < problem_count(); ++i) {
    const Problem problem = problem_at(i);
    if (selected(&problem, &o)) puts(problem.text);
  }
  return 0;
}
