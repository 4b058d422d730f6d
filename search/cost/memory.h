// How many bytes a strategy needs on every device.
#pragma once

#include <cstdint>
#include <vector>

#include "common/task_graph/task_graph.h"

namespace ff {

// Parameters with velocity, gradients, activations kept for backward, assembled inputs, gradient contributions, kernel workspaces and transfer buffers:
// the buffers that the executor plans (executor/program.h), each allocated once for the whole run. [device]
std::vector<int64_t> memory_bytes(TaskGraphBuilder& builder, const TaskGraph& tasks, const Strategy& strategy, int device_count);

}  // namespace ff
