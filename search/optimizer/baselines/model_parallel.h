// Model parallelism: every operator whole, neighbouring operators together on one device.
#pragma once

#include "common/strategy.h"
#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"

namespace ff {

// Cuts a sequence of items into at most as many contiguous stages as `kind` has, so that the slowest stage takes as
// little time as possible (exact: by dynamic programming, O(stages items^2), or, for larger tables, by bisection).
// times_ns[kind[stage]][item]: what the item would take as a part of that stage. Returns the stage of each item, never
// falling. At least one stage.
Vector<int> balanced_stages(const Vector<Vector<Nanoseconds>>& times_ns, const Vector<int>& kind,
                            int64_t largest_table = 4'000'000);  // a tenth of a second

// Operators in topological order cut into contiguous stages of balanced compute time (forward and backward), stage s on
// device s.
Strategy model_parallel(const Problem& problem, TaskCostModel& costs);

}  // namespace ff
