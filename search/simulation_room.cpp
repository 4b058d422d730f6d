#include "search/simulation_room.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "common/errors.h"
#include "common/readable.h"

namespace ff {
namespace {

// Tasks, costs, timeline and memory plan of a transformer's plan: 7.5 GB for 10.7 million parts
// (docs/results/planning.md).
constexpr int64_t bytes_of_part = 650;
// Llama 3 405B with cp=16: 1.05 GB for 5.1 million tasks, and room for vectors that grow.
constexpr int64_t bytes_of_task = 300;

void expect_room(int64_t needed, const std::string& instead) {
  const int64_t memory = machine_memory_bytes();
  if (needed <= memory) return;
  throw MachineError("a simulation of these devices and micro-batches needs about " + bytes_text(needed) +
                     " of memory, this machine has " + bytes_text(memory) + "; " + instead);
}

// The least limit of the groups that the process is in, by cgroup v2: "0::/system.slice/job", each folder above it too.
std::optional<int64_t> control_group_bytes() {
  std::ifstream own("/proc/self/cgroup");
  std::string line, path;
  while (std::getline(own, line))
    if (line.starts_with("0::")) path = line.substr(3);
  std::optional<int64_t> least;
  for (;;) {
    std::ifstream file("/sys/fs/cgroup" + path + "/memory.max");  // "max", or a number
    if (int64_t limit = 0; file >> limit) least = std::min(limit, least.value_or(limit));
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return least;
    path.erase(slash);
  }
}

}  // namespace

int64_t parts_of_iteration(const Strategy& strategy, int micro_batches) {
  int64_t parts = 0;
  for (const Configuration& configuration : strategy) parts += configuration.parts();
  return parts * micro_batches;
}

int64_t machine_memory_bytes() {
  static const int64_t bytes = [] {
    constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
    const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return std::min(pages > 0 && page > 0 ? pages * page : unknown, control_group_bytes().value_or(unknown));
  }();
  return bytes;
}

void expect_room_for_simulation(int64_t parts, const std::string& instead) {
  expect_room(parts * bytes_of_part, instead);
}

void expect_room_for_tasks(int64_t tasks, const std::string& instead) { expect_room(tasks * bytes_of_task, instead); }

}  // namespace ff
