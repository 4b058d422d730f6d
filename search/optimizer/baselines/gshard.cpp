#include "search/optimizer/baselines/gshard.h"

#include <algorithm>
#include <numeric>

namespace ff {
namespace {

int largest_divisor(int number, int64_t most) {
  int divisor = static_cast<int>(std::min<int64_t>(number, most));
  while (number % divisor != 0) --divisor;
  return divisor;
}

int expert_dimension(const OperatorDefinition& definition) {
  for (const int d : definition.dimensions().indices())
    if (definition.dimensions()[d].name == "expert" && definition.dimensions()[d].kind == DimensionKind::parameter)
      return d;
  return -1;
}

}  // namespace

std::optional<Strategy> gshard(const Graph& graph, const Topology& topology) {
  const int devices = topology.devices.count();
  Strategy strategy = data_parallel(graph, topology);
  bool found = false;
  for (const OperatorId op : graph.operator_ids()) {
    const OperatorDefinition& definition = *graph.operators[op].definition;
    const int expert = expert_dimension(definition);
    if (expert < 0) continue;
    found = true;
    Degrees degrees(definition.dimensions().size(), 1);
    degrees[expert] = largest_divisor(devices, definition.dimensions()[expert].size);
    if (expert > 0) degrees[0] = largest_divisor(devices / degrees[expert], definition.dimensions()[0].size);
    strategy[op] = {degrees, Vector<DeviceId>(parts_of(degrees))};
    std::iota(strategy[op].devices.begin(), strategy[op].devices.end(), 0);
  }
  if (!found) return std::nullopt;
  return strategy;
}

}  // namespace ff
