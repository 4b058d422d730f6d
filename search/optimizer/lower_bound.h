// A time that no strategy can beat.
#pragma once

#include "search/cost/task_costs.h"
#include "search/optimizer/problem.h"
#include "search/optimizer/search_space.h"

namespace ff {

// The larger of two bounds. They hold for every strategy that a search, an annotation or a baseline can make: for any
// degrees, dividing the number of devices or not, for unequal shares, and for several parts on a device.
//   work:  the least compute time of each operator, summed over its parts and over all operators, spread evenly over
//          the devices
//   path:  the longest path through the graph, forward and backward, when every kernel takes the least time that a
//          kernel can take (a path may run through the smallest parts alone)
// Why the work of an operator is at least what lower_bound.cpp counts: see least_times there. Transfers,
// synchronization and updates are counted as free, so the bound is not always reachable. A device that nothing uses
// does not raise it.
//
// Kernels with profiled or measured times have no such rule. For them the bound assumes that no part takes less time
// for each of its elements than the fastest part of the degrees that the search space holds.
Nanoseconds lower_bound(const Problem& problem, const SearchSpace& space, TaskCostModel& costs);

}  // namespace ff
