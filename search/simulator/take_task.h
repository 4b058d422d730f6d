// What happens to the resources when a task is taken.
#pragma once

#include <algorithm>

#include "common/vector.h"
#include "search/cost/duration.h"

namespace ff {

// Kernels and collectives of parameters that run at the same time (TaskCosts::slowed), now that `task` starts: what the
// device computes next starts later.
inline void slow_down(const TaskCosts& costs, int task, Nanoseconds start, Vector<Nanoseconds>& free_at) {
  const auto lost = [](double share, Nanoseconds together) {
    return static_cast<Nanoseconds>(share * static_cast<double>(together));
  };
  if (costs.collectives[task] != BesideKernels::no) {
    const Nanoseconds end = start + costs.duration[task];
    for (const WorkBeside& beside : costs.beside_of(task)) {
      Nanoseconds &free = free_at[beside.device], &until = free_at[costs.collectives_of(beside.device)];
      if (costs.collectives[task] == BesideKernels::waited_for) free = std::max(free, start);
      const Nanoseconds together = std::min(end, free) - std::max(start, until);
      if (together > 0) free += lost(costs.slowed[beside.device], together);
      until = std::max(until, end);
    }
    return;
  }
  const auto uses = costs.uses_of(task);
  if (uses.size() != 1 || !costs.is_device(uses[0].resource)) return;  // no kernel
  const int32_t device = uses[0].resource;
  const double share = costs.slowed[device];
  const auto slower = static_cast<Nanoseconds>(static_cast<double>(uses[0].occupancy) / (1 - share));
  const Nanoseconds together = std::min(free_at[costs.collectives_of(device)] - start, slower);
  if (together > 0) free_at[device] += lost(share, together);
}

// From when on devices work for a task. A processor works for a transfer when that starts. A framework's kernels for a
// collective run when its gradients are ready, whenever its links are free.
inline Nanoseconds work_begins(const TaskCosts& costs, Nanoseconds ready, Nanoseconds start) {
  return costs.slowed.empty() ? start : ready;
}

// The start of a task that is ready at `ready`: when all that it uses is free. `free_at`: [resource]; then of what it
// uses, and of the devices that work for it, when they are free again.
inline Nanoseconds take_task(const TaskCosts& costs, int task, Nanoseconds ready, Vector<Nanoseconds>& free_at) {
  const auto uses = costs.uses_of(task);
  Nanoseconds start = ready;
  for (const ResourceUse& use : uses) start = std::max(start, free_at[use.resource]);
  for (const ResourceUse& use : uses) free_at[use.resource] = start + use.occupancy;
  const Nanoseconds begin = work_begins(costs, ready, start);
  for (const auto& [device, work] : costs.beside_of(task))
    free_at[device] = free_behind(free_at[device], begin, costs.duration[task], work);
  if (!costs.slowed.empty()) slow_down(costs, task, start, free_at);
  return start;
}

}  // namespace ff
