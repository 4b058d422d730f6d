#include "search/cost/step_order.h"

#include <map>
#include <set>
#include <utility>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/late_reductions.h"
#include "common/task_graph/sharded_units.h"
#include "search/cost/gradient_buckets.h"

namespace ff {
namespace {

// A device's first update waits for its reductions, and its others for the first: in the order in which gradients are
// reduced, that of the default and of pipelines.
void update_after_reductions(const TaskGraph& tasks, const TaskGraphBuilder& builder, FurtherSuccessors& further) {
  const Vector<OperatorId> last_of_group = last_operators(builder);
  const auto place = [&](int update) {
    const TaskKey key = tasks.tasks[update].key;
    return std::pair(-last_of_group[subject_of(key)], key);
  };
  std::map<DeviceId, int> first;
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; task.kind == TaskKind::update) {
      const auto [found, added] = first.try_emplace(task.device, t);
      if (!added && place(t) < place(found->second)) found->second = t;
    }
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; task.kind == TaskKind::update)
      if (const int of_device = first.at(task.device); t != of_device) further[of_device].push_back(t);
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t]; task.kind == TaskKind::synchronization)
      for (const DeviceId holder : tasks.holders(task))
        if (const auto found = first.find(holder); found != first.end()) further[t].push_back(found->second);
}

// Sharded parameters are gathered by each micro-batch in any case (Task::before_op).
void gather_before_forward(const TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                           FurtherSuccessors& further, std::set<int>& free) {
  std::map<std::pair<DeviceId, OperatorId>, Vector<int>> forward;  // of the first micro-batch
  for (const int t : tasks.tasks.indices())
    if (const Task& task = tasks.tasks[t];
        task.kind == TaskKind::forward && micro_batch_of_part(builder, strategy, task.op, task.part) <= 0)
      forward[{task.device, task.op}].push_back(t);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (task.kind != TaskKind::parameter_all_gather || task.before_op >= 0) continue;
    free.insert(t);
    for (const DeviceId holder : tasks.holders(task))
      for (const OperatorId op : builder.groups()[tasks.units[task.unit].group].operators)
        if (const auto found = forward.find({holder, op}); found != forward.end())
          for (const int reader : found->second) further[t].push_back(reader);
  }
}

}  // namespace

void order_step(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                const FrameworkConventions& conventions) {
  FurtherSuccessors further;
  std::set<int> free;
  if (conventions.clips_gradients) update_after_reductions(tasks, builder, further);
  if (conventions.gathers_for_forward) gather_before_forward(tasks, builder, strategy, further, free);
  if (conventions.late_reductions_beyond > 0) {
    const auto is_late = [&](const Task& task) {
      const SynchronizationUnit& unit = tasks.units[task.unit];
      return is_reduced_late(unit, conventions) && !tasks.reduces_after_backward(task) &&
             !shards_gradients(tasks.synchronization_of(unit.group));
    };
    wait_for_backward(tasks, builder, strategy, is_late, further);
  }
  if (!further.empty() || !free.empty()) add_dependencies(tasks, further, free);
}

}  // namespace ff
