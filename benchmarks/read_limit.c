/* What one thread can read: the least that any pass over memory costs. Compiled by the benchmarks.
 */
#include <stdint.h>
#include <string.h>

typedef uint64_t line __attribute__((vector_size(64)));

enum { kParts = 4, kChunk = 1 << 19, kAhead = 2048 };

/* ORs [p, p + size), in chunks whose quarters are walked side by side. */
#ifdef __x86_64__
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t read_memory(const char* p, int64_t size) {
  line seen = {0};
  for (; size >= kChunk; size -= kChunk, p += kChunk) {
    for (int64_t i = 0; i < kChunk / kParts; i += 64) {
      for (int part = 0; part < kParts; ++part) {
        const char* at = p + part * (kChunk / kParts) + i;
        __builtin_prefetch(at + kAhead);
        line x;
        memcpy(&x, at, sizeof(x));
        seen |= x;
      }
    }
  }
  for (; size >= 64; size -= 64, p += 64) {
    line x;
    memcpy(&x, p, sizeof(x));
    seen |= x;
  }
  uint64_t all = 0;
  for (int i = 0; i < 8; ++i) all |= seen[i];
  return all;
}
