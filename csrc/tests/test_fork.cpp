// A forked child: it has none of the parent's threads, and contexts are as other threads left them.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

#include "session_calls.h"

namespace {

// Three tasks that wait for each other: they need three threads.
void call_together(mpcore_context* ctx) {
  std::atomic<int> arrived{0};
  Session session(ctx);
  session.parallel_for(3, FpMode::kIeee, [&](int64_t) {
    ++arrived;
    while (arrived < 3) std::this_thread::yield();
  });
}

int exit_code_of_child(void (*child)(mpcore_context*), mpcore_context* ctx) {
  const pid_t pid = fork();
  if (pid == 0) {
    alarm(60);  // a hang is a failure
    child(ctx);
    _exit(expect_failures == 0 ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Whoever is inside in the parent, the child finds every context free and its settings kept.
void test_fork_then_use() {
  mpcore_context* ctx = make_context(3);
  EXPECT(mpcore_set_num_threads(nullptr, 3) == MPCORE_OK);
  EXPECT(mpcore_set_isa(nullptr, "scalar") == MPCORE_OK);
  EXPECT(call(ctx) && call(nullptr));

  std::atomic<int> inside{0};
  std::atomic<bool> leave{false};
  const auto stay = [&](mpcore_context* entered) {
    Session session(entered);
    ++inside;
    while (!leave) std::this_thread::yield();
  };
  std::thread in_explicit(stay, ctx), in_default(stay, nullptr);
  while (inside < 2) std::this_thread::yield();

  const int code = exit_code_of_child(
      [](mpcore_context* inherited) {
        call_together(inherited);
        call_together(nullptr);
        EXPECT(call(inherited) && call(nullptr));
        int32_t threads = 0;
        EXPECT(mpcore_get_num_threads(nullptr, &threads) == MPCORE_OK && threads == 3);
        const char* isa = "";
        EXPECT(mpcore_get_isa(nullptr, &isa) == MPCORE_OK && isa[0] == 's');
        EXPECT(mpcore_set_num_threads(inherited, 2) == MPCORE_OK && call(inherited));
        mpcore_context_destroy(inherited);
      },
      ctx);
  EXPECT(code == 0);
  leave = true;
  in_explicit.join();
  in_default.join();
  EXPECT(call(ctx) && call(nullptr));

  EXPECT(exit_code_of_child(mpcore_context_destroy, ctx) == 0);
  EXPECT(call(ctx));
  mpcore_context_destroy(ctx);
}

}  // namespace

int main() {
#if defined(__SANITIZE_THREAD__)
  std::puts("skipped: ThreadSanitizer cannot follow threads that a forked child starts");
  return 77;
#endif
  test_fork_then_use();
  return expect_result();
}
