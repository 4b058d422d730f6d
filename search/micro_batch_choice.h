// --micro-batches auto: how many to search with.
#pragma once

#include <atomic>

#include "search/optimizer/algorithms.h"
#include "search/problem_files.h"

namespace ff {

// Of 1, 2, 4, ..., as far as the graph can be cut into them, the number with which the fastest heuristic baseline that
// fits into memory, each in its best order of tasks, is fastest; numbers are tried until two in a row bring nothing.
// Where no baseline fits with any, the number with which the fullest device exceeds its memory least.
int choose_micro_batches(const GraphAndTopology& files, const CostOptions& costs, const AlgorithmSettings& settings,
                         const std::atomic<bool>& stop);

}  // namespace ff
