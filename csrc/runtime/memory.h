// The buffer pool: 64-byte aligned blocks that are kept when freed and handed out again, since page
// faults on fresh memory cost more than the arithmetic done in it.
//
// Blocks come in classes, four per doubling of the size, so a block is at most 25 % larger than
// asked for (64 bytes at least). Kept blocks are bounded by an eighth of the memory this process
// may use, 1 GiB at most; beyond that the class unused for longest gives back its blocks first.
// Blocks of 2 MiB and more are aligned to 2 MiB and ask for huge pages.
//
// All functions may be called from any thread, and in a forked child.
#ifndef MPCORE_RUNTIME_MEMORY_H_
#define MPCORE_RUNTIME_MEMORY_H_

#include <stdint.h>

namespace mpcore {

constexpr int64_t kBufferAlignment = 64;

// nullptr: out of memory. `size` >= 0; 0 gives a block of its own, too.
void* allocate_buffer(int64_t size);
// `size` is the size it was allocated with. nullptr is ignored.
void free_buffer(void* pointer, int64_t size) noexcept;

struct BufferInfo {
  int64_t in_use;  // bytes asked for and not yet freed
  int64_t cached;  // bytes of kept blocks
  int64_t limit;   // bound on `cached`
};
BufferInfo buffer_info();

// Gives all kept blocks back to the system.
void trim_buffers();

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_MEMORY_H_
