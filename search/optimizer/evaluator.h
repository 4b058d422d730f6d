// The oracle of the search: what would an iteration under this strategy take?
#pragma once

#include "search/cost/memory.h"
#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"
#include "search/simulator/full.h"

namespace ff {

struct Prediction {
  Nanoseconds makespan = 0;
  // the makespan; for a strategy that exceeds a device's memory, at least twice as much and growing with the excess
  double cost = 0;
  bool feasible = true;  // fits into every device's memory, by MemoryModel's bound for all issue orders
};

// Not thread-safe: one a thread.
class Evaluator {
 public:
  explicit Evaluator(const Problem& problem);

  Prediction evaluate(const Strategy& strategy);

  // Everything about one strategy, for reports.
  struct Details {
    TaskGraph tasks;
    TaskCosts costs;
    Timeline timeline;
    Vector<int> order;             // of all tasks: an issue order
    Vector<int64_t> memory_bytes;  // by device: what the executor allocates in this order
    CostCounts sources;
  };
  // Memory is that of the order in which the simulator starts the tasks; with an issue order, a strategy file's, as the
  // executor runs it: of that order, or of the default one where it does not fit.
  Details details(const Strategy& strategy, const Vector<std::string>* issue_order = nullptr);

  // The prediction for a makespan and the bytes needed of each device.
  Prediction prediction(Nanoseconds makespan, const Vector<int64_t>& bytes) const {
    return with_excess(makespan, memory_excess(bytes));
  }
  // How far the fullest device exceeds its memory, as a share of it; 0 when all fit.
  double memory_excess(const Vector<int64_t>& bytes) const;
  // by device; what feasible goes by
  Vector<int64_t> memory_bound(const Strategy& strategy) { return memory_.bytes(strategy); }
  bool memory_limited() const { return memory_limited_; }
  // A cost is its makespan times this.
  static double cost_factor(double excess) { return excess > 0 ? 2 + excess : 1; }

  const Problem& problem() const { return problem_; }
  TaskGraphBuilder& builder() { return builder_; }
  // The longest that evaluate has taken so far: nothing can cut it short.
  double slowest_s() const { return slowest_s_; }
  TaskCostModel& cost_model() { return cost_model_; }

 private:
  static Prediction with_excess(Nanoseconds makespan, double excess);

  Problem problem_;
  double slowest_s_ = 0;
  TaskGraphBuilder builder_;
  TaskCostModel cost_model_;
  MemoryModel memory_;
  bool memory_limited_ = false;
};

}  // namespace ff
