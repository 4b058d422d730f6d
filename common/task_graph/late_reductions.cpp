#include "common/task_graph/late_reductions.h"

#include <map>

#include "common/task_graph/sharded_units.h"

namespace ff {
namespace {

// By device: the tasks after which it has no backward pass left, the backward tasks of the last micro-batch of its
// first operator.
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

}  // namespace

void wait_for_backward(const TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                       const std::function<bool(const Task&)>& is_late, FurtherSuccessors& further) {
  const std::map<DeviceId, Vector<int>> last = last_backward_tasks(tasks, builder, strategy);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (task.kind != TaskKind::synchronization || !is_late(task)) continue;
    for (const DeviceId holder : tasks.holders(task))
      if (const auto found = last.find(holder); found != last.end())
        for (const int before : found->second) further[before].push_back(t);
  }
}

void reduce_after_backward(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy) {
  tasks.overlaps_reductions = false;
  FurtherSuccessors further;
  const auto is_late = [&](const Task& task) { return tasks.reduces_after_backward(task); };
  wait_for_backward(tasks, builder, strategy, is_late, further);
  add_dependencies(tasks, further);
}

}  // namespace ff
