#include "common/task_graph/late_reductions.h"

#include <utility>

#include "common/task_graph/dependencies.h"
#include "common/task_graph/sharded_units.h"

namespace ff {

std::map<DeviceId, Vector<int>> last_backward_tasks(const TaskGraph& tasks, const TaskGraphBuilder& builder,
                                                    const Strategy& strategy) {
  const int last = builder.micro_batches() - 1;
  const auto is_of_last = [&](const Task& task) {
    return task.kind == TaskKind::backward &&
           (last == 0 || micro_batch_of_part(builder, strategy, task.op, task.part) == last);
  };
  std::map<DeviceId, OperatorId> first;
  for (const Task& task : tasks.tasks)
    if (is_of_last(task)) {
      const auto [found, added] = first.try_emplace(task.device, task.op);
      if (!added) found->second = std::min(found->second, task.op);
    }
  std::map<DeviceId, Vector<int>> result;
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; is_of_last(task) && first[task.device] == task.op)
      result[task.device].push_back(t);
  return result;
}

void reduce_after_backward(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy) {
  tasks.overlaps_reductions = false;
  const std::map<DeviceId, Vector<int>> last = last_backward_tasks(tasks, builder, strategy);
  std::map<int, Vector<int>> further;  // successors, by task
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (task.kind != TaskKind::synchronization || !tasks.reduces_after_backward(task)) continue;
    for (const DeviceId holder : tasks.holders(task))
      if (const auto found = last.find(holder); found != last.end())
        for (const int before : found->second) further[before].push_back(t);
  }
  OwnDependencies late = with_further(tasks, [&](int task, const auto& visit) {
    if (const auto found = further.find(task); found != further.end())
      for (const int reduction : found->second) visit(reduction);
  });
  tasks.successor_begin = std::move(late.successor_begin);
  tasks.successors = std::move(late.successors);
  tasks.predecessor_count = std::move(late.predecessor_count);
}

}  // namespace ff
