#include "search/optimizer/operator_groups.h"

#include <algorithm>
#include <numeric>

namespace ff {
namespace {

// Sets that are joined (union-find). At first operators that share parameters are.
class OperatorSets {
 public:
  explicit OperatorSets(const Graph& graph) : parent_(graph.operators.size()) {
    std::iota(parent_.begin(), parent_.end(), 0);
    for (const Parameter& parameter : graph.parameters)
      for (const auto& [op, which] : parameter.uses) join(op, parameter.uses[0].first);
  }
  void join(OperatorId a, OperatorId b) {
    a = first(a);
    b = first(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }
  // The number of each operator's set. Sets are numbered from 0 in the order of their first operators.
  Vector<int> numbers() {
    Vector<int> number(parent_.size());
    int next = 0;
    for (OperatorId op : parent_.indices()) number[op] = first(op) == op ? next++ : number[first(op)];
    return number;
  }

 private:
  OperatorId first(OperatorId op) {  // of the operator's set
    while (parent_[op] != op) op = parent_[op] = parent_[parent_[op]];
    return op;
  }

  Vector<OperatorId> parent_;  // of the same set, and not after the operator
};

}  // namespace

Vector<Vector<OperatorId>> parameter_sharing_layers(const Graph& graph) {
  const Vector<int> layer_of = OperatorSets(graph).numbers();
  Vector<Vector<OperatorId>> layers;
  for (OperatorId op : graph.operator_ids()) {
    if (layer_of[op] == layers.count()) layers.emplace_back();
    layers[layer_of[op]].push_back(op);
  }
  return layers;
}

Vector<int> layer_depths(const Graph& graph) {
  const Vector<Vector<OperatorId>> layers = parameter_sharing_layers(graph);
  Vector<int> layer_of(graph.operators.size());
  for (int layer : layers.indices())
    for (OperatorId op : layers[layer]) layer_of[op] = layer;
  Vector<int> depth(layers.size(), 0), depth_of;
  for (int layer : layers.indices())
    for (OperatorId op : layers[layer])
      for (TensorId input : graph.operators[op].inputs) {
        const OperatorId producer = graph.tensors[input].producer;
        if (producer >= 0 && layer_of[producer] < layer)
          depth[layer] = std::max(depth[layer], depth[layer_of[producer]] + 1);
      }
  for (int layer : layer_of) depth_of.push_back(depth[layer]);
  return depth_of;
}

Vector<int> colocation_groups(const Graph& graph) {
  OperatorSets sets(graph);
  for (OperatorId op : graph.operator_ids()) {
    if (!graph.operators[op].parameters.empty()) continue;
    const Vector<TensorId>& inputs = graph.operators[op].inputs;
    const auto computed =
        std::find_if(inputs.begin(), inputs.end(), [&](TensorId input) { return graph.tensors[input].producer >= 0; });
    if (computed != inputs.end()) sets.join(op, graph.tensors[*computed].producer);
  }
  return sets.numbers();
}

}  // namespace ff
