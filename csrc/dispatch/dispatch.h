// The ISA levels of this build and which of them can be selected. The only place that compares
// levels.
#ifndef MPCORE_DISPATCH_DISPATCH_H_
#define MPCORE_DISPATCH_DISPATCH_H_

#include <stdint.h>

#include <string>

#include "dispatch/cpu.h"
#include "dispatch/kernel_table.h"

namespace mpcore {

// Levels run from 0, the lowest, to level_count() - 1.
int32_t level_count();
const char* level_name(int32_t level);
const KernelTable& level_kernels(int32_t level);

// The level of that name, -1 if there is none.
int32_t find_level(const char* name);

// nullptr if `cpu` has what the level needs, else the first thing it lacks (a static string). Asks
// the operating system nothing.
const char* level_lacks(int32_t level, const CpuFeatures& cpu);

// The same for this machine, the permission for AMX included: it is asked for when a level needs it
// and nothing else is missing. What was refused may be granted later, once the reason is gone.
const char* level_lacks_here(int32_t level);

// The level to use if nobody names one: the highest that can be selected on this machine. Asks the
// operating system for AMX if that is all the amx level lacks.
int32_t default_level();

// Names of the levels that can be selected on this machine: "scalar, avx2".
std::string available_levels();

}  // namespace mpcore

#endif  // MPCORE_DISPATCH_DISPATCH_H_
