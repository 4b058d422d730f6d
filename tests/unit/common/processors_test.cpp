#include "common/processors.h"

#include <sched.h>
#include <stdlib.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

namespace ff {
namespace {

// A tree with /proc/self/cgroup and files of /sys/fs/cgroup, by path.
struct Tree {
  explicit Tree(const std::string& groups) {
    std::string name = std::filesystem::temp_directory_path() / "ff_processors_XXXXXX";
    root = mkdtemp(name.data());
    add("/proc/self/cgroup", groups);
  }
  ~Tree() { std::filesystem::remove_all(root); }
  Tree& add(const std::string& path, const std::string& content) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << content;
    return *this;
  }
  std::string root;
};

// A thread has an affinity mask of its own.
Processors on_one_processor(int processor) {
  Processors found;
  std::thread([&] {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    CPU_SET(static_cast<size_t>(processor), &mask);
    REQUIRE(sched_setaffinity(0, sizeof mask, &mask) == 0);
    found = usable_processors();
  }).join();
  return found;
}

}  // namespace

TEST_CASE("the processors of the affinity mask") {
  const Processors all = usable_processors();
  REQUIRE_FALSE(all.allowed.empty());
  const int last = *all.allowed.rbegin();
  const Processors one = on_one_processor(last);
  CHECK(one.allowed == std::set<int>{last});
  CHECK(one.count() == 1);
}

TEST_CASE("the least of mask, quota and task") {
  CHECK(Processors{{0, 1, 2, 3}, 0, 0}.count() == 4);
  CHECK(Processors{{0, 1, 2, 3}, 2.5, 0}.count() == 2);
  CHECK(Processors{{0, 1, 2, 3}, 2.5, 0}.time() == 2.5);
  CHECK(Processors{{0, 1, 2, 3}, 0.5, 0}.count() == 1);
  CHECK(Processors{{0, 1, 2, 3}, 2.5, 1}.count() == 1);
  CHECK(Processors{{0, 1}, 8, 8}.count() == 2);
}

TEST_CASE("what Slurm gives to a task") {
  setenv("SLURM_CPUS_PER_TASK", "3", 1);
  CHECK(usable_processors().of_task == 3);
  setenv("SLURM_CPUS_PER_TASK", "many", 1);
  CHECK(usable_processors().of_task == 0);
  unsetenv("SLURM_CPUS_PER_TASK");
  CHECK(usable_processors().of_task == 0);
}

TEST_CASE("quotas of control groups, version 2") {
  Tree tree("0::/jobs/one\n");
  CHECK(cgroup_quota(tree.root) == 0);
  tree.add("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  CHECK(cgroup_quota(tree.root) == 0);
  tree.add("/sys/fs/cgroup/jobs/cpu.max", "250000 100000\n");  // of the group above
  CHECK(cgroup_quota(tree.root) == 2.5);
  tree.add("/sys/fs/cgroup/jobs/one/cpu.max", "150000 100000\n");
  CHECK(cgroup_quota(tree.root) == 1.5);
}

TEST_CASE("quotas of control groups, version 1") {
  Tree tree("5:memory:/a\n4:cpu,cpuacct:/docker/x\n0::/\n");
  tree.add("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "-1\n")
      .add("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_quota(tree.root) == 0);
  tree.add("/sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us", "50000\n");
  CHECK(cgroup_quota(tree.root) == 0.5);
}

// In a container the group's path is the host's, and its files stand at the mount.
TEST_CASE("the quota of a container that does not see its path") {
  Tree tree("2:cpu:/docker/x\n");
  tree.add("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n").add("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(cgroup_quota(tree.root) == 4);
}

}  // namespace ff
