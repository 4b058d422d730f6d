// Gradients that are reduced after backward (StrategySettings::overlaps_reductions).
#pragma once

#include "common/task_graph/task_graph.h"

namespace ff {

// Now the reductions of units also wait for the backward tasks of the last micro-batch of each holder's first operator:
// the last that a device computes in a pipeline. Not those of units whose gradients are sharded (each micro-batch's are
// reduced), or that have owners.
void reduce_after_backward(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy);

}  // namespace ff
