#include "common/processors.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace ff {
namespace {

// Machines can have more processors than cpu_set_t has places for: the set grows until the kernel's fits.
std::set<int> affinity_mask() {
  std::set<int> allowed;
  for (int places = 1024; places <= 1 << 20; places *= 2) {
    cpu_set_t* const mask = CPU_ALLOC(static_cast<size_t>(places));
    if (!mask) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(places));
    const bool fits = sched_getaffinity(0, bytes, mask) == 0;
    if (fits)
      for (size_t cpu = 0; cpu < static_cast<size_t>(places); ++cpu)
        if (CPU_ISSET_S(cpu, bytes, mask)) allowed.insert(static_cast<int>(cpu));
    CPU_FREE(mask);
    if (fits) break;
  }
  for (int cpu = 0; allowed.empty() && cpu < static_cast<int>(std::thread::hardware_concurrency()); ++cpu)
    allowed.insert(cpu);
  if (allowed.empty()) allowed.insert(0);
  return allowed;
}

// "150000 100000" (cpu.max) or two files' numbers: time allowed in each period, in us. "max" and -1: no limit.
double share_of(const std::string& quota, const std::string& period) {
  double allowed = 0, of = 0;
  std::istringstream(quota) >> allowed;
  std::istringstream(period) >> of;
  return allowed > 0 && of > 0 ? allowed / of : 0;
}

std::string word_of(const std::string& path, int number = 0) {
  std::ifstream file(path);
  std::string word;
  for (int w = 0; w <= number; ++w)
    if (!(file >> word)) return "";
  return word;
}

double quota_of_group(const std::string& folder) {
  if (const double share = share_of(word_of(folder + "/cpu.max"), word_of(folder + "/cpu.max", 1)); share > 0)
    return share;
  return share_of(word_of(folder + "/cpu.cfs_quota_us"), word_of(folder + "/cpu.cfs_period_us"));
}

int processors_of_slurm_task() {
  const char* text = std::getenv("SLURM_CPUS_PER_TASK");
  int count = 0;
  if (!text) return 0;
  const std::string_view digits(text);
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), count);
  return error == std::errc() && end == digits.end() ? count : 0;
}

}  // namespace

double cgroup_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  double least = 0;
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b"; version 2: "0::/a/b"
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    const std::string mounts = root + "/sys/fs/cgroup";
    for (const std::string& mount : {mounts, mounts + "/unified", mounts + "/cpu", mounts + "/cpu,cpuacct"}) {
      // The group's own quota and those of all above it hold. Where a container does not see the path, its own group is
      // the mount itself.
      for (std::string path = line.substr(second + 1);; path.erase(path.rfind('/'))) {
        const double quota = quota_of_group(mount + path);
        if (quota > 0 && (least == 0 || quota < least)) least = quota;
        if (path.find('/') == std::string::npos) break;
      }
    }
  }
  return least;
}

double Processors::time() const {
  double time = std::max(1.0, static_cast<double>(allowed.size()));
  if (quota > 0) time = std::min(time, quota);
  if (of_task > 0) time = std::min(time, static_cast<double>(of_task));
  return time;
}

int Processors::count() const { return std::max(1, static_cast<int>(time())); }

Processors usable_processors(const std::string& root) {
  return {affinity_mask(), cgroup_quota(root), processors_of_slurm_task()};
}

}  // namespace ff
