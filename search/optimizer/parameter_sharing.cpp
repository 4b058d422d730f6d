#include "search/optimizer/parameter_sharing.h"

#include "search/optimizer/disjoint_sets.h"

namespace ff {

Vector<Vector<OperatorId>> parameter_sharing_layers(const Graph& graph) {
  DisjointSets sets(graph.operators.count());
  for (const Parameter& parameter : graph.parameters)
    for (const auto& [op, which] : parameter.uses) sets.join(parameter.uses[0].first, op);
  const Vector<int> layer_of = sets.numbers();
  Vector<Vector<OperatorId>> layers;
  for (OperatorId op : graph.operator_ids()) {
    if (layer_of[op] == layers.count()) layers.emplace_back();
    layers[layer_of[op]].push_back(op);
  }
  return layers;
}

}  // namespace ff
