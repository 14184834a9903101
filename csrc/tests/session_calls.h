// A context and a call that uses its threads, for tests that enter contexts.
#ifndef MPCORE_TESTS_SESSION_CALLS_H_
#define MPCORE_TESTS_SESSION_CALLS_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "expect.h"
#include "mpcore/base.h"
#include "runtime/context.h"

using mpcore::FpMode;
using mpcore::Session;

constexpr int64_t kTasks = 1000;

inline mpcore_context* make_context(int32_t threads) {
  mpcore_context_options options{};
  options.struct_size = sizeof options;
  options.num_threads = threads;
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_OK);
  return ctx;
}

// Runs kTasks tasks in a session; true if each ran once.
inline bool call(mpcore_context* ctx) {
  std::vector<std::atomic<int>> hits(kTasks);
  Session session(ctx);
  if (session.status() != MPCORE_OK) return false;
  const auto body = [&](int64_t i) { ++hits[static_cast<size_t>(i)]; };
  if (session.parallel_for(kTasks, FpMode::kIeee, body) != MPCORE_OK) return false;
  for (const auto& hit : hits) {
    if (hit != 1) return false;
  }
  return true;
}

#endif  // MPCORE_TESTS_SESSION_CALLS_H_
