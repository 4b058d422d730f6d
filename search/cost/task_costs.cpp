#include "search/cost/task_costs.h"

namespace ff {

TaskCostModel::TaskCostModel(const Graph& graph, const Topology& topology, KernelCosts& kernels)
    : graph_(graph), topology_(topology), kernels_(kernels), communication_(topology), cache_(graph.operators.size()) {
  for (const Parameter& parameter : graph.parameters)
    if (parameter.uses.size() > 1)
      shared_bytes_[graph.operators[parameter.uses[0].first].definition->type()] += 2 * volume(parameter.spec.shape) * element_bytes;
  for (const Operator& op : graph.operators) shared_bytes_.try_emplace(op.definition->type(), 1);  // shares with another type
}

const std::vector<TaskCostModel::PartCost>& TaskCostModel::part_costs(OperatorId op, const std::vector<int>& degrees, int model) {
  Cached& cached = cache_[op][degrees];
  if (cached.by_model.empty()) cached.by_model.resize(topology_.models.size());
  std::vector<PartCost>& costs = cached.by_model[model];
  if (!costs.empty()) return costs;
  const Operator& described = graph_.operators[op];
  KernelUse use;
  for (size_t input = 0; input < described.inputs.size(); ++input)
    use.input_gradients = use.input_gradients || graph_.input_has_gradient(op, static_cast<int>(input));
  for (ParameterId parameter : described.parameters)
    if (graph_.parameters[parameter].uses.size() > 1) use.shared_bytes = shared_bytes_.at(described.definition->type());
  int64_t parts = 1;
  for (int degree : degrees) parts *= degree;
  for (int64_t part = 0; part < parts; ++part) {
    const Block block = described.definition->part(degrees, part);
    PartCost cost;
    const bool statistics = described.definition->has_statistics();
    const auto statistics_cost = [&](Phase phase) {
      return kernels_.kernel(*described.definition, block, phase, described.has_backward, use, model);
    };
    if (statistics) cost.forward_statistics = statistics_cost(Phase::forward_statistics);
    if (statistics && described.has_backward) cost.backward_statistics = statistics_cost(Phase::backward_statistics);
    cost.forward = kernels_.kernel(*described.definition, block, Phase::forward, described.has_backward, use, model);
    if (described.has_backward)
      cost.backward = kernels_.kernel(*described.definition, block, Phase::backward, true, use, model);
    costs.push_back(cost);
  }
  return costs;
}

const TaskCostModel::PartCost& TaskCostModel::part_cost(OperatorId op, const std::vector<int>& degrees, int part, int model) {
  return part_costs(op, degrees, model)[part];
}

Nanoseconds TaskCostModel::copy_ns(int64_t bytes, int model) {
  if (bytes == 0) return 0;
  const auto [it, added] = copies_.try_emplace({model, bytes}, 0);
  if (added) it->second = kernels_.copy(bytes, model);
  return it->second;
}

Nanoseconds TaskCostModel::update_ns(int64_t bytes, int model) {
  if (bytes == 0) return 0;
  const auto [it, added] = updates_.try_emplace({model, bytes}, 0);
  if (added) it->second = kernels_.update(bytes, model);
  return it->second;
}

Nanoseconds TaskCostModel::duration(const Task& task, const Strategy& strategy) {
  const int model = topology_.devices[task.device].model;
  if (task.kind == TaskKind::update) return update_ns(task.bytes, model) + copy_ns(task.copy_bytes, model);
  const PartCost& cost = part_cost(task.op, strategy[task.op].degrees, task.part, model);
  const KernelCost& kernel = task.kind == TaskKind::forward              ? cost.forward
                             : task.kind == TaskKind::backward           ? cost.backward
                             : task.kind == TaskKind::forward_statistics ? cost.forward_statistics
                                                                         : cost.backward_statistics;
  return kernel.ns + copy_ns(task.copy_bytes, model);
}

TaskCosts TaskCostModel::costs(const TaskGraph& graph, const Strategy& strategy) {
  TaskCosts costs;
  costs.resource_count = static_cast<int32_t>(topology_.devices.size() + topology_.channels.size());
  costs.duration.reserve(graph.tasks.size());
  costs.use_begin.reserve(graph.tasks.size() + 1);
  costs.uses.reserve(graph.tasks.size() * 2);
  CommunicationCost communication;
  for (const Task& task : graph.tasks) {
    costs.use_begin.push_back(static_cast<int32_t>(costs.uses.size()));
    if (is_transfer(task.kind) || is_reduction(task.kind) || task.kind == TaskKind::synchronization) {
      if (is_reduction(task.kind))
        communication_.all_reduce(reduction_holders(*graph_.operators[task.op].definition, strategy[task.op], task.part), task.bytes, communication);
      else if (task.kind == TaskKind::synchronization) communication_.all_reduce(graph.units[task.unit].holders, task.bytes, communication);
      else communication_.transfer(task.device, task.destination, task.bytes, communication);
      costs.duration.push_back(communication.duration);
      costs.uses.insert(costs.uses.end(), communication.uses.begin(), communication.uses.end());
    } else {
      const Nanoseconds ns = duration(task, strategy);
      costs.duration.push_back(ns);
      costs.uses.push_back({task.device, ns});
    }
  }
  costs.use_begin.push_back(static_cast<int32_t>(costs.uses.size()));
  return costs;
}

CostCounts TaskCostModel::count_sources(const Strategy& strategy) {
  CostCounts counts;
  const auto count = [&](CostSource source) {
    ++(source == CostSource::profile ? counts.profile : source == CostSource::measured ? counts.measured : counts.analytic);
  };
  for (OperatorId op = 0; op < static_cast<OperatorId>(strategy.size()); ++op)
    for (int part = 0; part < strategy[op].parts(); ++part) {
      const PartCost& cost = part_cost(op, strategy[op].degrees, part, topology_.devices[strategy[op].devices[part]].model);
      count(cost.forward.source);
      if (graph_.operators[op].has_backward) count(cost.backward.source);
    }
  return counts;
}

}  // namespace ff
