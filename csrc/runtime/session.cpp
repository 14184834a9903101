#include <atomic>
#include <cinttypes>
#include <limits>
#include <memory>
#include <new>

#include "dispatch/dispatch.h"
#include "runtime/context.h"
#include "runtime/context_state.h"
#include "runtime/error.h"
#include "runtime/memory.h"
#include "runtime/process.h"
#include "runtime/resources.h"

namespace mpcore {
namespace {

thread_local const Frame* t_innermost = nullptr;

bool inside(const mpcore_context* ctx) {
  for (const Frame* frame = t_innermost; frame != nullptr; frame = frame->outer) {
    if (frame->ctx == ctx) return true;
  }
  return false;
}

// First come, first served: with a plain mutex a thread that calls in a loop would take it again
// before a waiting one has woken up.
void wait_for_turn(mpcore_context& ctx) {
  const uint32_t mine = ctx.next_turn.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t now; (now = ctx.turn.load(std::memory_order_acquire)) != mine;) {
    ctx.turn.wait(now, std::memory_order_acquire);
  }
}

bool enter(mpcore_context& ctx) {
  if (ctx.is_default) {
    wait_for_turn(ctx);
    return true;
  }
  const int32_t process = current_process();
  int32_t owner = ctx.owner.load(std::memory_order_relaxed);
  // An owner in another process is one that was inside when this process was forked off.
  return owner != process &&
         ctx.owner.compare_exchange_strong(owner, process, std::memory_order_acquire,
                                           std::memory_order_relaxed);
}

void leave(mpcore_context& ctx) {
  if (ctx.is_default) {
    ctx.turn.fetch_add(1, std::memory_order_release);
    ctx.turn.notify_all();
  } else {
    ctx.owner.store(0, std::memory_order_release);
  }
}

ThreadPool& pool_of(mpcore_context& ctx) {
  const int32_t process = current_process();
  if (ctx.pool != nullptr && ctx.pool_process != process) drop_pool(ctx);
  if (ctx.pool == nullptr) {
    const int32_t threads = ctx.num_threads.load(std::memory_order_relaxed);
    ctx.pool = std::make_unique<ThreadPool>(threads, threads <= usable_cpus());
    ctx.pool_process = process;
  }
  return *ctx.pool;
}

}  // namespace

struct Session::Job {
  const Frame* frame;
  FpMode mode;
  mpcore_task task;
  void* arg;
  int64_t n;
  std::atomic<int64_t> done{0};

  static void run_range(void* pointer, int64_t begin, int64_t end) {
    const Job& job = *static_cast<const Job*>(pointer);
    const Frame* const outer = t_innermost;
    t_innermost = job.frame;
    {
      const FpScope scope(job.mode);
      for (int64_t i = begin; i < end; ++i) job.task(job.arg, i);
    }
    t_innermost = outer;
  }

  static void run_host_task(void* pointer, int64_t i) {
    run_range(pointer, i, i + 1);
    static_cast<Job*>(pointer)->done.fetch_add(1, std::memory_order_release);
  }
};

// Stands in front of the memory it describes.
struct alignas(kBufferAlignment) Session::Workspace {
  Workspace* next;
  int64_t bytes;  // with this header
};

Session::Session(mpcore_context* ctx) {
  if (ctx == nullptr) {
    status_ = default_context(&ctx);
    if (status_ != MPCORE_OK) return;
  }
  nested_ = inside(ctx);
  if (!nested_ && !enter(*ctx)) {
    status_ =
        fail(MPCORE_BUSY,
             "the context is in use by another thread; give each thread its own, or pass NULL "
             "to take turns on the default one");
    return;
  }
  ctx_ = ctx;
  kernels_ = &level_kernels(ctx->level.load(std::memory_order_relaxed));
  num_threads_ = nested_ ? 1 : ctx->num_threads.load(std::memory_order_relaxed);
  frame_ = {.ctx = ctx, .outer = t_innermost};
  t_innermost = &frame_;
}

Session::~Session() {
  if (ctx_ == nullptr) return;
  t_innermost = frame_.outer;
  free_workspaces(nullptr);
  if (!nested_) leave(*ctx_);
}

// All that were taken after `kept`.
void Session::free_workspaces(const Workspace* kept) {
  while (workspaces_ != kept) {
    Workspace* const next = workspaces_->next;
    const int64_t bytes = workspaces_->bytes;
    if (ctx_->deallocate != nullptr) {
      ctx_->deallocate(ctx_->host, workspaces_, static_cast<size_t>(bytes));
    } else {
      free_buffer(workspaces_, bytes);
    }
    workspaces_ = next;
  }
}

mpcore_matmul_precision Session::matmul_precision() const {
  return ctx_->precision.load(std::memory_order_relaxed);
}

mpcore_status Session::check_outermost() const {
  if (status_ != MPCORE_OK) return status_;
  if (!nested_) return MPCORE_OK;
  return fail(MPCORE_BUSY, "a context cannot be changed from inside one of its own tasks");
}

mpcore_status Session::run(int64_t n, FpMode mode, mpcore_task task, void* arg) {
  if (!fp_mode_supported(mode)) {
    return fail(MPCORE_UNSUPPORTED,
                "this CPU architecture cannot flush subnormal results but keep subnormal operands");
  }
  if (n <= 0) return MPCORE_OK;
  Job job{.frame = &frame_, .mode = mode, .task = task, .arg = arg, .n = n};
  if (n == 1 || num_threads_ == 1) {
    Job::run_range(&job, 0, n);
    return MPCORE_OK;
  }
  if (ctx_->parallel_for != nullptr) return run_on_host(job);
  pool_of(*ctx_).run(n, Job::run_range, &job);
  return MPCORE_OK;
}

mpcore_status Session::run_on_host(Job& job) {
  const int32_t result = ctx_->parallel_for(ctx_->host, job.n, Job::run_host_task, &job);
  if (result != 0) {
    return fail(MPCORE_INTERNAL, "the host's parallel_for failed (it returned %" PRId32 ")",
                result);
  }
  const int64_t done = job.done.load(std::memory_order_acquire);
  if (done != job.n) {
    return fail(
        MPCORE_INTERNAL,
        "the host's parallel_for must run every task once before it returns (it ran %" PRId64
        " of %" PRId64 ")",
        done, job.n);
  }
  return MPCORE_OK;
}

void* Session::workspace(int64_t bytes) {
  constexpr int64_t kHeader = sizeof(Workspace);
  void* block = nullptr;
  if (bytes >= 0 && bytes <= std::numeric_limits<int64_t>::max() - kHeader) {
    const auto total = static_cast<size_t>(bytes + kHeader);
    block = ctx_->allocate != nullptr ? ctx_->allocate(ctx_->host, total, kBufferAlignment)
                                      : allocate_buffer(bytes + kHeader);
  }
  if (reinterpret_cast<uintptr_t>(block) % kBufferAlignment != 0) {
    ctx_->deallocate(ctx_->host, block, static_cast<size_t>(bytes + kHeader));
    fail(MPCORE_OUT_OF_MEMORY,
         "the host's allocate must return memory aligned to %" PRId64 " bytes (got %p)",
         kBufferAlignment, block);
    return nullptr;
  }
  if (block == nullptr) {
    fail(MPCORE_OUT_OF_MEMORY, "no memory for %" PRId64 " bytes of workspace", bytes);
    return nullptr;
  }
  workspaces_ = new (block) Workspace{.next = workspaces_, .bytes = bytes + kHeader};
  return static_cast<char*>(block) + kHeader;
}

}  // namespace mpcore
