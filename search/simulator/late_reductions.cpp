#include "search/simulator/late_reductions.h"

#include <map>
#include <utility>

#include "common/task_graph/sharded_units.h"

namespace ff {
namespace {

// [device]: the tasks after which it has no backward pass left.
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

void reduce_after_backward(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy) {
  const std::map<DeviceId, Vector<int>> last = last_backward_tasks(tasks, builder, strategy);
  std::map<int, Vector<int>> further;  // successors, by task
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (task.kind != TaskKind::synchronization ||
        shards_gradients(tasks.synchronization_of(tasks.units[task.unit].group)))
      continue;
    for (const DeviceId holder : tasks.holders(task))
      if (const auto found = last.find(holder); found != last.end())
        for (const int before : found->second) {
          further[before].push_back(t);
          ++tasks.predecessor_count[t];
        }
  }
  Vector<int32_t> begin = {0}, successors;
  for (const int t : tasks.tasks.indices()) {
    for (int32_t s = tasks.successor_begin[t]; s < tasks.successor_begin[t + 1]; ++s)
      successors.push_back(tasks.successors[s]);
    if (const auto found = further.find(t); found != further.end())
      successors.insert(successors.end(), found->second.begin(), found->second.end());
    begin.push_back(successors.count());
  }
  tasks.successor_begin = std::move(begin);
  tasks.successors = std::move(successors);
}

}  // namespace ff
