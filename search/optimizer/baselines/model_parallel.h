// Model parallelism: every operator whole, neighbouring operators together on one device.
#pragma once

#include "common/strategy.h"
#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"

namespace ff {

// Cuts a sequence of items into at most as many contiguous stages as there are rows, so that the slowest stage takes as
// little time as possible (exact, by dynamic programming: O(stages items^2)). times_ns[stage][item]: what the item
// would take as a part of that stage. Returns the stage of each item, never falling. At least one stage.
Vector<int> balanced_stages(const Vector<Vector<Nanoseconds>>& times_ns);

// Operators in topological order cut into contiguous stages of balanced compute time (forward and backward), stage s on
// device s.
Strategy model_parallel(const Problem& problem, TaskCostModel& costs);

}  // namespace ff
