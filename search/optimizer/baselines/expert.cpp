#include "search/optimizer/baselines/expert.h"

#include <algorithm>

#include "search/optimizer/baselines/model_parallel.h"
#include "search/optimizer/device_nodes.h"
#include "search/optimizer/operator_groups.h"

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
  const Vector<DeviceId> all = topology.by_links();
  Vector<bool> by_channel(graph.operators.size(), false);
  for (OperatorId op : graph.operator_ids()) {
    const Operator& described = graph.operators[op];
    const auto& dimensions = described.definition->dimensions();
    if (described.definition->outputs()[0].shape.size() != 2 || dimensions.size() < 2 ||
        dimensions[1].name != "channel")
      continue;
    const bool follows = std::all_of(described.inputs.begin(), described.inputs.end(), [&](TensorId input) {
      const OperatorId producer = graph.tensors[input].producer;
      return producer >= 0 && by_channel[producer];
    });
    if (described.definition->type() != "linear" && !follows) continue;
    by_channel[op] = true;
    strategy[op] = split_over(*described.definition, 1, all);
  }
  return strategy;
}

Strategy replicas_of_stages(const Problem& problem, TaskCostModel& costs) {
  const Graph& graph = problem.graph;
  const Vector<Vector<DeviceId>> nodes = devices_by_node(problem.topology);
  size_t stages = nodes[0].size();
  for (const auto& node : nodes) stages = std::min(stages, node.size());
  const Vector<int> depth = layer_depths(graph);
  const int depths = *std::max_element(depth.begin(), depth.end()) + 1;
  Strategy strategy = single_device(graph);
  for (OperatorId op : graph.operator_ids()) {
    const int64_t samples = graph.operators[op].definition->dimensions()[0].size;
    strategy[op].degrees[0] = static_cast<int>(std::min<int64_t>(samples, nodes.count()));
  }
  Vector<Vector<Nanoseconds>> times(problem.topology.models.size());
  Vector<int> model_of_stage;
  for (size_t stage = 0; stage < stages; ++stage) {
    const int model = problem.topology.devices[nodes[0][stage]].model;
    model_of_stage.push_back(model);
    if (!times[model].empty()) continue;
    times[model].assign(depths, 0);
    for (OperatorId op : graph.operator_ids()) {
      const TaskCostModel::PartCost& cost =
          costs.part_cost(op, problem.expanded_degrees(op, strategy[op].degrees), 0, model);
      times[model][depth[op]] += cost.all_forward() + cost.all_backward();
    }
  }
  const Vector<int> stage_of = balanced_stages(times, model_of_stage);
  for (OperatorId op : graph.operator_ids()) {
    strategy[op].devices.clear();
    for (int node = 0; node < strategy[op].degrees[0]; ++node)
      strategy[op].devices.push_back(nodes[node][stage_of[depth[op]]]);
  }
  return strategy;
}

}  // namespace

ExpertStrategy expert_strategy(const Problem& problem, TaskCostModel& costs) {
  const Graph& graph = problem.graph;
  if (has_type(graph, {"lstm"}))
    return {replicas_of_stages(problem, costs),
            "recurrent network: data parallelism across nodes, operators of equal depth on one device within a node "
            "(Wu et al. 2016)"};
  if (has_type(graph, {"conv1d", "conv2d"}))
    return {one_weird_trick(graph, problem.topology),
            "convolutional network: data parallelism, dense layers split by channel (Krizhevsky 2014)"};
  return {data_parallel(graph, problem.topology),
          "neither convolutional nor recurrent: no expert strategy is known here, data parallelism in its place"};
}

}  // namespace ff
