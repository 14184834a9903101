#include "runtime/memory.h"

#include <pthread.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>

#include "runtime/resources.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace mpcore {
namespace {

constexpr int64_t kHugePage = int64_t{1} << 21;
constexpr int64_t kLargestBlock = int64_t{1} << 46;
constexpr int64_t kLargestCache = int64_t{1} << 30;
constexpr int kClasses = 4 * 48;

struct SizeClass {
  int index;
  int64_t bytes;  // of a block
};

// Class bounds in (2^k, 2^(k+1)] are a quarter of 2^k apart.
SizeClass size_class(int64_t size) {
  const uint64_t lines = (static_cast<uint64_t>(std::max<int64_t>(size, 1)) + 63) / 64;
  const uint64_t last = lines * 64 - 1;
  const int width = std::bit_width(last);
  const int step = width - 3;
  return {.index = 4 * width + static_cast<int>(last >> step & 3),
          .bytes = static_cast<int64_t>(((last >> step) + 1) << step)};
}

#if defined(__linux__)

// Over-maps by one huge page and cuts off what lies outside the alignment.
void* map_pages(int64_t bytes) {
  const auto mapped_bytes = static_cast<size_t>(bytes + kHugePage);
  void* const mapped =
      mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const first = static_cast<char*>(mapped);
  const auto head =
      static_cast<size_t>(-reinterpret_cast<uintptr_t>(mapped) & uintptr_t{kHugePage - 1});
  char* const block = first + head;
  const size_t tail = static_cast<size_t>(kHugePage) - head;
  if (head != 0) munmap(first, head);
  if (tail != 0) munmap(block + bytes, tail);
  madvise(block, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a wish; refusal costs speed only
  return block;
}

bool is_mapped(int64_t bytes) { return bytes >= kHugePage; }
void unmap_pages(void* block, int64_t bytes) { munmap(block, static_cast<size_t>(bytes)); }

#else

bool is_mapped(int64_t) { return false; }
void* map_pages(int64_t) { return nullptr; }
void unmap_pages(void*, int64_t) {}

#endif

void* system_allocate(int64_t bytes) {
  return is_mapped(bytes) ? map_pages(bytes)
                          : std::aligned_alloc(kBufferAlignment, static_cast<size_t>(bytes));
}

void system_free(void* block, int64_t bytes) {
  if (is_mapped(bytes)) {
    unmap_pages(block, bytes);
  } else {
    std::free(block);
  }
}

// A kept block; the links live in the block itself.
struct Block {
  Block* next;
  int64_t bytes;
};

void release(Block* blocks) {
  while (blocks != nullptr) {
    Block* const next = blocks->next;
    system_free(blocks, blocks->bytes);
    blocks = next;
  }
}

struct BufferPool {
  std::mutex mutex;
  Block* kept[kClasses] = {};
  uint64_t last_used[kClasses] = {};
  uint64_t clock = 0;
  int64_t in_use = 0;
  int64_t cached = 0;
  int64_t limit = 0;

  void* pop(int index) {
    Block* const block = kept[index];
    last_used[index] = ++clock;
    if (block == nullptr) return nullptr;
    kept[index] = block->next;
    cached -= block->bytes;
    return block;
  }

  void push(int index, Block* block) {
    block->next = kept[index];
    kept[index] = block;
    cached += block->bytes;
    last_used[index] = ++clock;
  }

  // Takes blocks of the classes unused for longest until at most `bound` bytes are left.
  Block* evict(int64_t bound) {
    Block* evicted = nullptr;
    while (cached > bound) {
      int oldest = -1;
      for (int i = 0; i < kClasses; ++i) {
        if (kept[i] != nullptr && (oldest < 0 || last_used[i] < last_used[oldest])) oldest = i;
      }
      Block* const block = kept[oldest];
      kept[oldest] = block->next;
      cached -= block->bytes;
      block->next = evicted;
      evicted = block;
    }
    return evicted;
  }
};

constinit BufferPool g_pool;

// The pool on first use: learns its limit, and arranges that no other thread is inside it when the
// process forks, so that the child finds it whole and unlocked. Only the first use can throw.
BufferPool& pool() {
  static const bool ready = [] {
    g_pool.limit = std::min(usable_memory() / 8, kLargestCache);
    pthread_atfork([] { g_pool.mutex.lock(); }, [] { g_pool.mutex.unlock(); },
                   [] { g_pool.mutex.unlock(); });
    return true;
  }();
  static_cast<void>(ready);
  return g_pool;
}

}  // namespace

void* allocate_buffer(int64_t size) {
  if (size > kLargestBlock) return nullptr;
  const SizeClass wanted = size_class(size);
  BufferPool& shared = pool();
  void* block;
  {
    const std::lock_guard lock(shared.mutex);
    block = shared.pop(wanted.index);
    if (block != nullptr) {
      shared.in_use += size;
      return block;
    }
  }
  block = system_allocate(wanted.bytes);
  if (block == nullptr) {
    trim_buffers();
    block = system_allocate(wanted.bytes);
    if (block == nullptr) return nullptr;
  }
  const std::lock_guard lock(shared.mutex);
  shared.in_use += size;
  return block;
}

void free_buffer(void* pointer, int64_t size) noexcept {
  if (pointer == nullptr) return;
  const SizeClass freed = size_class(size);
  Block* const block = new (pointer) Block{.next = nullptr, .bytes = freed.bytes};
  BufferPool& shared = pool();
  Block* evicted = block;
  {
    const std::lock_guard lock(shared.mutex);
    shared.in_use -= size;
    if (freed.bytes <= shared.limit) {
      shared.push(freed.index, block);
      evicted = shared.evict(shared.limit);
    }
  }
  release(evicted);
}

BufferInfo buffer_info() {
  BufferPool& shared = pool();
  const std::lock_guard lock(shared.mutex);
  return {.in_use = shared.in_use, .cached = shared.cached, .limit = shared.limit};
}

void trim_buffers() {
  BufferPool& shared = pool();
  Block* evicted;
  {
    const std::lock_guard lock(shared.mutex);
    evicted = shared.evict(0);
  }
  release(evicted);
}

}  // namespace mpcore
