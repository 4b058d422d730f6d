// The order in which a training framework takes its step, as predictions know it (conventions.h). ffexec reduces,
// updates and gathers each parameter as early as it can; frameworks scale gradients by the norm of all of them first.
#pragma once

#include "common/task_graph/task_graph.h"
#include "search/cost/conventions.h"

namespace ff {

// With further dependencies, and some fewer:
//   clips_gradients         a device updates when all of its gradients are reduced
//   gathers_for_forward     updated weights are gathered in front of the next forward pass: the iteration begins with
//                           the gathering, for which nothing waits but the first micro-batch's forward tasks
//   late_reductions_beyond  gradients that more devices than this have alike are reduced after a device's last
//                           backward pass
// `strategy` has the parts of all micro-batches.
void order_step(TaskGraph& tasks, const TaskGraphBuilder& builder, const Strategy& strategy,
                const FrameworkConventions& conventions);

}  // namespace ff
