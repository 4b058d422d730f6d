#include "search/optimizer/baselines/gshard.h"

#include <algorithm>

#include "search/optimizer/tensor_axes.h"

namespace ff {
namespace {

int largest_divisor(int number, int64_t most) {
  int divisor = static_cast<int>(std::min<int64_t>(number, most));
  while (number % divisor != 0) --divisor;
  return divisor;
}

// "expert" by name; of an einsum the letter that input, parameter and output have, as each expert has weights of its
// own.
int expert_dimension(const OperatorDefinition& definition) {
  for (const int d : definition.dimensions().indices()) {
    const ParallelDimension& dimension = definition.dimensions()[d];
    if (dimension.kind != DimensionKind::parameter) continue;
    if (dimension.name == "expert") return d;
    if (definition.type() == "einsum" && axis_of_input(definition, 0, d) >= 0 && axis_of_output(definition, 0, d) >= 0)
      return d;
  }
  return -1;
}

}  // namespace

std::optional<Strategy> gshard(const Graph& graph, const Topology& topology) {
  const int devices = topology.devices.count();
  const Vector<DeviceId> order = topology.by_links();
  Strategy strategy = data_parallel(graph, topology);
  bool found = false;
  for (const OperatorId op : graph.operator_ids()) {
    const OperatorDefinition& definition = *graph.operators[op].definition;
    const int expert = expert_dimension(definition);
    if (expert < 0) continue;
    found = true;
    Degrees degrees(definition.dimensions().size(), 1);
    degrees[expert] = largest_divisor(devices, definition.dimensions()[expert].size);
    // Rows: the first dimension, unless that is the expert itself.
    if (expert > 0) degrees[0] = largest_divisor(devices / degrees[expert], definition.dimensions()[0].size);
    strategy[op] = {degrees, {order.begin(), order.begin() + parts_of(degrees)}};
  }
  if (!found) return std::nullopt;
  return strategy;
}

}  // namespace ff
