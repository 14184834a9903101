// The host's own threads and memory in place of mpcore's.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "expect.h"
#include "mpcore/base.h"
#include "runtime/context.h"

namespace {

using mpcore::FpMode;
using mpcore::Session;

struct Host {
  int64_t calls = 0, tasks = 0;
  int32_t result = 0;
  int64_t skip = 0;  // tasks to leave out
  size_t misalign = 0;
  bool empty = false;
  std::multiset<size_t> blocks;

  static int32_t parallel_for(void* pointer, int64_t n, mpcore_task task, void* arg) {
    Host& host = *static_cast<Host*>(pointer);
    ++host.calls;
    host.tasks += n;
    std::thread half([=] {
      for (int64_t i = 1; i < n; i += 2) task(arg, i);
    });
    for (int64_t i = 2 * host.skip; i < n; i += 2) task(arg, i);
    half.join();
    return host.result;
  }

  static void* allocate(void* pointer, size_t size, size_t alignment) {
    Host& host = *static_cast<Host*>(pointer);
    if (host.empty) return nullptr;
    host.blocks.insert(size);
    const size_t rounded = (size + alignment) / alignment * alignment + alignment;
    return static_cast<char*>(std::aligned_alloc(alignment, rounded)) + host.misalign;
  }

  static void deallocate(void* pointer, void* block, size_t size) {
    Host& host = *static_cast<Host*>(pointer);
    const auto found = host.blocks.find(size);
    EXPECT(found != host.blocks.end());
    if (found != host.blocks.end()) host.blocks.erase(found);
    std::free(static_cast<char*>(block) - host.misalign);
  }
};

mpcore_context* make_context(Host& host, int32_t threads) {
  mpcore_context_options options{};
  options.struct_size = sizeof options;
  options.num_threads = threads;
  options.host = &host;
  options.parallel_for = Host::parallel_for;
  options.allocate = Host::allocate;
  options.deallocate = Host::deallocate;
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_OK);
  return ctx;
}

void test_parallel_for() {
  Host host;
  mpcore_context* ctx = make_context(host, 4);
  std::vector<std::atomic<int>> hits(100);
  std::atomic<int> nested{0};
  {
    Session session(ctx);
    EXPECT(session.num_threads() == 4);
    EXPECT(session.parallel_for(100, FpMode::kIeee, [&](int64_t i) {
      ++hits[static_cast<size_t>(i)];
      Session inner(ctx);
      inner.parallel_for(3, FpMode::kIeee, [&](int64_t) { ++nested; });
    }) == MPCORE_OK);
    EXPECT(session.serial(FpMode::kIeee, [] {}) == MPCORE_OK);
  }
  for (const auto& hit : hits) EXPECT(hit == 1);
  EXPECT(nested == 300 && host.calls == 1 && host.tasks == 100);
  mpcore_context_destroy(ctx);
}

void test_parallel_for_that_fails() {
  Host host;
  mpcore_context* ctx = make_context(host, 2);
  {
    Session session(ctx);
    host.result = 7;
    EXPECT(session.parallel_for(4, FpMode::kIeee, [](int64_t) {}) == MPCORE_INTERNAL);
    EXPECT(std::strstr(mpcore_last_error(), "returned 7") != nullptr);
    host.result = 0;
    host.skip = 1;
    EXPECT(session.parallel_for(4, FpMode::kIeee, [](int64_t) {}) == MPCORE_INTERNAL);
    EXPECT(std::strstr(mpcore_last_error(), "3 of 4") != nullptr);
  }
  mpcore_context_destroy(ctx);
}

void test_allocator() {
  Host host;
  mpcore_context* ctx = make_context(host, 2);
  {
    Session session(ctx);
    void* first = session.workspace(1000);
    void* second = session.workspace(5);
    EXPECT(first != nullptr && second != nullptr);
    EXPECT(reinterpret_cast<uintptr_t>(first) % 64 == 0);
    std::memset(first, 1, 1000);
    std::memset(second, 2, 5);
    EXPECT(host.blocks.size() == 2);
  }
  EXPECT(host.blocks.empty());
  {
    Session session(ctx);
    host.empty = true;
    EXPECT(session.workspace(10) == nullptr);
    host.empty = false;
    host.misalign = 8;
    EXPECT(session.workspace(10) == nullptr);
    EXPECT(std::strstr(mpcore_last_error(), "aligned to 64") != nullptr);
  }
  EXPECT(host.blocks.empty());
  mpcore_context_destroy(ctx);
}

}  // namespace

int main() {
  test_parallel_for();
  test_parallel_for_that_fails();
  test_allocator();
  return expect_result();
}
