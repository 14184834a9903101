#include "runtime/process.h"

#include <unistd.h>

#include <atomic>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace mpcore {
namespace {

int32_t ask_system() { return static_cast<int32_t>(getpid()); }

// A word on a page that the kernel clears in every forked child, however it was forked; nullptr
// where there is no such page.
std::atomic<int32_t>* make_wiped_word() {
#if defined(__linux__) && defined(MADV_WIPEONFORK)
  constexpr int kNoAdvice = -1;  // an emulator that accepts this accepts all and does nothing
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const page =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return nullptr;
  if (madvise(page, bytes, kNoAdvice) == 0 || madvise(page, bytes, MADV_WIPEONFORK) != 0) {
    munmap(page, bytes);
    return nullptr;
  }
  return new (page) std::atomic<int32_t>(0);
#else
  return nullptr;
#endif
}

}  // namespace

int32_t current_process() {
  static std::atomic<int32_t>* const word = make_wiped_word();
  if (word == nullptr) return ask_system();
  int32_t process = word->load(std::memory_order_relaxed);
  if (process == 0) {
    process = ask_system();
    word->store(process, std::memory_order_relaxed);
  }
  return process;
}

}  // namespace mpcore
