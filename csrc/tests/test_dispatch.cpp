// Which levels invented CPUs may run, by feature and whatever the vendor; what this one offers.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "dispatch/dispatch.h"
#include "expect.h"

namespace {

using mpcore::CpuFeatures;

#if MPCORE_X86

constexpr CpuFeatures kNehalem{};
constexpr CpuFeatures kHaswell{.avx2 = true, .fma = true, .f16c = true, .os_ymm = true};

constexpr CpuFeatures with_avx512(bool bf16, bool fp16, bool amx) {
  CpuFeatures cpu = kHaswell;
  cpu.avx512f = cpu.avx512bw = cpu.avx512dq = cpu.avx512vl = cpu.avx512cd = true;
  cpu.os_zmm = true;
  cpu.avx512_bf16 = bf16;
  cpu.avx512_fp16 = fp16;
  cpu.amx_tile = cpu.amx_bf16 = cpu.os_tile = amx;
  return cpu;
}
constexpr CpuFeatures kSkylakeX = with_avx512(false, false, false);
constexpr CpuFeatures kZen4 = with_avx512(true, false, false);
constexpr CpuFeatures kSapphireRapids = with_avx512(true, true, true);

std::string highest(const CpuFeatures& cpu) {
  int32_t level = mpcore::level_count() - 1;
  while (mpcore::level_lacks(level, cpu) != nullptr) --level;
  return mpcore::level_name(level);
}

bool lacks(const char* level, const CpuFeatures& cpu, const char* what) {
  const char* const lack = mpcore::level_lacks(mpcore::find_level(level), cpu);
  return lack != nullptr && std::strstr(lack, what) != nullptr;
}

void test_invented_cpus() {
  EXPECT(highest(kNehalem) == "scalar");
  EXPECT(highest(kHaswell) == "avx2");
  EXPECT(highest(kSkylakeX) == "avx512");
  EXPECT(highest(kZen4) == "avx512_bf16");
  EXPECT(highest(kSapphireRapids) == "amx");
  EXPECT(lacks("avx512_fp16", kZen4, "AVX512_FP16") && lacks("amx", kZen4, "AVX512_FP16"));
  EXPECT(lacks("avx2", kNehalem, "AVX2"));
}

// Instructions whose registers the operating system does not save must not be used.
void test_missing_system_state() {
  CpuFeatures cpu = kSapphireRapids;
  cpu.os_tile = false;
  EXPECT(highest(cpu) == "avx512_fp16" && lacks("amx", cpu, "operating system"));
  cpu.os_zmm = false;
  EXPECT(highest(cpu) == "avx2" && lacks("avx512", cpu, "operating system"));
  cpu.os_ymm = false;
  EXPECT(highest(cpu) == "scalar" && lacks("avx2", cpu, "operating system"));
}

// Each single feature counts.
void test_one_feature_missing() {
  constexpr struct {
    bool CpuFeatures::* flag;
    const char* below;
  } kCases[] = {
      {&CpuFeatures::avx2, "scalar"},          {&CpuFeatures::fma, "scalar"},
      {&CpuFeatures::f16c, "scalar"},          {&CpuFeatures::avx512f, "avx2"},
      {&CpuFeatures::avx512bw, "avx2"},        {&CpuFeatures::avx512dq, "avx2"},
      {&CpuFeatures::avx512vl, "avx2"},        {&CpuFeatures::avx512cd, "avx2"},
      {&CpuFeatures::avx512_bf16, "avx512"},   {&CpuFeatures::avx512_fp16, "avx512_bf16"},
      {&CpuFeatures::amx_tile, "avx512_fp16"}, {&CpuFeatures::amx_bf16, "avx512_fp16"},
  };
  for (const auto& one : kCases) {
    CpuFeatures cpu = kSapphireRapids;
    cpu.*one.flag = false;
    EXPECT(highest(cpu) == one.below);
  }
}

// Smaller than what the kernel demands of every thread's signal stack once tiles are allowed.
constexpr size_t kSmallStack = 8192;

void set_signal_stack(void* stack, int flags) {
  stack_t wanted{};
  wanted.ss_sp = stack;
  wanted.ss_size = kSmallStack;
  wanted.ss_flags = flags;
  EXPECT(sigaltstack(&wanted, nullptr) == 0);
}

// A thread with a small signal stack: AMX is refused with the reason, the default level is there
// all the same, and once the stack has gone AMX is granted. In a child, since what was granted once
// is granted for good.
void test_small_signal_stack() {
  const int32_t amx = mpcore::find_level("amx");
  if (const char* const lack = mpcore::level_lacks(amx, mpcore::cpu_features())) {
    std::printf("AMX and small signal stacks not tested: %s\n", lack);
    return;
  }
  const pid_t child = fork();
  if (child == 0) {
    static char stack[kSmallStack];
    set_signal_stack(stack, 0);
    const char* const refusal = mpcore::level_lacks_here(amx);
    EXPECT(refusal != nullptr && std::strstr(refusal, "signal stack") != nullptr);
    EXPECT(mpcore::available_levels().find("amx") == std::string::npos);
    EXPECT(mpcore::default_level() != amx);
    EXPECT(mpcore::level_lacks_here(mpcore::default_level()) == nullptr);
    set_signal_stack(nullptr, SS_DISABLE);
    EXPECT(mpcore::level_lacks_here(amx) == nullptr);
    _exit(expect_result());
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif

// The default is the highest level that runs here; each level has a table of its own.
void test_this_machine() {
  const int32_t chosen = mpcore::default_level();
  EXPECT(mpcore::level_lacks_here(0) == nullptr);
  EXPECT(mpcore::level_lacks_here(chosen) == nullptr);
  for (int32_t level = chosen + 1; level < mpcore::level_count(); ++level) {
    EXPECT(mpcore::level_lacks_here(level) != nullptr);
  }
  for (int32_t level = 0; level < mpcore::level_count(); ++level) {
    EXPECT(std::strcmp(mpcore::level_kernels(level).name, mpcore::level_name(level)) == 0);
  }
  EXPECT(mpcore::available_levels().find("scalar") == 0);
  EXPECT(mpcore::find_level("scalar") == 0 && mpcore::find_level("avx") == -1);
}

}  // namespace

int main() {
#if MPCORE_X86
  test_invented_cpus();
  test_missing_system_state();
  test_one_feature_missing();
  test_small_signal_stack();  // before anything else has asked for AMX
#endif
  test_this_machine();
  return expect_result();
}
