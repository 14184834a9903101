/* The JSON of mpcore_bench: that of `mpcore bench`, whose schema is mpcore/bench/schema.json. */
#ifndef MPCORE_BENCH_REPORT_H_
#define MPCORE_BENCH_REPORT_H_

#include <stdio.h>

#include "measure.h"

/* All before the results, one result after the other, all after them. */
void report_begin(FILE* out, mpcore_context* ctx, const Settings* settings);
void report_result(FILE* out, const Problem* problem, const Measured* m, int right,
                   const Settings* settings, int is_first);
void report_end(FILE* out);

#endif /* MPCORE_BENCH_REPORT_H_ */
