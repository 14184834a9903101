#include "dispatch/cpu.h"

#include <stdint.h>

#if MPCORE_X86

#include <cpuid.h>

#include <cstring>

#if defined(__linux__)
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace mpcore {
namespace {

struct Registers {
  uint32_t a, b, c, d;
};

// Zeros for a leaf the CPU does not have.
Registers cpuid(uint32_t leaf, uint32_t subleaf) {
  Registers r{};
  if (__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d) == 0) return {};
  return r;
}

constexpr bool bit(uint64_t word, int index) { return (word >> index & 1) != 0; }
constexpr bool bits(uint64_t word, uint64_t mask) { return (word & mask) == mask; }

// Which register state the operating system saves. An instruction of its own, since the intrinsic
// would need a compiler flag. Only where CPUID says OSXSAVE.
uint64_t xcr0() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

CpuFeatures read_features() {
  constexpr uint64_t kYmmState = 0x6, kZmmState = 0xe6, kTileState = 0x60000;
  const Registers one = cpuid(1, 0);
  const Registers seven = cpuid(7, 0);
  const Registers seven_one = seven.a >= 1 ? cpuid(7, 1) : Registers{};
  const uint64_t state = bit(one.c, 27) ? xcr0() : 0;
  return {
      .avx2 = bit(seven.b, 5),
      .fma = bit(one.c, 12),
      .f16c = bit(one.c, 29),
      .avx512f = bit(seven.b, 16),
      .avx512bw = bit(seven.b, 30),
      .avx512dq = bit(seven.b, 17),
      .avx512vl = bit(seven.b, 31),
      .avx512cd = bit(seven.b, 28),
      .avx512_bf16 = bit(seven_one.a, 5),
      .avx512_fp16 = bit(seven.d, 23),
      .amx_tile = bit(seven.d, 24),
      .amx_bf16 = bit(seven.d, 22),
      .os_ymm = bits(state, kYmmState),
      .os_zmm = bits(state, kZmmState),
      .os_tile = bits(state, kTileState),
  };
}

struct Brand {
  char text[49] = "unknown";
};

Brand read_brand() {
  Brand brand;
  if (cpuid(0x80000000, 0).a < 0x80000004) return brand;
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers part = cpuid(0x80000002 + i, 0);
    std::memcpy(brand.text + 16 * i, &part, sizeof part);
  }
  brand.text[48] = '\0';
  return brand;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

const char* cpu_name() {
  static const Brand brand = read_brand();
  return brand.text + std::strspn(brand.text, " ");
}

const char* request_amx() {
#if defined(__linux__)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // XFEATURE_XTILEDATA
  // Granted before: granted again.
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0) return nullptr;
  switch (errno) {
    case ENOSPC:
      return "the operating system refused AMX: a thread of this process has a signal stack "
             "(sigaltstack) too small for tile data";
    case EINVAL:
    case ENOSYS:
    case EOPNOTSUPP:
      return "the operating system does not know the request for AMX";
    default:
      return "the operating system refused AMX";
  }
#else
  return "mpcore does not know how to ask this operating system for AMX";
#endif
}

}  // namespace mpcore

#else  // MPCORE_X86

namespace mpcore {

const CpuFeatures& cpu_features() {
  static constexpr CpuFeatures kNone{};
  return kNone;
}

const char* cpu_name() { return "unknown"; }

const char* request_amx() { return "this architecture has no AMX"; }

}  // namespace mpcore

#endif  // MPCORE_X86
