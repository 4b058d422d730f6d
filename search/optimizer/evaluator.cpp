#include "search/optimizer/evaluator.h"

#include <algorithm>
#include <chrono>

#include "common/task_graph/issue_order.h"

namespace ff {

Evaluator::Evaluator(const Problem& problem)
    : problem_(problem), builder_(problem.graph), cost_model_(problem.graph, problem.topology, problem.kernels),
      memory_(builder_, problem.topology.devices.count()) {
  for (const DeviceModel& model : problem.topology.models) memory_limited_ = memory_limited_ || model.memory_bytes > 0;
}

double Evaluator::memory_excess(const Vector<int64_t>& used) const {
  double excess = 0;
  for (DeviceId device : used.indices()) {
    const int64_t capacity = problem_.topology.model_of(device).memory_bytes;
    if (capacity > 0 && used[device] > capacity)
      excess = std::max(excess, static_cast<double>(used[device] - capacity) / static_cast<double>(capacity));
  }
  return excess;
}

Prediction Evaluator::with_excess(Nanoseconds makespan, double excess) {
  const double time = static_cast<double>(makespan);
  return {makespan, time * cost_factor(excess), excess == 0};
}

Prediction Evaluator::evaluate(const Strategy& strategy) {
  const auto begin = std::chrono::steady_clock::now();
  const TaskGraph tasks = builder_.build(strategy);
  const Timeline timeline = simulate_full(tasks, cost_model_.costs(tasks, strategy));
  const double excess = memory_limited_ ? memory_excess(memory_.bytes(strategy)) : 0;
  slowest_s_ = std::max(slowest_s_, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  return with_excess(timeline.makespan, excess);
}

Evaluator::Details Evaluator::details(const Strategy& strategy, const Vector<std::string>* issue_order) {
  Details details;
  details.tasks = builder_.build(strategy);
  details.costs = cost_model_.costs(details.tasks, strategy);
  details.timeline = simulate_full(details.tasks, details.costs);
  details.sources = cost_model_.count_sources(strategy);
  if (!issue_order) details.order = tasks_by_start(details.tasks, details.timeline);
  else details.order = issue_order_from_names(builder_, details.tasks, *issue_order);
  if (details.order.empty()) details.order = default_issue_order(builder_, details.tasks);
  details.memory_bytes = memory_.bytes(strategy, details.tasks, details.order);
  return details;
}

}  // namespace ff
