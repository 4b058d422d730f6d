#include "search/cost/step_order.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/task_graph/late_reductions.h"
#include "common/task_graph/sharded_units.h"

namespace ff {
namespace {

// Dependencies that are added to a task graph's, and some of its own that are left out.
class Changes {
 public:
  explicit Changes(TaskGraph& tasks) : tasks_(tasks) {}

  void add(int before, int after) { added_[before].push_back(after); }
  void remove_all_before(int task) { free_[task] = true; }

  void apply() {
    if (added_.empty() && free_.empty()) return;
    Vector<int32_t> begin{0}, successors, predecessors(tasks_.tasks.size(), 0);
    for (const int t : tasks_.tasks.indices()) {
      const auto keep = [&](int32_t after) {
        successors.push_back(after);
        ++predecessors[after];
      };
      for (int32_t s = tasks_.successor_begin[t]; s < tasks_.successor_begin[t + 1]; ++s)
        if (!free_.contains(tasks_.successors[s])) keep(tasks_.successors[s]);
      if (const auto found = added_.find(t); found != added_.end())
        for (const int after : found->second) keep(after);
      begin.push_back(static_cast<int32_t>(successors.size()));
    }
    tasks_.successor_begin = std::move(begin);
    tasks_.successors = std::move(successors);
    tasks_.predecessor_count = std::move(predecessors);
  }

 private:
  TaskGraph& tasks_;
  std::map<int, Vector<int>> added_;  // successors, by task
  std::map<int, bool> free_;          // what waits for nothing any more
};

// A device's first update waits for its reductions, and its others for the first.
void update_after_reductions(const TaskGraph& tasks, Changes& changes) {
  std::map<DeviceId, int> first;
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; task.kind == TaskKind::update) {
      const auto [found, is_first] = first.try_emplace(task.device, t);
      if (!is_first) changes.add(found->second, t);
    }
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; task.kind == TaskKind::synchronization)
      for (const DeviceId holder : tasks.holders(task))
        if (const auto found = first.find(holder); found != first.end()) changes.add(t, found->second);
}

// Sharded parameters are gathered by each micro-batch in any case (Task::before_op).
void gather_before_forward(const TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                           Changes& changes) {
  std::map<std::pair<DeviceId, OperatorId>, Vector<int>> forward;  // of the first micro-batch
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t];
        task.kind == TaskKind::forward && micro_batch_of_part(builder, strategy, task.op, task.part) <= 0)
      forward[{task.device, task.op}].push_back(t);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (task.kind != TaskKind::parameter_all_gather || task.before_op >= 0) continue;
    changes.remove_all_before(t);
    for (const DeviceId holder : tasks.holders(task))
      for (const OperatorId op : builder.groups()[tasks.units[task.unit].group].operators)
        if (const auto found = forward.find({holder, op}); found != forward.end())
          for (const int reader : found->second) changes.add(t, reader);
  }
}

void reduce_late(const TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy, int64_t beyond,
                 Changes& changes) {
  const std::map<DeviceId, Vector<int>> last = last_backward_tasks(tasks, builder, strategy);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (task.kind != TaskKind::synchronization || tasks.units[task.unit].holder_count() <= beyond ||
        tasks.reduces_after_backward(task) || shards_gradients(tasks.synchronization_of(tasks.units[task.unit].group)))
      continue;
    for (const DeviceId holder : tasks.holders(task))
      if (const auto found = last.find(holder); found != last.end())
        for (const int before : found->second) changes.add(before, t);
  }
}

}  // namespace

void order_step(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                const FrameworkConventions& conventions) {
  Changes changes(tasks);
  if (conventions.clips_gradients) update_after_reductions(tasks, changes);
  if (conventions.gathers_for_forward) gather_before_forward(tasks, builder, strategy, changes);
  if (conventions.late_reductions_beyond > 0)
    reduce_late(tasks, builder, strategy, conventions.late_reductions_beyond, changes);
  changes.apply();
}

}  // namespace ff
