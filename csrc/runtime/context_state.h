// The inside of mpcore_context, for context.cpp (which makes and changes it) and session.cpp (which
// enters it).
#ifndef MPCORE_RUNTIME_CONTEXT_STATE_H_
#define MPCORE_RUNTIME_CONTEXT_STATE_H_

#include <stdint.h>

#include <atomic>
#include <memory>

#include "mpcore/base.h"
#include "mpcore/gemm.h"
#include "runtime/threads.h"

struct mpcore_context {
  // Who is inside. Everything is keyed by process, so that a child forked while another thread was
  // inside finds the context free.
  bool is_default = false;
  int32_t process = 0;                 // default context: the process it was made in
  std::atomic<uint32_t> next_turn{0};  // default context: first come, first served
  std::atomic<uint32_t> turn{0};
  std::atomic<int32_t> owner{0};  // explicit contexts: process of the thread inside, or 0

  // Settings. Changed from inside only; atomic, since they may be read from outside.
  std::atomic<int32_t> num_threads{1};
  std::atomic<int32_t> level{0};
  std::atomic<mpcore_matmul_precision> precision{MPCORE_MATMUL_PRECISION_HIGHEST};

  mpcore_parallel_for parallel_for = nullptr;
  void* host = nullptr;
  void* (*allocate)(void* host, size_t size, size_t alignment) = nullptr;
  void (*deallocate)(void* host, void* pointer, size_t size) = nullptr;

  std::unique_ptr<mpcore::ThreadPool> pool;  // made when a call first shares out work
  int32_t pool_process = 0;                  // the process whose threads it has
};

namespace mpcore {

// The context that NULL stands for. Made by the first call; a child process gets its own, with the
// settings of its parent's. Fails if MPCORE_NUM_THREADS or MPCORE_ISA is malformed.
mpcore_status default_context(mpcore_context** out);

// Forgets the threads. Those of a parent process do not exist here and are not waited for.
void drop_pool(mpcore_context& ctx);

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_CONTEXT_STATE_H_
