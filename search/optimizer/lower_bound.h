// A time that no strategy of the search space can beat.
#pragma once

#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"
#include "search/optimizer/search_space.h"

namespace ff {

// The larger of two bounds, over all degrees that the search space holds for each operator:
//   work:  the least compute time of each operator, summed over its parts and over all operators, spread evenly over
//          the devices
//   path:  the longest path through the graph, forward and backward, when every operator takes the time of its fastest
//          part under the degrees that make that least (a path may run through the fastest parts alone)
// Transfers and synchronization are counted as free, so the bound is not always reachable.
Nanoseconds lower_bound(const Problem& problem, const SearchSpace& space, TaskCostModel& costs);

}  // namespace ff
