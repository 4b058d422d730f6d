#include "executor/plan/transfer_order.h"

#include <algorithm>

namespace ff {

Vector<TransferRun> order_transfers(const TaskGraph& tasks, const Vector<int>& order, const Vector<bool>& steps_here,
                                    int rank) {
  Vector<TransferRun> runs;
  bool open = false;  // may the last run grow?
  int steps = 0;
  for (const int index : order) {
    const Task& task = tasks.tasks[index];
    if (steps_here[index]) {
      open = false;
      ++steps;
      continue;
    }
    if (!is_transfer(task.kind) || (task.device != rank && task.destination != rank)) continue;
    const auto apart = [&](int other) {
      const Task& member = tasks.tasks[other];
      return member.kind != task.kind || member.edge != task.edge ||
             (member.device == task.device && member.destination == task.destination);
    };
    if (!open || runs.back().tasks.count() == largest_transfer_run ||
        std::any_of(runs.back().tasks.begin(), runs.back().tasks.end(), apart))
      runs.push_back({{}, steps});
    runs.back().tasks.push_back(index);
    open = true;
  }
  return runs;
}

}  // namespace ff
