// --micro-batches auto and --recompute auto: what is decided before a search.
#pragma once

#include <atomic>

#include "search/optimizer/algorithms.h"
#include "search/problem_files.h"

namespace ff {

struct SettingsChoice {
  bool micro_batches = false, recompute = false;  // what is to be chosen; the rest is as the files say
};

// The settings with which the fastest heuristic baseline that fits into memory, each in its best order of tasks, is
// fastest; where none fits, those with which the fullest device exceeds its memory least. Numbers of micro-batches: 1,
// 2, 4, ..., as far as the graph can be cut into them, until two in a row bring nothing. Recomputation: of all
// operators but checkpoints, for numbers with which no baseline fits without it.
StrategySettings choose_settings(const GraphAndTopology& files, const CostOptions& costs,
                                 const AlgorithmSettings& settings, SettingsChoice choice,
                                 const std::atomic<bool>& stop);

}  // namespace ff
