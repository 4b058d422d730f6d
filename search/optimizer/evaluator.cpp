#include "search/optimizer/evaluator.h"

#include "common/task_graph/issue_order.h"

namespace ff {

Evaluator::Evaluator(const Graph& graph, const Topology& topology, KernelCosts& kernels)
    : topology_(topology), builder_(graph), cost_model_(graph, topology, kernels),
      memory_(builder_, static_cast<int>(topology.devices.size())) {
  for (const DeviceModel& model : topology.models) memory_limited_ = memory_limited_ || model.memory_bytes > 0;
}

double Evaluator::memory_excess(const Vector<int64_t>& used) const {
  double excess = 0;
  for (size_t device = 0; device < used.size(); ++device) {
    const int64_t capacity = topology_.model_of(static_cast<DeviceId>(device)).memory_bytes;
    if (capacity > 0 && used[device] > capacity)
      excess = std::max(excess, static_cast<double>(used[device] - capacity) / static_cast<double>(capacity));
  }
  return excess;
}

Evaluation Evaluator::with_excess(Nanoseconds makespan, double excess) {
  const double time = static_cast<double>(makespan);
  return {makespan, time * cost_factor(excess), excess == 0};
}

Evaluation Evaluator::evaluate(const Strategy& strategy) {
  const TaskGraph tasks = builder_.build(strategy);
  const Timeline timeline = simulate_full(tasks, cost_model_.costs(tasks, strategy));
  return with_excess(timeline.makespan, memory_limited_ ? memory_excess(memory_.bytes(strategy)) : 0);
}

Evaluator::Details Evaluator::without_memory(const Strategy& strategy) {
  Details details;
  details.tasks = builder_.build(strategy);
  details.costs = cost_model_.costs(details.tasks, strategy);
  details.timeline = simulate_full(details.tasks, details.costs);
  details.sources = cost_model_.count_sources(strategy);
  return details;
}

Evaluator::Details Evaluator::details(const Strategy& strategy) {
  Details details = without_memory(strategy);
  details.order = tasks_by_start(details.tasks, details.timeline);
  details.memory_bytes = memory_.bytes(strategy, details.tasks, details.order);
  return details;
}

Evaluator::Details Evaluator::details(const Strategy& strategy, const Vector<std::string>& issue_order) {
  Details details = without_memory(strategy);
  details.order = issue_order_from_names(builder_, details.tasks, issue_order);
  if (details.order.empty()) details.order = default_issue_order(details.tasks);
  details.memory_bytes = memory_.bytes(strategy, details.tasks, details.order);
  return details;
}

}  // namespace ff
