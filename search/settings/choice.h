// --micro-batches auto, --recompute auto and --sharding auto: what is decided before a search.
#pragma once

#include <atomic>
#include <optional>

#include "search/algorithms/algorithms.h"
#include "search/problem_files.h"

namespace ff {

struct SettingsChoice {
  bool micro_batches = false, recompute = false, sharding = false;  // to be chosen; the rest is as the files say
  bool any() const { return micro_batches || recompute || sharding; }
};

// The settings with which the fastest heuristic baseline that fits into memory, each in its best order of tasks, is
// fastest; where none fits, those with which the fullest device exceeds its memory least. Numbers of micro-batches: 1,
// 2, 4, ..., as far as the graph can be cut into them, until two in a row bring nothing. Where no baseline fits, the
// first of these with which one does: sharded optimizer state, gradients, parameters; the same with all operators but
// checkpoints recomputed. With each number of micro-batches the last of them is tried first, since nothing fits where
// that does not.
StrategySettings choose_settings(const GraphAndTopology& files, const CostOptions& costs,
                                 const AlgorithmSettings& settings, SettingsChoice choice,
                                 const std::atomic<bool>& stop);

// The prediction of the best heuristic baseline with the settings of the files, in its best order of tasks; nothing
// where none applies. After the deadline no further baseline is looked at.
std::optional<Prediction> best_baseline_of(const GraphAndTopology& files, const CostOptions& costs,
                                           const AlgorithmSettings& settings, const SearchControl& control);

}  // namespace ff
