// The floating-point environment a task runs under.
#ifndef MPCORE_RUNTIME_FPENV_H_
#define MPCORE_RUNTIME_FPENV_H_

#include <stdint.h>

namespace mpcore {

// How the floating-point unit treats subnormals while a task runs. The caller's own setting is
// restored after each task, on every thread.
enum class FpMode {
  kIeee,          // round to nearest, subnormals everywhere
  kFlushResults,  // results below the smallest normal become zero (FTZ); operands count in full
  kFlushAll,      // FTZ and DAZ
};

// Can this architecture run under `mode`? x86 can always. Elsewhere a mode that is missing is an
// error, never a different rounding.
bool fp_mode_supported(FpMode mode);

// Sets the control register of this thread for `mode` (exceptions masked, round to nearest) and
// puts back exactly what it found, exception flags included.
class FpScope {
 public:
  explicit FpScope(FpMode mode);
  ~FpScope();
  FpScope(const FpScope&) = delete;
  FpScope& operator=(const FpScope&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_FPENV_H_
