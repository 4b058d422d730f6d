// Gradients that are reduced after backward (StrategySettings::overlaps_reductions).
#pragma once

#include <functional>

#include "common/task_graph/dependencies.h"

namespace ff {

// Adds that the reductions that are late wait for the last backward tasks of each holder.
void wait_for_backward(const TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                       const std::function<bool(const Task&)>& is_late, FurtherSuccessors& further);

// Now the reductions of units also wait for the last backward tasks of each holder. Not those of units whose gradients
// are sharded (each micro-batch's are reduced), or that have owners.
void reduce_after_backward(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy);

}  // namespace ff
