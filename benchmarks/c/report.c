#define _GNU_SOURCE
#include "report.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char** environ;

static void put_text(FILE* out, const char* text) {
  fputc('"', out);
  for (; *text != 0; ++text) {
    const unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20)
      fprintf(out, "\\u%04x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}

static void put_pair(FILE* out, const char* key, const char* text) {
  fprintf(out, "\"%s\": ", key);
  put_text(out, text);
}

/* Load averages; zeros where the system tells none. */
typedef struct {
  double minutes[3];
} Load;

static Load load_now(void) {
  Load load;
  if (getloadavg(load.minutes, 3) != 3) memset(&load, 0, sizeof load);
  return load;
}

static void put_load(FILE* out, const char* key, Load load) {
  fprintf(out, "\"%s\": [%.2f, %.2f, %.2f]", key, load.minutes[0], load.minutes[1],
          load.minutes[2]);
}

static Load load_before;

static void put_quota(FILE* out) {
  double quota = 0, period = 0;
  FILE* in = fopen("/sys/fs/cgroup/cpu.max", "r");
  const int found = in != NULL ? fscanf(in, "%lf %lf", &quota, &period) : 0;
  if (in != NULL) fclose(in);
  if (found == 2)
    fprintf(out, "\"cgroup_quota\": %.17g", quota / period);
  else
    fprintf(out, "\"cgroup_quota\": null");
}

static void put_levels(FILE* out) {
  fprintf(out, "\"levels\": [");
  for (int32_t i = 0; i < mpcore_isa_count(); ++i) {
    const char *name = "", *reason = "";
    int32_t available = 0;
    if (mpcore_isa_describe(i, &name, &available, &reason) != MPCORE_OK) continue;
    fprintf(out, "%s{", i > 0 ? ", " : "");
    put_pair(out, "name", name);
    fprintf(out, ", \"available\": %s, ", available ? "true" : "false");
    put_pair(out, "reason", reason);
    fputc('}', out);
  }
  fprintf(out, "]");
}

static void put_machine(FILE* out) {
  struct utsname system;
  char text[160];
  cpu_set_t usable;
  const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
  if (uname(&system) != 0) memset(&system, 0, sizeof system);
  snprintf(text, sizeof text, "%.64s %.64s", system.sysname, system.release);
  fprintf(out, "\"machine\": {");
  put_pair(out, "cpu", mpcore_cpu_name());
  fprintf(out, ", ");
  put_pair(out, "architecture", system.machine);
  fprintf(out, ", \"cpus\": %ld, \"usable_cpus\": %ld, ", cpus,
          sched_getaffinity(0, sizeof usable, &usable) == 0 ? (long)CPU_COUNT(&usable) : cpus);
  put_quota(out);
  fprintf(out, ", ");
  put_pair(out, "system", text);
  fprintf(out, ", ");
  put_levels(out);
  fprintf(out, "},\n");
}

static void put_software(FILE* out, mpcore_context* ctx) {
  const char *compiler = "", *type = "", *flags = "", *commit = "", *isa = "";
  const int version = mpcore_version();
  char text[32];
  snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
  if (mpcore_build_info(&compiler, &type, &flags, &commit) != MPCORE_OK) compiler = "unknown";
  if (mpcore_get_isa(ctx, &isa) != MPCORE_OK) isa = "unknown";
  fprintf(out, "\"software\": {");
  put_pair(out, "version", text);
  fprintf(out, ", ");
  put_pair(out, "isa", isa);
  fprintf(out, ", \"build\": {");
  put_pair(out, "compiler", compiler);
  fprintf(out, ", ");
  put_pair(out, "type", type);
  fprintf(out, ", ");
  put_pair(out, "flags", flags);
  fprintf(out, ", ");
  put_pair(out, "commit", commit);
  fprintf(out, "}},\n");
}

static void put_environment(FILE* out) {
  const char* separator = "";
  fprintf(out, "\"environment\": {");
  for (char** entry = environ; *entry != NULL; ++entry) {
    const char* equals = strchr(*entry, '=');
    char name[64];
    if (strncmp(*entry, "MPCORE_", 7) != 0 || equals == NULL) continue;
    snprintf(name, sizeof name, "%.*s", (int)(equals - *entry), *entry);
    fprintf(out, "%s", separator);
    put_pair(out, name, equals + 1);
    separator = ", ";
  }
  fprintf(out, "},\n");
}

void report_begin(FILE* out, mpcore_context* ctx, const Settings* settings) {
  char started[40];
  const time_t now = time(NULL);
  strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%S+00:00", gmtime(&now));
  fprintf(out, "{\"schema_version\": 1, \"program\": \"mpcore_bench\",\n");
  put_pair(out, "started", started);
  fprintf(out, ",\n");
  put_machine(out);
  put_software(out, ctx);
  put_environment(out);
  fprintf(
      out,
      "\"settings\": {\"threads\": [%d], \"passes\": %d, \"rounds\": %d, "
      "\"least_seconds\": %.17g, \"seed\": 0},\n\"peers\": {}, \"notices\": [],\n\"results\": [\n",
      settings->threads, settings->passes, settings->rounds, settings->least);
  load_before = load_now();
}

/* One list for each pass. */
static void put_samples(FILE* out, const Timed* timed, int passes) {
  fprintf(out, "\"samples\": [");
  for (int pass = 0, i = 0; pass < passes; ++pass) {
    fprintf(out, "%s[", pass > 0 ? ", " : "");
    for (int first = i; i < timed->samples && timed->sample[i].pass == pass; ++i)
      fprintf(out, "%s%.9g", i > first ? ", " : "", timed->sample[i].seconds);
    fprintf(out, "]");
  }
  fprintf(out, "]");
}

static void put_timed(FILE* out, const Timed* timed, const char* kind, const char* unit,
                      int passes) {
  const Summary* s = &timed->summary;
  int disturbed = 0;
  for (int i = 0; i < timed->samples; ++i) disturbed += timed->sample[i].disturbed;
  fprintf(out, "{");
  put_pair(out, "name", timed->name);
  fprintf(out,
          ", \"kind\": \"%s\", \"unit\": \"%s\", \"rate\": %.9g, \"calls_per_sample\": %" PRId64
          ", \"dropped\": %d, \"disturbed\": %d,\n   \"seconds\": {\"median\": %.9g, \"p5\": %.9g, "
          "\"p95\": %.9g, \"min\": %.9g, \"mad\": %.9g, \"spread\": %.9g},\n   ",
          kind, unit, timed->amount / s->median * 1e-9, timed->calls, timed->dropped, disturbed,
          s->median, s->p5, s->p95, s->min, s->mad, s->spread);
  put_samples(out, timed, passes);
}

static void put_bound(FILE* out, const Measured* m, int i, const Problem* problem, int with_rate) {
  char name[48];
  const double seconds = m->which[i]->amount / m->limit[i].amount * m->limit[i].summary.median;
  name_limit(m->which[i], name, sizeof name);
  fprintf(out, "{");
  put_pair(out, "name", name);
  fprintf(out, ", \"seconds\": %.9g, ", seconds);
  put_pair(out, "probe", m->limit[i].name);
  if (with_rate) fprintf(out, ", \"rate\": %.9g", problem->amount / seconds * 1e-9);
  fprintf(out, "}");
}

static void put_entries(FILE* out, const Problem* problem, const Measured* m, int right,
                        int passes) {
  if (!right) {
    fprintf(out,
            "{\"name\": \"mpcore\", \"kind\": \"implementation\", \"wrong\": \"differs from "
            "the reference\"}");
    return;
  }
  put_timed(out, &m->mpcore, "implementation", problem->unit, passes);
  if (m->best >= 0) {
    const Timed* limit = &m->limit[m->best];
    const double seconds = m->which[m->best]->amount / limit->amount * limit->summary.median;
    fprintf(out, ", \"of_limit\": %.9g", seconds / m->mpcore.summary.median);
  }
  fprintf(out, ", \"times_slower_than_mpcore\": 1}");
  for (int i = 0; i < m->limits; ++i) {
    fprintf(out, ",\n  ");
    put_timed(out, &m->limit[i], "limit", m->which[i]->is_stream ? "GB/s" : "GFLOP/s", passes);
    fprintf(out, "}");
  }
}

void report_result(FILE* out, const Problem* problem, const Measured* m, int right,
                   const Settings* settings, int is_first) {
  fprintf(out, "%s{", is_first ? "" : ",\n");
  put_pair(out, "problem", problem->text);
  fprintf(out, ", ");
  put_pair(out, "suite", problem->suite);
  fprintf(out,
          ", \"fields\": {%s}, \"threads\": %d, \"unit\": \"%s\", \"amount\": %.17g, "
          "\"operations\": %.17g, \"bytes\": %.17g,\n \"bounds\": [",
          problem->fields, settings->threads, problem->unit, problem->amount, problem->operations,
          problem->bytes);
  if (right && m->best >= 0) put_bound(out, m, m->best, problem, 0);
  fprintf(out, "], \"limit\": ");
  if (right && m->best >= 0)
    put_bound(out, m, m->best, problem, 1);
  else
    fprintf(out, "null");
  fprintf(out, ",\n \"entries\": [");
  put_entries(out, problem, m, right, settings->passes);
  fprintf(out, "]}");
}

void report_end(FILE* out) {
  fprintf(out, "],\n\"load\": {");
  put_load(out, "before", load_before);
  fprintf(out, ", ");
  put_load(out, "after", load_now());
  fprintf(out, "}}\n");
}
