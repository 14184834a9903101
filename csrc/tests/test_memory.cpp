// The buffer pool: alignment, reuse, bounds, threads, forks.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "expect.h"
#include "runtime/memory.h"

namespace {

using mpcore::allocate_buffer;
using mpcore::buffer_info;
using mpcore::free_buffer;

constexpr int64_t kMiB = int64_t{1} << 20;

// Sizes around every class bound: whole, writable, aligned, apart, and counted.
void test_sizes() {
  for (int64_t power = 1; power <= 64 * kMiB; power *= 2) {
    for (const int64_t eighths : {8, 9, 10, 12, 14}) {
      for (const int64_t delta : {-1, 0, 1}) {
        const int64_t size = power * eighths / 8 + delta;
        const int64_t before = buffer_info().in_use;
        char* block = static_cast<char*>(allocate_buffer(size));
        EXPECT(block != nullptr && reinterpret_cast<uintptr_t>(block) % 64 == 0);
        EXPECT(buffer_info().in_use == before + size);
        if (size > 0) block[0] = block[size - 1] = 1;
        if (size >= 2 * kMiB) EXPECT(reinterpret_cast<uintptr_t>(block) % (2 * kMiB) == 0);
        free_buffer(block, size);
        EXPECT(buffer_info().in_use == before);
        EXPECT(buffer_info().cached <= buffer_info().limit);
        const int64_t cached = buffer_info().cached;
        mpcore::trim_buffers();
        EXPECT(cached >= size && cached <= size + size / 4 + 64);
        EXPECT(buffer_info().cached == 0);
      }
    }
  }
}

void test_freed_blocks_come_back() {
  for (const int64_t size : {int64_t{100}, 3 * kMiB}) {
    void* first = allocate_buffer(size);
    void* second = allocate_buffer(size);
    EXPECT(first != second);
    free_buffer(first, size);
    EXPECT(allocate_buffer(size) == first);
    free_buffer(first, size);
    free_buffer(second, size);
  }
  mpcore::trim_buffers();
}

// Beyond the bound the class that was unused for longest goes first.
void test_kept_blocks_are_bounded() {
  const int64_t limit = buffer_info().limit;
  void* whole = allocate_buffer(2 * limit);
  free_buffer(whole, 2 * limit);
  EXPECT(buffer_info().cached == 0);

  const int64_t size = limit / 8;
  void* old = allocate_buffer(64);
  free_buffer(old, 64);
  std::vector<void*> blocks(12);
  for (void*& block : blocks) block = allocate_buffer(size);
  for (void* block : blocks) free_buffer(block, size);
  const int64_t cached = buffer_info().cached;
  EXPECT(cached <= limit && cached >= limit / 2);
  EXPECT(cached % 128 == 0);  // the old 64 bytes have gone
  mpcore::trim_buffers();
}

void test_threads_free_for_each_other() {
  constexpr int kThreads = 4, kRounds = 2000;
  std::atomic<char*> mailbox[kThreads] = {};
  std::atomic<int> clobbered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        const int64_t size = 256;
        char* block = static_cast<char*>(allocate_buffer(size));
        std::memset(block, t, static_cast<size_t>(size));
        char* other = mailbox[(t + i) % kThreads].exchange(block);
        if (other == nullptr) continue;
        if (other[0] != other[size - 1]) ++clobbered;
        free_buffer(other, size);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (auto& box : mailbox) free_buffer(box, 256);
  EXPECT(clobbered == 0 && buffer_info().in_use == 0);
}

// The child finds the pool unlocked although other threads were in it.
void test_fork_while_in_use() {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) free_buffer(allocate_buffer(4096), 4096);
  });
  for (int i = 0; i < 50; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      void* block = allocate_buffer(4096);
      free_buffer(block, 4096);
      _exit(block != nullptr ? 0 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  stop = true;
  busy.join();
}

}  // namespace

int main() {
  test_sizes();
  test_freed_blocks_come_back();
  test_kept_blocks_are_bounded();
  test_threads_free_for_each_other();
  test_fork_while_in_use();
  return expect_result();
}
