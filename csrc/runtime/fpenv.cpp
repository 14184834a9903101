#include "runtime/fpenv.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace mpcore {

#if defined(__x86_64__)

namespace {

constexpr uint32_t kMaskedNearest = 0x1f80;
constexpr uint32_t kFlushToZero = 0x8000;
constexpr uint32_t kDenormalsAreZero = 0x0040;

constexpr uint32_t mxcsr(FpMode mode) {
  switch (mode) {
    case FpMode::kFlushResults:
      return kMaskedNearest | kFlushToZero;
    case FpMode::kFlushAll:
      return kMaskedNearest | kFlushToZero | kDenormalsAreZero;
    case FpMode::kIeee:
      break;
  }
  return kMaskedNearest;
}

}  // namespace

bool fp_mode_supported(FpMode) { return true; }

FpScope::FpScope(FpMode mode) : saved_(_mm_getcsr()) { _mm_setcsr(mxcsr(mode)); }
FpScope::~FpScope() { _mm_setcsr(static_cast<uint32_t>(saved_)); }

#elif defined(__aarch64__)

namespace {

// FPCR.FZ flushes operands as well as results; flushing results alone needs FEAT_AFP.
constexpr uint64_t kFlushToZero = uint64_t{1} << 24;

uint64_t get_fpcr() {
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
}
void set_fpcr(uint64_t value) { __asm__ volatile("msr fpcr, %0" : : "r"(value)); }
uint64_t get_fpsr() {
  uint64_t value;
  __asm__ volatile("mrs %0, fpsr" : "=r"(value));
  return value;
}
void set_fpsr(uint64_t value) { __asm__ volatile("msr fpsr, %0" : : "r"(value)); }

}  // namespace

bool fp_mode_supported(FpMode mode) { return mode != FpMode::kFlushResults; }

FpScope::FpScope(FpMode mode) : saved_(get_fpcr() | get_fpsr() << 32) {
  set_fpcr(mode == FpMode::kFlushAll ? kFlushToZero : 0);
}
FpScope::~FpScope() {
  set_fpcr(saved_ & 0xffffffff);
  set_fpsr(saved_ >> 32);
}

#else
#error "mpcore: FpScope must know how to set the floating-point control register here"
#endif

}  // namespace mpcore
