// The thread pool: workers that help the calling thread through the tasks of one job at a time. It
// knows no context, no floating-point mode, and no process other than the one it was made in.
#ifndef MPCORE_RUNTIME_THREADS_H_
#define MPCORE_RUNTIME_THREADS_H_

#include <stdint.h>

#include <atomic>
#include <thread>
#include <vector>

namespace mpcore {

class ThreadPool {
 public:
  // Does the tasks of [begin, end). Must not throw.
  using Range = void (*)(void* arg, int64_t begin, int64_t end);

  // A pool of `threads` threads, the caller of run() included. Workers start when a job first has
  // work for them. `spin`: idle threads stay awake for a moment; wrong with more threads than CPUs.
  ThreadPool(int32_t threads, bool spin);
  // Joins the workers. No job may be running.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Covers [0, n) with calls of `range` on disjoint pieces and returns when all are done. One
  // caller at a time; not from inside a job of this pool. It waits for pieces that a worker has
  // begun, never for a worker: a thread that could not be started, or sleeps, costs speed only.
  void run(int64_t n, Range range, void* arg);

 private:
  void add_workers(int64_t wanted);
  void wake_workers(int64_t wanted);
  void work();
  void drain();
  void finish();
  template <class Done>
  bool spin_until(Done done) const;

  int32_t threads_;
  const bool spin_;
  std::vector<std::thread> workers_;

  // Upper half: number of the job; lower half: its pieces that nobody has claimed. Taking a piece
  // is one compare-and-swap, which fails if the job is no longer the one whose fields were read.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<uint32_t> unfinished_{0};  // pieces of the job that are not done
  alignas(64) std::atomic<uint32_t> wake_{0};        // changes with every job; workers sleep on it
  std::atomic<bool> stop_{false};

  // The job. Written only while the ticket has no pieces left.
  alignas(64) std::atomic<int64_t> n_{0};
  std::atomic<int64_t> piece_{0};
  std::atomic<uint32_t> pieces_{0};
  std::atomic<Range> range_{nullptr};
  std::atomic<void*> arg_{nullptr};
};

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_THREADS_H_
