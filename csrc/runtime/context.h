// mpcore_context, and the one way api/ enters it: a Session.
#ifndef MPCORE_RUNTIME_CONTEXT_H_
#define MPCORE_RUNTIME_CONTEXT_H_

#include <stdint.h>

#include <type_traits>

#include "dispatch/kernel_table.h"
#include "mpcore/base.h"
#include "mpcore/gemm.h"
#include "runtime/fpenv.h"

namespace mpcore {

// Bodies of the context functions of base.h. `options` has been checked to be a whole struct.
mpcore_status create_context(const mpcore_context_options& options, mpcore_context** out);
void destroy_context(mpcore_context* ctx);
mpcore_status set_num_threads(mpcore_context* ctx, int32_t num_threads);
mpcore_status get_num_threads(mpcore_context* ctx, int32_t* num_threads);
mpcore_status set_isa(mpcore_context* ctx, const char* isa);
mpcore_status get_isa(mpcore_context* ctx, const char** isa);
mpcore_status set_matmul_precision(mpcore_context* ctx, mpcore_matmul_precision precision);
mpcore_status get_matmul_precision(mpcore_context* ctx, mpcore_matmul_precision* precision);

// A context that a thread is inside of, and those around it, innermost first. Tasks on other
// threads see the chain of the thread that shared them out.
struct Frame {
  const mpcore_context* ctx;
  const Frame* outer;
};

// Holds a context for the length of one API call: waits for its turn on the default context, fails
// with MPCORE_BUSY on an explicit one that another thread is using. A call made from inside a task
// of the same context runs serially.
class Session {
  struct Workspace;

 public:
  explicit Session(mpcore_context* ctx);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // MPCORE_OK, or why the session could not be entered (message already set). Check it first.
  mpcore_status status() const { return status_; }
  const KernelTable& kernels() const { return *kernels_; }
  int32_t num_threads() const { return num_threads_; }
  // The context's setting: HIGHEST, HIGH, or MEDIUM.
  mpcore_matmul_precision matmul_precision() const;

  // Runs body(i) once for each i in [0, n), under `mode`, and returns when all are done. `body`
  // must not throw. Which thread runs which i is unspecified: results may depend on i only.
  template <class Body>
  mpcore_status parallel_for(int64_t n, FpMode mode, Body&& body) {
    using Called = std::remove_reference_t<Body>;
    return run(
        n, mode, [](void* arg, int64_t i) { (*static_cast<Called*>(arg))(i); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Runs body() on the calling thread under `mode`: for work too small to share.
  template <class Body>
  mpcore_status serial(FpMode mode, Body&& body) {
    return parallel_for(1, mode, [&](int64_t) { body(); });
  }

  // 64-byte aligned workspace that lives as long as the session; nullptr when memory is out
  // (message already set; return MPCORE_OUT_OF_MEMORY). Only on the thread that holds the session.
  void* workspace(int64_t bytes);

  // Gives back at its end the workspace taken since its beginning.
  class WorkspaceScope {
   public:
    explicit WorkspaceScope(Session& session) : session_(session), kept_(session.workspaces_) {}
    ~WorkspaceScope() { session_.free_workspaces(kept_); }
    WorkspaceScope(const WorkspaceScope&) = delete;
    WorkspaceScope& operator=(const WorkspaceScope&) = delete;

   private:
    Session& session_;
    const Workspace* const kept_;
  };

 private:
  friend mpcore_status set_num_threads(mpcore_context* ctx, int32_t num_threads);
  friend mpcore_status set_isa(mpcore_context* ctx, const char* isa);
  friend mpcore_status set_matmul_precision(mpcore_context* ctx, mpcore_matmul_precision precision);

  struct Job;

  void free_workspaces(const Workspace* kept);
  mpcore_status run(int64_t n, FpMode mode, mpcore_task task, void* arg);
  mpcore_status run_on_host(Job& job);
  // Succeeds only where the settings of the context may change: not inside one of its own tasks.
  mpcore_status check_outermost() const;

  mpcore_context* ctx_ = nullptr;
  Frame frame_{};
  bool nested_ = false;
  mpcore_status status_ = MPCORE_OK;
  int32_t num_threads_ = 1;
  const KernelTable* kernels_ = nullptr;
  Workspace* workspaces_ = nullptr;
};

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_CONTEXT_H_
