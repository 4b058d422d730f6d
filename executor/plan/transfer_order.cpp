#include "executor/plan/transfer_order.h"

#include <algorithm>

namespace ff {

Vector<TransferRun> order_transfers(const TaskGraph& tasks, const Vector<int>& order, const Vector<bool>& steps_here,
                                    int rank) {
  Vector<TransferRun> runs;
  // By task: the last of the runs that it depends on, -1 for none. Runs come in order, so this tells whether it depends
  // on the open one.
  Vector<int> behind(tasks.tasks.size(), -1);
  bool open = false;  // may the last run grow?
  int steps = 0;
  for (const int index : order) {
    const Task& task = tasks.tasks[index];
    int reaches = behind[index];
    if (steps_here[index]) {
      open = false;
      ++steps;
    } else if (is_transfer(task.kind) && (task.device == rank || task.destination == rank)) {
      const int last = static_cast<int>(runs.size()) - 1;
      const auto same_peer = [&](int other) {
        return tasks.tasks[other].device == task.device && tasks.tasks[other].destination == task.destination;
      };
      if (!open || behind[index] == last || static_cast<int>(runs.back().tasks.size()) == largest_transfer_run ||
          std::any_of(runs.back().tasks.begin(), runs.back().tasks.end(), same_peer))
        runs.push_back({{}, steps});
      runs.back().tasks.push_back(index);
      open = true;
      reaches = static_cast<int>(runs.size()) - 1;
    }
    for (int32_t s = tasks.successor_begin[index]; s < tasks.successor_begin[index + 1]; ++s)
      behind[tasks.successors[s]] = std::max(behind[tasks.successors[s]], reaches);
  }
  return runs;
}

}  // namespace ff
