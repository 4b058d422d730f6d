#include "search/simulation_room.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "common/errors.h"
#include "common/readable.h"

namespace ff {
namespace {

// Tasks, costs, timeline and memory plan of a transformer's plan: 7.5 GB for 10.7 million parts
// (docs/results/planning.md).
constexpr int64_t bytes_of_part = 650;

}  // namespace

int64_t parts_of_iteration(const Strategy& strategy, int micro_batches) {
  int64_t parts = 0;
  for (const Configuration& configuration : strategy) parts += configuration.parts();
  return parts * micro_batches;
}

int64_t machine_memory_bytes() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  std::ifstream group("/sys/fs/cgroup/memory.max");  // "max", or a number
  if (int64_t limit = 0; group >> limit) bytes = std::min(bytes, limit);
  return bytes;
}

void expect_room_for_simulation(int64_t parts, const std::string& instead) {
  const int64_t needed = parts * bytes_of_part, memory = machine_memory_bytes();
  if (needed <= memory) return;
  throw MachineError("a simulation of all devices and micro-batches needs about " + bytes_text(needed) +
                     " of memory, this machine has " + bytes_text(memory) + "; " + instead);
}

}  // namespace ff
