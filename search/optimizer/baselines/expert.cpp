#include "search/optimizer/baselines/expert.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "search/optimizer/baselines/model_parallel.h"

namespace ff {
namespace {

bool has_type(const Graph& graph, const Vector<std::string>& types) {
  for (const Operator& op : graph.operators)
    if (std::find(types.begin(), types.end(), op.definition->type()) != types.end()) return true;
  return false;
}

// Splits dense layers by channel, and elementwise operators between them alike.
Strategy one_weird_trick(const Graph& graph, const Topology& topology) {
  Strategy strategy = data_parallel(graph, topology);
  Vector<bool> by_channel(graph.operators.size(), false);
  for (size_t op = 0; op < graph.operators.size(); ++op) {
    const Operator& described = graph.operators[op];
    const auto& dimensions = described.definition->dimensions();
    if (dimensions.size() != 2 || dimensions[1].name != "channel") continue;
    bool follows = true;
    for (TensorId input : described.inputs) {
      const OperatorId producer = graph.tensors[input].producer;
      follows = follows && producer >= 0 && by_channel[producer];
    }
    if (described.definition->type() != "linear" && !follows) continue;
    by_channel[op] = true;
    const int degree =
        static_cast<int>(std::min<int64_t>(dimensions[1].size, static_cast<int64_t>(topology.devices.size())));
    strategy[op].degrees = {1, degree};
    strategy[op].devices.resize(degree);
    std::iota(strategy[op].devices.begin(), strategy[op].devices.end(), 0);
  }
  return strategy;
}

// The longest path of layers in front of each operator's layer. A path that returns to an earlier layer (attention fed
// back to a decoder) does not count.
Vector<int> layer_depths(const Graph& graph) {
  const Vector<Vector<OperatorId>> layers = parameter_sharing_layers(graph);
  Vector<size_t> layer_of(graph.operators.size());
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (OperatorId op : layers[layer]) layer_of[op] = layer;
  Vector<int> depth(layers.size(), 0), depth_of(graph.operators.size());
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (OperatorId op : layers[layer])
      for (TensorId input : graph.operators[op].inputs) {
        const OperatorId producer = graph.tensors[input].producer;
        if (producer >= 0 && layer_of[producer] < layer)
          depth[layer] = std::max(depth[layer], depth[layer_of[producer]] + 1);
      }
  for (size_t op = 0; op < depth_of.size(); ++op) depth_of[op] = depth[layer_of[op]];
  return depth_of;
}

Strategy replicas_of_stages(const Graph& graph, const Topology& topology, TaskCostModel& costs) {
  Vector<Vector<DeviceId>> nodes;
  std::map<std::string, size_t> node_number;
  for (DeviceId device = 0; device < static_cast<DeviceId>(topology.devices.size()); ++device) {
    const auto [it, added] = node_number.emplace(topology.devices[device].node, nodes.size());
    if (added) nodes.emplace_back();
    nodes[it->second].push_back(device);
  }
  size_t stages = nodes[0].size();
  for (const auto& node : nodes) stages = std::min(stages, node.size());
  const Vector<int> depth = layer_depths(graph);
  const size_t depths = static_cast<size_t>(*std::max_element(depth.begin(), depth.end())) + 1;
  Strategy strategy = single_device(graph);
  for (size_t op = 0; op < strategy.size(); ++op) {
    const int64_t samples = graph.operators[op].definition->dimensions()[0].size;
    strategy[op].degrees[0] = static_cast<int>(std::min(samples, static_cast<int64_t>(nodes.size())));
  }
  Vector<Vector<Nanoseconds>> times(stages, Vector<Nanoseconds>(depths, 0));
  for (size_t stage = 0; stage < stages; ++stage)
    for (size_t op = 0; op < strategy.size(); ++op) {
      const TaskCostModel::PartCost& cost = costs.part_cost(static_cast<OperatorId>(op), strategy[op].degrees, 0,
                                                            topology.devices[nodes[0][stage]].model);
      times[stage][depth[op]] += cost.all_forward() + cost.all_backward();
    }
  const Vector<int> stage_of = balanced_stages(times);
  for (size_t op = 0; op < strategy.size(); ++op) {
    strategy[op].devices.clear();
    for (int node = 0; node < strategy[op].degrees[0]; ++node)
      strategy[op].devices.push_back(nodes[node][stage_of[depth[op]]]);
  }
  return strategy;
}

}  // namespace

Vector<Vector<OperatorId>> parameter_sharing_layers(const Graph& graph) {
  Vector<OperatorId> first(graph.operators.size());  // union-find whose root is the first operator
  std::iota(first.begin(), first.end(), 0);
  const auto root = [&](OperatorId op) {
    while (first[op] != op) op = first[op] = first[first[op]];
    return op;
  };
  for (const Parameter& parameter : graph.parameters)
    for (const auto& [op, which] : parameter.uses) {
      const OperatorId a = root(parameter.uses[0].first), b = root(op);
      first[std::max(a, b)] = std::min(a, b);
    }
  Vector<Vector<OperatorId>> layers;
  Vector<size_t> layer_of(graph.operators.size());
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
    const OperatorId leader = root(op);
    if (leader == op) {
      layer_of[op] = layers.size();
      layers.emplace_back();
    }
    layers[layer_of[leader]].push_back(op);
  }
  return layers;
}

ExpertStrategy expert_strategy(const Graph& graph, const Topology& topology, TaskCostModel& costs) {
  if (has_type(graph, {"lstm"}))
    return {replicas_of_stages(graph, topology, costs),
            "recurrent network: data parallelism across nodes, operators of equal depth on one device within a node "
            "(Wu et al. 2016)"};
  if (has_type(graph, {"conv1d", "conv2d"}))
    return {one_weird_trick(graph, topology),
            "convolutional network: data parallelism, dense layers split by channel (Krizhevsky 2014)"};
  return {data_parallel(graph, topology),
          "neither convolutional nor recurrent: no expert strategy is known here, data parallelism in its place"};
}

}  // namespace ff
