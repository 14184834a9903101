// What the operating system lets this process use. Affinity mask and cgroup limits count, not what
// the machine has: a container with two CPUs must not start sixty threads.
#ifndef MPCORE_RUNTIME_RESOURCES_H_
#define MPCORE_RUNTIME_RESOURCES_H_

#include <stdint.h>

#include <string>

namespace mpcore {

// CPUs: the affinity mask, bounded by the CPU quota rounded down; at least 1.
int32_t usable_cpus();

// Bytes of memory: what is installed, bounded by the memory limit.
int64_t usable_memory();

// The cgroup (v1 or v2) limits themselves, -1 where there is none. Files are looked for below
// `root`: "" on a real system.
int64_t cgroup_cpus(const std::string& root);
int64_t cgroup_memory(const std::string& root);

}  // namespace mpcore

#endif  // MPCORE_RUNTIME_RESOURCES_H_
