// The floating-point environment: as asked for inside tasks, as found outside, on every thread.
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <thread>

#include "expect.h"
#include "mpcore/base.h"
#include "runtime/context.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

namespace {

using mpcore::FpMode;
using mpcore::Session;

// A product of normals that is subnormal; its bits, since a comparison would be subject to DAZ.
bool keeps_results() {
  volatile float normal = std::numeric_limits<float>::min();
  volatile float half = 0.5F;
  volatile float result = normal * half;
  uint32_t bits;
  __builtin_memcpy(&bits, const_cast<float*>(&result), sizeof bits);
  return bits != 0;
}

bool keeps_operands() {
  volatile float subnormal = std::numeric_limits<float>::denorm_min();
  volatile float large = 1e30F;
  volatile float result = subnormal * large;
  return result > 0;
}

bool rounds_to_nearest() {
  volatile float one = 1.0F, tiny = 1e-10F;
  volatile float sum = one + tiny;
  return sum == 1.0F;
}

bool as_asked(FpMode mode) {
  return rounds_to_nearest() && keeps_results() == (mode == FpMode::kIeee) &&
         keeps_operands() == (mode != FpMode::kFlushAll);
}

// Whatever the host has set: FTZ and DAZ, rounding up, an unmasked exception, flags.
void test_tasks_under_any_host_setting() {
  mpcore_context_options options{};
  options.struct_size = sizeof options;
  options.num_threads = 3;
  mpcore_context* ctx = nullptr;
  EXPECT(mpcore_context_create(&options, &ctx) == MPCORE_OK);
  const unsigned found = _mm_getcsr();
  for (const unsigned host : {0x1f80U, 0x9fc0U, 0x1fa5U, 0x5f80U, 0x1780U}) {
    for (const FpMode mode : {FpMode::kIeee, FpMode::kFlushResults, FpMode::kFlushAll}) {
      std::atomic<int> arrived{0}, wrong{0};
      _mm_setcsr(host);
      {
        Session session(ctx);
        // All three threads must be in a task.
        session.parallel_for(3, mode, [&](int64_t) {
          if (!as_asked(mode)) ++wrong;
          ++arrived;
          while (arrived < 3) std::this_thread::yield();
        });
        if (_mm_getcsr() != host) ++wrong;
        session.serial(mode, [&] {
          if (!as_asked(mode)) ++wrong;
          Session nested(ctx);
          nested.serial(FpMode::kIeee, [&] { wrong += as_asked(FpMode::kIeee) ? 0 : 1; });
          if (!as_asked(mode)) ++wrong;
        });
      }
      const unsigned left = _mm_getcsr();
      _mm_setcsr(found);
      EXPECT(left == host && wrong == 0);
    }
  }
  mpcore_context_destroy(ctx);
}

}  // namespace

int main() {
  test_tasks_under_any_host_setting();
  return expect_result();
}

#else

int main() {
  std::puts("skipped: the test reads MXCSR");
  return 77;
}

#endif
