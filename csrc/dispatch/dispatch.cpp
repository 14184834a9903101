#include "dispatch/dispatch.h"

#include <cstring>
#include <iterator>
#include <span>

namespace mpcore {
namespace {

struct Need {
  bool CpuFeatures::* flag;
  const char* lack;
};

// A level needs all that the levels below it need, and this.
struct Level {
  const char* name;
  const KernelTable* kernels;
  std::span<const Need> needs;
  bool asks_amx = false;  // also needs the operating system's permission
};

#if MPCORE_X86

constexpr Need kAvx2Needs[] = {
    {&CpuFeatures::avx2, "the CPU lacks AVX2"},
    {&CpuFeatures::fma, "the CPU lacks FMA"},
    {&CpuFeatures::f16c, "the CPU lacks F16C"},
    {&CpuFeatures::os_ymm, "the operating system has not enabled the AVX registers"},
};
constexpr Need kAvx512Needs[] = {
    {&CpuFeatures::avx512f, "the CPU lacks AVX512F"},
    {&CpuFeatures::avx512bw, "the CPU lacks AVX512BW"},
    {&CpuFeatures::avx512dq, "the CPU lacks AVX512DQ"},
    {&CpuFeatures::avx512vl, "the CPU lacks AVX512VL"},
    {&CpuFeatures::avx512cd, "the CPU lacks AVX512CD"},
    {&CpuFeatures::os_zmm, "the operating system has not enabled the AVX-512 registers"},
};
constexpr Need kAvx512Bf16Needs[] = {
    {&CpuFeatures::avx512_bf16, "the CPU lacks AVX512_BF16"},
};
constexpr Need kAvx512Fp16Needs[] = {
    {&CpuFeatures::avx512_fp16, "the CPU lacks AVX512_FP16"},
};
constexpr Need kAmxNeeds[] = {
    {&CpuFeatures::amx_tile, "the CPU lacks AMX_TILE"},
    {&CpuFeatures::amx_bf16, "the CPU lacks AMX_BF16"},
    {&CpuFeatures::os_tile, "the operating system has not enabled the AMX registers"},
};

constexpr Level kLevels[] = {
    {"scalar", &kScalarTable, {}},
    {"avx2", &kAvx2Table, kAvx2Needs},
    {"avx512", &kAvx512Table, kAvx512Needs},
    {"avx512_bf16", &kAvx512Bf16Table, kAvx512Bf16Needs},
    {"avx512_fp16", &kAvx512Fp16Table, kAvx512Fp16Needs},
    {"amx", &kAmxTable, kAmxNeeds, true},
};

#else

constexpr Level kLevels[] = {{"scalar", &kScalarTable, {}}};

#endif

constexpr int32_t kLevelCount = static_cast<int32_t>(std::size(kLevels));

}  // namespace

int32_t level_count() { return kLevelCount; }
const char* level_name(int32_t level) { return kLevels[level].name; }
const KernelTable& level_kernels(int32_t level) { return *kLevels[level].kernels; }

int32_t find_level(const char* name) {
  for (int32_t level = 0; level < kLevelCount; ++level) {
    if (std::strcmp(kLevels[level].name, name) == 0) return level;
  }
  return -1;
}

const char* level_lacks(int32_t level, const CpuFeatures& cpu) {
  for (int32_t below = 0; below <= level; ++below) {
    for (const Need& need : kLevels[below].needs) {
      if (!(cpu.*need.flag)) return need.lack;
    }
  }
  return nullptr;
}

const char* level_lacks_here(int32_t level) {
  const char* const lack = level_lacks(level, cpu_features());
  if (lack != nullptr || !kLevels[level].asks_amx) return lack;
  return request_amx();
}

int32_t default_level() {
  int32_t level = kLevelCount - 1;
  while (level_lacks_here(level) != nullptr) --level;  // the lowest lacks nothing
  return level;
}

std::string available_levels() {
  std::string names;
  for (int32_t level = 0; level < kLevelCount; ++level) {
    if (level_lacks_here(level) != nullptr) continue;
    if (!names.empty()) names += ", ";
    names += kLevels[level].name;
  }
  return names;
}

}  // namespace mpcore
