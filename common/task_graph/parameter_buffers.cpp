#include "common/task_graph/parameter_buffers.h"

#include <algorithm>

namespace ff {

bool is_updated(const Graph& graph, ParameterId parameter) {
  const Parameter& one = graph.parameters[parameter];
  return one.spec.trained && std::any_of(one.uses.begin(), one.uses.end(),
                                         [&](const auto& use) { return graph.operators[use.first].has_backward; });
}

DataType type_read(const Graph& graph, ParameterId parameter) {
  const auto& [op, number] = graph.parameters[parameter].uses[0];
  return graph.operators[op].definition->parameter_type(number);
}

int64_t weight_copy_bytes(const Graph& graph, ParameterId parameter, int64_t block_elements) {
  const DataType type = type_read(graph, parameter);
  return type == DataType::f32 ? 0 : bytes_of(type, block_elements);
}

ParameterBufferSizes parameter_buffer_sizes(const Graph& graph, ParameterId parameter, int64_t block_elements,
                                            int state_buffers, ParameterUse use) {
  const bool updated = is_updated(graph, parameter);
  return {block_elements, updated ? state_buffers * block_elements : 0,
          updated && use.has_backward && !use.is_piece ? block_elements : 0};
}

}  // namespace ff
