#include "runtime/threads.h"

#include <signal.h>

#include <algorithm>
#include <chrono>
#include <system_error>

namespace mpcore {
namespace {

// Waking a sleeper takes 50-80 us on a virtual machine. In a training step nine of ten pauses
// between jobs are shorter than this; a much longer spin takes from other processes, and on busy
// CPUs from the caller itself, more than it gives.
constexpr std::chrono::microseconds kSpinTime{200};
constexpr int kSpinsPerClockRead = 32;

// More tasks than this are claimed several at a time, so that claiming stays cheap.
constexpr int64_t kMaxPieces = 4096;

void relax_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

// Blocks all signals for threads started in this scope: signals belong to the host's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

}  // namespace

ThreadPool::ThreadPool(int32_t threads, bool spin) : threads_(threads), spin_(spin) {
  workers_.reserve(static_cast<size_t>(threads - 1));
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  wake_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t n, Range range, void* arg) {
  if (n <= 0) return;
  const int64_t piece = n / kMaxPieces + (n % kMaxPieces != 0);
  const int64_t pieces = n / piece + (n % piece != 0);
  add_workers(std::min<int64_t>(pieces, threads_) - 1);

  n_.store(n, std::memory_order_relaxed);
  piece_.store(piece, std::memory_order_relaxed);
  pieces_.store(static_cast<uint32_t>(pieces), std::memory_order_relaxed);
  range_.store(range, std::memory_order_relaxed);
  arg_.store(arg, std::memory_order_relaxed);
  unfinished_.store(static_cast<uint32_t>(pieces), std::memory_order_relaxed);
  const uint64_t job = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(job << 32 | static_cast<uint64_t>(pieces), std::memory_order_release);

  wake_workers(pieces - 1);
  drain();
  finish();
}

void ThreadPool::add_workers(int64_t wanted) {
  if (static_cast<int64_t>(workers_.size()) >= wanted) return;
  const SignalsBlocked blocked;
  while (static_cast<int64_t>(workers_.size()) < wanted) {
    try {
      workers_.emplace_back(&ThreadPool::work, this);
    } catch (const std::system_error&) {
      // The system allows no more threads; those there are do all the work.
      threads_ = static_cast<int32_t>(workers_.size()) + 1;
      return;
    }
  }
}

void ThreadPool::wake_workers(int64_t wanted) {
  wake_.fetch_add(1, std::memory_order_release);
  if (wanted >= static_cast<int64_t>(workers_.size())) {
    wake_.notify_all();
  } else {
    for (int64_t i = 0; i < wanted; ++i) wake_.notify_one();
  }
}

void ThreadPool::work() {
  while (true) {
    // Read before looking for work: a job that appears after the look has changed it.
    const uint32_t seen = wake_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    drain();
    const auto changed = [&] { return wake_.load(std::memory_order_relaxed) != seen; };
    if (!spin_until(changed)) wake_.wait(seen, std::memory_order_acquire);
  }
}

// Claims and does pieces until none is left to claim.
void ThreadPool::drain() {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (static_cast<uint32_t>(ticket) != 0) {
    const int64_t n = n_.load(std::memory_order_relaxed);
    const int64_t piece = piece_.load(std::memory_order_relaxed);
    const uint32_t pieces = pieces_.load(std::memory_order_relaxed);
    const Range range = range_.load(std::memory_order_relaxed);
    void* const arg = arg_.load(std::memory_order_relaxed);
    if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire)) {
      continue;
    }
    const int64_t begin = (pieces - static_cast<uint32_t>(ticket)) * piece;
    range(arg, begin, std::min(piece, n - begin) + begin);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

// Waits for the pieces that workers are still in.
void ThreadPool::finish() {
  const auto done = [&] { return unfinished_.load(std::memory_order_acquire) == 0; };
  if (spin_until(done)) return;
  for (uint32_t left; (left = unfinished_.load(std::memory_order_acquire)) != 0;) {
    unfinished_.wait(left, std::memory_order_acquire);
  }
}

// Polls `done` for a bounded time; false if it never held.
template <class Done>
bool ThreadPool::spin_until(Done done) const {
  if (done()) return true;
  if (!spin_) return false;
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < kSpinsPerClockRead; ++i) {
      relax_cpu();
      if (done()) return true;
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace mpcore
