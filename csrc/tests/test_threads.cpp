// The pool alone: every task once, for any number of tasks and threads.
#include <signal.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "expect.h"
#include "runtime/threads.h"

namespace {

using mpcore::ThreadPool;

struct Counts {
  explicit Counts(int64_t n) : hits(static_cast<size_t>(n)) {}
  std::vector<std::atomic<int>> hits;

  static void range(void* arg, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) static_cast<Counts*>(arg)->hits[static_cast<size_t>(i)]++;
  }
  bool all(int expected) const {
    for (const auto& hit : hits) {
      if (hit.load() != expected) return false;
    }
    return true;
  }
};

void test_every_task_runs_once() {
  for (const int threads : {1, 2, 3, 8}) {
    for (const bool spin : {false, true}) {
      ThreadPool pool(threads, spin);
      for (const int64_t n : {1, 2, 3, 7, 100, 4095, 4096, 4097, 8193, 100000}) {
        Counts counts(n);
        pool.run(n, Counts::range, &counts);
        EXPECT(counts.all(1));
      }
      pool.run(0, Counts::range, nullptr);
      pool.run(-1, Counts::range, nullptr);
    }
  }
}

// Jobs follow each other so closely that workers meet the next one while they leave the last.
void test_jobs_back_to_back() {
  ThreadPool pool(4, true);
  for (int job = 0; job < 20000; ++job) {
    Counts counts(1 + job % 9);
    pool.run(1 + job % 9, Counts::range, &counts);
    if (!counts.all(1)) {
      EXPECT(counts.all(1));
      return;
    }
  }
}

void test_largest_count() {
  ThreadPool pool(2, false);
  struct Sum {
    std::atomic<uint64_t> size{0};
    std::atomic<bool> ordered{true};
  } sum;
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  pool.run(
      kMax,
      [](void* arg, int64_t begin, int64_t end) {
        Sum& total = *static_cast<Sum*>(arg);
        if (begin < 0 || end <= begin) total.ordered = false;
        total.size += static_cast<uint64_t>(end - begin);
      },
      &sum);
  EXPECT(sum.ordered && sum.size == static_cast<uint64_t>(kMax));
}

// Tasks that wait for each other: the work is shared, the caller takes part, and nobody else comes.
void test_all_threads_take_part() {
  constexpr int kThreads = 3;
  ThreadPool pool(kThreads, false);
  struct Meeting {
    std::atomic<int> arrived{0};
    std::mutex mutex;
    std::set<std::thread::id> threads;
  } meeting;
  pool.run(
      kThreads,
      [](void* arg, int64_t, int64_t) {
        Meeting& m = *static_cast<Meeting*>(arg);
        {
          const std::lock_guard lock(m.mutex);
          m.threads.insert(std::this_thread::get_id());
        }
        ++m.arrived;
        while (m.arrived < kThreads) std::this_thread::yield();
      },
      &meeting);
  EXPECT(meeting.threads.size() == kThreads);
  EXPECT(meeting.threads.count(std::this_thread::get_id()) == 1);
}

// Signals belong to the host's threads.
void test_workers_block_signals() {
  ThreadPool pool(2, false);
  struct Masks {
    std::atomic<int> arrived{0}, blocked{0};
  } masks;
  pool.run(
      2,
      [](void* arg, int64_t, int64_t) {
        Masks& m = *static_cast<Masks*>(arg);
        sigset_t mask;
        pthread_sigmask(SIG_SETMASK, nullptr, &mask);
        if (sigismember(&mask, SIGINT) == 1) ++m.blocked;
        ++m.arrived;
        while (m.arrived < 2) std::this_thread::yield();
      },
      &masks);
  EXPECT(masks.blocked == 1);
}

}  // namespace

int main() {
  test_every_task_runs_once();
  test_jobs_back_to_back();
  test_largest_count();
  test_all_threads_take_part();
  test_workers_block_signals();
  return expect_result();
}
