// Gradients that are reduced after backward (StrategySettings::overlaps_reductions).
#pragma once

#include <map>

#include "common/task_graph/task_graph.h"

namespace ff {

// By device: the tasks after which it has no backward pass left, the backward tasks of the last micro-batch of its
// first operator.
std::map<DeviceId, Vector<int>> last_backward_tasks(const TaskGraph& tasks, const TaskGraphBuilder& builder,
                                                    const Strategy& strategy);

// Now the reductions of units also wait for the last backward tasks of each holder. Not those of units whose gradients
// are sharded (each micro-batch's are reduced), or that have owners.
void reduce_after_backward(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy);

}  // namespace ff
