// The oracle of the search: what would an iteration under this strategy take?
#pragma once

#include "search/cost/task_costs.h"
#include "search/simulator/full.h"

namespace ff {

struct Evaluation {
  Nanoseconds makespan = 0;
  double cost = 0;       // the makespan; for a strategy that exceeds a device's memory, at least twice as much and growing with the excess
  bool feasible = true;  // fits into every device's memory
};

// Not thread-safe: one a thread.
class Evaluator {
 public:
  Evaluator(const Graph& graph, const Topology& topology, KernelCosts& kernels);

  Evaluation evaluate(const Strategy& strategy);

  // Everything about one strategy, for reports.
  struct Details {
    TaskGraph tasks;
    TaskCosts costs;
    Timeline timeline;
    std::vector<int64_t> memory_bytes;  // by device
    CostCounts sources;
  };
  Details details(const Strategy& strategy);

  // The cost of a strategy whose makespan is known.
  Evaluation evaluate_known(const Strategy& strategy, Nanoseconds makespan);

  TaskGraphBuilder& builder() { return builder_; }
  TaskCostModel& cost_model() { return cost_model_; }

 private:
  // How far the fullest device exceeds its memory, as a share of it; 0 when all fit.
  double memory_excess(const TaskGraph& tasks, const Strategy& strategy);
  static Evaluation with_excess(Nanoseconds makespan, double excess);

  const Topology& topology_;
  TaskGraphBuilder builder_;
  TaskCostModel cost_model_;
  bool memory_limited_ = false;
};

}  // namespace ff
