// Who may be inside a context when: turns, BUSY, nesting.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "expect.h"
#include "mpcore/base.h"
#include "session_calls.h"

namespace {

void test_session_basics() {
  mpcore_context* ctx = make_context(3);
  {
    Session session(ctx);
    EXPECT(session.status() == MPCORE_OK && session.num_threads() == 3);
    EXPECT(session.kernels().name != nullptr);
    int ran = 0;
    EXPECT(session.serial(FpMode::kIeee, [&] { ++ran; }) == MPCORE_OK && ran == 1);
    EXPECT(session.parallel_for(0, FpMode::kIeee, [&](int64_t) { ++ran; }) == MPCORE_OK &&
           ran == 1);
    char* first = static_cast<char*>(session.workspace(100));
    char* second = static_cast<char*>(session.workspace(0));
    EXPECT(first != nullptr && second != nullptr && first != second);
    EXPECT(reinterpret_cast<uintptr_t>(first) % 64 == 0);
    EXPECT(session.workspace(-1) == nullptr && session.workspace(INT64_MAX) == nullptr);
  }
  EXPECT(call(ctx));
  mpcore_context_destroy(ctx);
  int64_t in_use = -1;
  EXPECT(mpcore_buffer_info(&in_use, nullptr, nullptr) == MPCORE_OK && in_use == 0);
}

// Several threads on the default context: one inside at a time, each gets its turn.
void test_default_context_takes_turns() {
  EXPECT(mpcore_set_num_threads(nullptr, 2) == MPCORE_OK);
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false}, stop{false}, failed{false};
  std::thread busy([&] {
    while (!stop) {
      Session session(nullptr);
      if (++inside != 1) overlapped = true;
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      --inside;
    }
  });
  for (int i = 0; i < 50; ++i) {
    Session session(nullptr);
    if (session.status() != MPCORE_OK) failed = true;
    if (++inside != 1) overlapped = true;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    --inside;
  }
  stop = true;
  busy.join();
  std::vector<std::thread> callers;
  for (int t = 0; t < 4; ++t) {
    callers.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        if (!call(nullptr)) failed = true;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT(!overlapped && !failed);
}

void test_explicit_context_is_busy() {
  mpcore_context* ctx = make_context(2);
  mpcore_context* other = make_context(2);
  mpcore_status status = MPCORE_OK, set_status = MPCORE_OK;
  bool other_ran = false;
  int32_t threads = 0;
  {
    Session session(ctx);
    std::thread([&] {
      status = Session(ctx).status();
      set_status = mpcore_set_num_threads(ctx, 1);
      EXPECT(mpcore_get_num_threads(ctx, &threads) == MPCORE_OK);  // reading is always allowed
      other_ran = call(other);
    }).join();
  }
  EXPECT(status == MPCORE_BUSY && set_status == MPCORE_BUSY && threads == 2 && other_ran);
  EXPECT(call(ctx));
  mpcore_context_destroy(ctx);
  mpcore_context_destroy(other);
}

// A call from inside a task of the same context: serial, on whichever thread the task is; also when
// another context lies between. The settings cannot change meanwhile.
void test_nested_calls_run_serially() {
  mpcore_context* outer = make_context(3);
  mpcore_context* between = make_context(2);
  std::atomic<int> nested{0}, refused{0}, wrong{0}, through{0};
  {
    Session session(outer);
    EXPECT(session.parallel_for(64, FpMode::kIeee, [&](int64_t) {
      Session inner(outer);
      const auto caller = std::this_thread::get_id();
      if (inner.status() != MPCORE_OK || inner.num_threads() != 1) ++wrong;
      inner.parallel_for(10, FpMode::kFlushAll, [&](int64_t) {
        if (std::this_thread::get_id() != caller) ++wrong;
        ++nested;
      });
      if (mpcore_set_num_threads(outer, 1) == MPCORE_BUSY) ++refused;
    }) == MPCORE_OK);
    EXPECT(session.serial(FpMode::kIeee, [&] {
      Session middle(between);
      middle.parallel_for(64, FpMode::kIeee, [&](int64_t) { through += call(outer) ? 1 : 0; });
    }) == MPCORE_OK);
  }
  EXPECT(nested == 640 && refused == 64 && wrong == 0 && through == 64);
  EXPECT(call(outer));
  mpcore_context_destroy(outer);
  mpcore_context_destroy(between);
}

void test_exceptions_leave_the_context_free() {
  mpcore_context* ctx = make_context(1);
  try {
    Session session(ctx);
    EXPECT(session.workspace(100) != nullptr);
    session.serial(FpMode::kFlushAll, [] { throw 1; });
    EXPECT(false);
  } catch (int) {
  }
  EXPECT(call(ctx));
  mpcore_context_destroy(ctx);
}

}  // namespace

int main() {
  test_session_basics();
  test_default_context_takes_turns();
  test_explicit_context_is_busy();
  test_nested_calls_run_serially();
  test_exceptions_leave_the_context_free();
  return expect_result();
}
