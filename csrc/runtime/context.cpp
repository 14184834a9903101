#include "runtime/context.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "dispatch/dispatch.h"
#include "runtime/context_state.h"
#include "runtime/error.h"
#include "runtime/process.h"
#include "runtime/resources.h"

namespace mpcore {
namespace {

constexpr int32_t kMaxThreads = 1024;

// An environment variable; nullptr if unset or empty.
const char* environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

mpcore_status default_num_threads(int32_t* num_threads) {
  const char* const text = environment("MPCORE_NUM_THREADS");
  if (text == nullptr) {
    *num_threads = std::min(usable_cpus(), kMaxThreads);
    return MPCORE_OK;
  }
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || value < 1 || value > kMaxThreads) {
    return fail(MPCORE_INVALID_ARGUMENT,
                "MPCORE_NUM_THREADS must be an integer in [1, %d] (got MPCORE_NUM_THREADS=%s)",
                kMaxThreads, text);
  }
  *num_threads = static_cast<int32_t>(value);
  return MPCORE_OK;
}

// 0: the default.
mpcore_status resolve_num_threads(int32_t wanted, int32_t* num_threads) {
  if (wanted < 0 || wanted > kMaxThreads) {
    return fail(MPCORE_INVALID_ARGUMENT,
                "num_threads must be in [1, %d], or 0 for the default (got num_threads=%d)",
                kMaxThreads, wanted);
  }
  if (wanted == 0) return default_num_threads(num_threads);
  *num_threads = wanted;
  return MPCORE_OK;
}

// nullptr: MPCORE_ISA, else the default level.
mpcore_status resolve_level(const char* wanted, int32_t* level) {
  const char* const source = wanted != nullptr ? "isa" : "MPCORE_ISA";
  const char* const name = wanted != nullptr ? wanted : environment("MPCORE_ISA");
  if (name == nullptr) {
    *level = default_level();
    return MPCORE_OK;
  }
  const int32_t found = find_level(name);
  if (found < 0) {
    return fail(MPCORE_INVALID_ARGUMENT, "%s must be one of %s (got %s=%s)", source,
                available_levels().c_str(), source, name);
  }
  if (const char* const lack = level_lacks_here(found)) {
    return fail(MPCORE_UNSUPPORTED, "%s=%s cannot be selected here: %s. Available: %s", source,
                name, lack, available_levels().c_str());
  }
  *level = found;
  return MPCORE_OK;
}

mpcore_status resolve(mpcore_context* ctx, mpcore_context** out) {
  if (ctx == nullptr) return default_context(out);
  *out = ctx;
  return MPCORE_OK;
}

constinit std::atomic<mpcore_context*> g_default{nullptr};

}  // namespace

void drop_pool(mpcore_context& ctx) {
  if (ctx.pool_process != current_process()) static_cast<void>(ctx.pool.release());
  ctx.pool.reset();
}

mpcore_status default_context(mpcore_context** out) {
  const int32_t process = current_process();
  mpcore_context* seen = g_default.load(std::memory_order_acquire);
  if (seen != nullptr && seen->process == process) {
    *out = seen;
    return MPCORE_OK;
  }
  auto made = std::make_unique<mpcore_context>();
  made->is_default = true;
  made->process = process;
  int32_t num_threads, level;
  if (seen != nullptr) {
    made->precision.store(seen->precision.load(std::memory_order_relaxed),
                          std::memory_order_relaxed);
    num_threads = seen->num_threads.load(std::memory_order_relaxed);
    level = seen->level.load(std::memory_order_relaxed);
  } else {
    if (const mpcore_status status = resolve_num_threads(0, &num_threads)) return status;
    if (const mpcore_status status = resolve_level(nullptr, &level)) return status;
  }
  made->num_threads.store(num_threads, std::memory_order_relaxed);
  made->level.store(level, std::memory_order_relaxed);
  // Never destroyed: threads may be inside while the process ends. If another thread was faster,
  // its context counts. The parent's is left alone: its locks and threads are as the fork found
  // them.
  if (g_default.compare_exchange_strong(seen, made.get(), std::memory_order_acq_rel)) {
    seen = made.release();
  }
  *out = seen;
  return MPCORE_OK;
}

mpcore_status create_context(const mpcore_context_options& options, mpcore_context** out) {
  if ((options.allocate == nullptr) != (options.deallocate == nullptr)) {
    return fail(MPCORE_INVALID_ARGUMENT,
                "mpcore_context_create: options->allocate and options->deallocate must be given "
                "both or neither (got only %s)",
                options.allocate != nullptr ? "allocate" : "deallocate");
  }
  int32_t num_threads, level;
  if (const mpcore_status status = resolve_num_threads(options.num_threads, &num_threads)) {
    return status;
  }
  if (const mpcore_status status = resolve_level(options.isa, &level)) return status;
  auto made = std::make_unique<mpcore_context>();
  made->num_threads.store(num_threads, std::memory_order_relaxed);
  made->level.store(level, std::memory_order_relaxed);
  made->parallel_for = options.parallel_for;
  made->host = options.host;
  made->allocate = options.allocate;
  made->deallocate = options.deallocate;
  *out = made.release();
  return MPCORE_OK;
}

void destroy_context(mpcore_context* ctx) {
  if (ctx == nullptr) return;
  drop_pool(*ctx);
  delete ctx;
}

mpcore_status set_num_threads(mpcore_context* ctx, int32_t num_threads) {
  const Session session(ctx);
  if (const mpcore_status status = session.check_outermost()) return status;
  int32_t resolved;
  if (const mpcore_status status = resolve_num_threads(num_threads, &resolved)) return status;
  if (resolved != session.ctx_->num_threads.exchange(resolved, std::memory_order_relaxed)) {
    drop_pool(*session.ctx_);
  }
  return MPCORE_OK;
}

mpcore_status get_num_threads(mpcore_context* ctx, int32_t* num_threads) {
  if (const mpcore_status status = resolve(ctx, &ctx)) return status;
  *num_threads = ctx->num_threads.load(std::memory_order_relaxed);
  return MPCORE_OK;
}

mpcore_status set_isa(mpcore_context* ctx, const char* isa) {
  const Session session(ctx);
  if (const mpcore_status status = session.check_outermost()) return status;
  int32_t level;
  if (const mpcore_status status = resolve_level(isa, &level)) return status;
  session.ctx_->level.store(level, std::memory_order_relaxed);
  return MPCORE_OK;
}

mpcore_status get_isa(mpcore_context* ctx, const char** isa) {
  if (const mpcore_status status = resolve(ctx, &ctx)) return status;
  *isa = level_name(ctx->level.load(std::memory_order_relaxed));
  return MPCORE_OK;
}

mpcore_status set_matmul_precision(mpcore_context* ctx, mpcore_matmul_precision precision) {
  const Session session(ctx);
  if (const mpcore_status status = session.check_outermost()) return status;
  session.ctx_->precision.store(precision, std::memory_order_relaxed);
  return MPCORE_OK;
}

mpcore_status get_matmul_precision(mpcore_context* ctx, mpcore_matmul_precision* precision) {
  if (const mpcore_status status = resolve(ctx, &ctx)) return status;
  *precision = ctx->precision.load(std::memory_order_relaxed);
  return MPCORE_OK;
}

}  // namespace mpcore
