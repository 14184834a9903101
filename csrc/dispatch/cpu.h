// What this CPU and its operating system offer. The only place that reads CPUID and XGETBV and that
// asks for AMX.
#ifndef MPCORE_DISPATCH_CPU_H_
#define MPCORE_DISPATCH_CPU_H_

namespace mpcore {

// Plain flags, so that a test can invent a CPU. Instructions and the register state that the
// operating system saves are separate: either without the other is of no use.
struct CpuFeatures {
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512cd = false;
  bool avx512_bf16 = false, avx512_fp16 = false;
  bool amx_tile = false, amx_bf16 = false;
  bool os_ymm = false, os_zmm = false, os_tile = false;
};

// This machine's, read once; all false where the architecture has none of them.
const CpuFeatures& cpu_features();

// Brand name, "unknown" where it cannot be read.
const char* cpu_name();

// Asks the operating system to let this process use AMX tiles, which it grants to all threads and
// their forked children for good. nullptr if granted, else why not (a static string); a later
// request may succeed. Call it only if AMX is wanted: once granted, the kernel demands larger
// signal stacks of the process.
const char* request_amx();

}  // namespace mpcore

#endif  // MPCORE_DISPATCH_CPU_H_
