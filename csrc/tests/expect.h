// EXPECT: prints what did not hold and lets the test go on; `return expect_result();` ends main().
#ifndef MPCORE_TESTS_EXPECT_H_
#define MPCORE_TESTS_EXPECT_H_

#include <stdio.h>

static int expect_failures = 0;

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition)) {                                                        \
      fprintf(stderr, "%s:%d: expected %s\n", __FILE__, __LINE__, #condition); \
      ++expect_failures;                                                       \
    }                                                                          \
  } while (0)

static inline int expect_result(void) { return expect_failures == 0 ? 0 : 1; }

#endif  // MPCORE_TESTS_EXPECT_H_
