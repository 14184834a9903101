#include "runtime/resources.h"

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <memory>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace mpcore {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

File open_text(const std::string& path) { return File(std::fopen(path.c_str(), "re")); }

int64_t smaller_limit(int64_t a, int64_t b) {
  if (a < 0) return b;
  return b < 0 ? a : std::min(a, b);
}

// The first number of a file, -1 if there is none ("max", no such file).
int64_t read_number(const std::string& path) {
  const File file = open_text(path);
  int64_t value = -1;
  if (file == nullptr || std::fscanf(file.get(), "%" SCNd64, &value) != 1) return -1;
  return value;
}

int64_t whole_cpus(int64_t quota, int64_t period) {
  return quota > 0 && period > 0 ? std::max<int64_t>(1, quota / period) : -1;
}

int64_t cpus_v1(const std::string& directory) {
  return whole_cpus(read_number(directory + "/cpu.cfs_quota_us"),
                    read_number(directory + "/cpu.cfs_period_us"));
}

int64_t cpus_v2(const std::string& directory) {
  const File file = open_text(directory + "/cpu.max");
  int64_t quota = -1, period = -1;
  if (file == nullptr || std::fscanf(file.get(), "%" SCNd64 " %" SCNd64, &quota, &period) != 2) {
    return -1;
  }
  return whole_cpus(quota, period);
}

int64_t memory_v1(const std::string& directory) {
  return read_number(directory + "/memory.limit_in_bytes");
}

int64_t memory_v2(const std::string& directory) { return read_number(directory + "/memory.max"); }

using Reader = int64_t (*)(const std::string& directory);

// The smallest limit on the way from `path` up to the mount point. A path that does not exist is
// one of the host's, seen from inside a container: its own limits then stand at the mount point.
int64_t smallest_limit(const std::string& mount, std::string path, Reader read) {
  int64_t limit = -1;
  while (true) {
    limit = smaller_limit(limit, read(mount + path));
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return limit;
    path.resize(slash);
  }
}

bool lists_controller(const std::string& controllers, const std::string& name) {
  return ("," + controllers + ",").find("," + name + ",") != std::string::npos;
}

// Lines of /proc/self/cgroup read "id:controllers:path"; v2 has id 0 and no controllers.
int64_t cgroup_limit(const std::string& root, const char* controller, Reader v1, Reader v2) {
  const File file = open_text(root + "/proc/self/cgroup");
  if (file == nullptr) return -1;
  const std::string base = root + "/sys/fs/cgroup";
  int64_t limit = -1;
  char line[4096];
  while (std::fgets(line, sizeof line, file.get()) != nullptr) {
    const std::string text(line, std::find(line, line + sizeof line - 1, '\n') - line);
    const size_t first = text.find(':');
    const size_t second = text.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = text.substr(first + 1, second - first - 1);
    const std::string path = text.substr(second + 1);
    if (controllers.empty()) {
      limit = smaller_limit(limit, smallest_limit(base, path, v2));
    } else if (lists_controller(controllers, controller)) {
      limit = smaller_limit(limit, smallest_limit(base + "/" + controller, path, v1));
      limit = smaller_limit(limit, smallest_limit(base + "/" + controllers, path, v1));
    }
  }
  return limit;
}

int64_t affinity_cpus() {
#if defined(__linux__)
  // The kernel refuses a mask smaller than its own, so the mask grows until it fits.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(cpus);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(cpus);
    const int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
#endif
  return std::max(1U, std::thread::hardware_concurrency());
}

}  // namespace

int64_t cgroup_cpus(const std::string& root) { return cgroup_limit(root, "cpu", cpus_v1, cpus_v2); }

int64_t cgroup_memory(const std::string& root) {
  return cgroup_limit(root, "memory", memory_v1, memory_v2);
}

int32_t usable_cpus() {
  const int64_t cpus = smaller_limit(cgroup_cpus(""), affinity_cpus());
  return static_cast<int32_t>(std::min<int64_t>(cpus, std::numeric_limits<int32_t>::max()));
}

int64_t usable_memory() {
  const int64_t installed = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return smaller_limit(cgroup_memory(""), installed);
}

}  // namespace mpcore
