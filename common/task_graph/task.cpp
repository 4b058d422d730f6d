#include "common/task_graph/task.h"

namespace ff {

std::string_view to_string(TaskKind kind) {
  switch (kind) {
    case TaskKind::forward: return "forward";
    case TaskKind::activation: return "activation";
    case TaskKind::backward: return "backward";
    case TaskKind::gradient: return "gradient";
    case TaskKind::synchronization: return "synchronization";
    case TaskKind::update: return "update";
    case TaskKind::forward_statistics: return "forward_statistics";
    case TaskKind::forward_reduction: return "forward_reduction";
    case TaskKind::backward_statistics: return "backward_statistics";
    case TaskKind::backward_reduction: return "backward_reduction";
    case TaskKind::activation_collective: return "activation_collective";
    case TaskKind::gradient_collective: return "gradient_collective";
    case TaskKind::barrier: return "barrier";
    case TaskKind::parameter_gradient: return "parameter_gradient";
    case TaskKind::parameter_values: return "parameter_values";
    case TaskKind::recompute: return "recompute";
    case TaskKind::parameter_all_gather: return "parameter_all_gather";
    case TaskKind::parameter_copy: return "parameter_copy";
  }
  return "";
}

}  // namespace ff
