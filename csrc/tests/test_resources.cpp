// CPU and memory limits read from invented cgroup files.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "expect.h"
#include "runtime/resources.h"

namespace {

namespace fs = std::filesystem;

// A directory that stands for "/", removed at the end.
class Root {
 public:
  Root() {
    std::string name = (fs::temp_directory_path() / "mpcore-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Root() { fs::remove_all(path_); }
  Root(const Root&) = delete;
  Root& operator=(const Root&) = delete;

  void write(const std::string& file, const std::string& text) const {
    const fs::path path = path_ + file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void test_no_cgroup_is_no_limit() {
  const Root root;
  EXPECT(mpcore::cgroup_cpus(root.path()) == -1);
  EXPECT(mpcore::cgroup_memory(root.path()) == -1);
}

void test_v2_takes_the_smallest_on_the_way_up() {
  const Root root;
  root.write("/proc/self/cgroup", "0::/slice/job\n");
  root.write("/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
  EXPECT(mpcore::cgroup_cpus(root.path()) == -1);
  root.write("/sys/fs/cgroup/slice/cpu.max", "350000 100000\n");
  EXPECT(mpcore::cgroup_cpus(root.path()) == 3);
  root.write("/sys/fs/cgroup/slice/job/cpu.max", "50000 100000\n");
  EXPECT(mpcore::cgroup_cpus(root.path()) == 1);
  root.write("/sys/fs/cgroup/slice/job/memory.max", "max\n");
  root.write("/sys/fs/cgroup/slice/memory.max", "1048576\n");
  EXPECT(mpcore::cgroup_memory(root.path()) == 1048576);
}

// Inside a container the path may be the host's, and the limit stands at the mount point.
void test_v2_path_of_the_host() {
  const Root root;
  root.write("/proc/self/cgroup", "0::/docker/0123456789\n");
  root.write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT(mpcore::cgroup_cpus(root.path()) == 2);
}

void test_v1_quota() {
  const Root root;
  root.write("/proc/self/cgroup",
             "9:name=systemd:/\n4:cpuset:/\n3:cpuacct,cpu:/job\n2:memory:/job\n");
  root.write("/sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_quota_us", "-1\n");
  root.write("/sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT(mpcore::cgroup_cpus(root.path()) == -1);
  root.write("/sys/fs/cgroup/cpuacct,cpu/job/cpu.cfs_quota_us", "400000\n");
  EXPECT(mpcore::cgroup_cpus(root.path()) == 4);
  root.write("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "4096\n");
  EXPECT(mpcore::cgroup_memory(root.path()) == 4096);
}

void test_this_process() {
  EXPECT(mpcore::usable_cpus() >= 1);
  EXPECT(mpcore::usable_memory() > 0);
}

}  // namespace

int main() {
  test_no_cgroup_is_no_limit();
  test_v2_takes_the_smallest_on_the_way_up();
  test_v2_path_of_the_host();
  test_v1_quota();
  test_this_process();
  return expect_result();
}
