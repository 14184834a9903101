/* What the C tests of the kernels share: values to work on, and the law that bits depend on neither
   the level nor the number of threads. */
#ifndef MPCORE_TESTS_LEVELS_H_
#define MPCORE_TESTS_LEVELS_H_

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"
#include "mpcore/mpcore.h"

/* A fixed stream of numbers in [-1, 1). */
static uint64_t random_state = 1;
static inline double random_unit(void) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)random_state * 0x1p-63;
}

/* n elements of `dtype`, rounded from x. */
static inline void put(void* out, mpcore_dtype dtype, const double* x, int64_t n) {
  EXPECT(mpcore_cast(NULL, n, x, MPCORE_DTYPE_F64, out, dtype) == MPCORE_OK);
}
static inline void get(double* x, const void* in, mpcore_dtype dtype, int64_t n) {
  EXPECT(mpcore_cast(NULL, n, in, dtype, x, MPCORE_DTYPE_F64) == MPCORE_OK);
}

/* Relative distance of neighbours in the format: 2^-23, 2^-10, 2^-7, 2^-52. */
static inline double epsilon_of(mpcore_dtype dtype) {
  return dtype == MPCORE_DTYPE_F16    ? 0x1p-10
         : dtype == MPCORE_DTYPE_BF16 ? 0x1p-7
         : dtype == MPCORE_DTYPE_F64  ? 0x1p-52
                                      : 0x1p-23;
}

static inline int error_names(const char* function, const char* field) {
  return strstr(mpcore_last_error(), function) == mpcore_last_error() &&
         strstr(mpcore_last_error(), field) != NULL;
}

/* run(ctx, out) fills `size` bytes; they must not depend on the level or the number of threads. */
static inline void expect_same_everywhere(void (*run)(mpcore_context*, unsigned char*),
                                          size_t size) {
  unsigned char* first = calloc(1, size);
  unsigned char* other = malloc(size);
  int contexts = 0;
  for (int32_t level = 0; level < mpcore_isa_count(); ++level) {
    const char* name;
    int32_t available;
    EXPECT(mpcore_isa_describe(level, &name, &available, NULL) == MPCORE_OK);
    if (!available) continue;
    for (int32_t threads = 1; threads <= 3; ++threads, ++contexts) {
      mpcore_context_options options = {0};
      mpcore_context* ctx = NULL;
      options.struct_size = sizeof(options);
      options.num_threads = threads;
      options.isa = name;
      EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_OK);
      memset(other, 0, size);
      run(ctx, contexts == 0 ? first : other);
      if (contexts > 0 && memcmp(first, other, size) != 0) {
        fprintf(stderr, "bits of level %s with %d threads differ\n", name, (int)threads);
        EXPECT(!"the same bits everywhere");
      }
      mpcore_context_destroy(ctx);
    }
  }
  EXPECT(contexts >= 3);
  free(first);
  free(other);
}

#endif /* MPCORE_TESTS_LEVELS_H_ */
