// The processors that this process may use, which can be fewer than the machine has: its affinity mask (taskset,
// mpirun's binding, cgroup cpusets), the quota of its cgroup (containers), and what Slurm gave to its task.
#pragma once

#include <set>
#include <string>

namespace ff {

struct Processors {
  std::set<int> allowed;  // numbers, as the operating system's: the affinity mask
  double quota = 0;       // time of its cgroup, in processors (2.5: two and a half); 0: no quota
  int of_task = 0;        // what Slurm gave to this task (--cpus-per-task); 0: not said

  double time() const;  // that may be used, in processors; at most as many as are allowed
  int count() const;    // threads that can run all the time; at least 1
};

// `root`: where /proc and /sys are looked for; tests have trees of their own.
Processors usable_processors(const std::string& root = "");

// The quota of the cgroup that /proc/self/cgroup names or of any above it (version 2: cpu.max, version 1:
// cpu.cfs_quota_us over cpu.cfs_period_us), in processors; 0 where there is none.
double cgroup_quota(const std::string& root = "");

}  // namespace ff
