// What a search for a transformer starts from: the best settings (search.h) as a strategy.
#pragma once

#include <atomic>
#include <optional>

#include "search/algorithms/algorithms.h"
#include "search/problem_files.h"
#include "search/settings/choice.h"
#include "search/settings/search.h"

namespace ff {

struct PlanBySettings {
  Parallelism parallelism;
  Strategy strategy;          // of one micro-batch, with what is annotated
  StrategySettings settings;  // with what flags say
  // So many tasks that chains would hardly get anywhere: one simulation of all devices takes seconds.
  bool large = false;
};

// What flags have decided; the rest is open.
struct DecidedSettings {
  bool micro_batches = false, recompute = false, sharding = false;
};

// The best settings for a graph of two layers with attention or more on several devices. Those that `decided` names
// are as the files say. They are searched with analytic costs, or those of a profile alone, until nothing better is to
// be expected; for a quarter of a budget at most, or for a minute without one. (With a number of proposals the result
// does not depend on the time; then large mixtures of experts are left out.) Of the best three the one is taken that
// is fastest in its best order of tasks, unless it is large. Where none fits, the one that needs the least memory.
// Nothing where no settings are possible, and where a heuristic baseline with the settings of the files is faster.
std::optional<PlanBySettings> plan_by_settings(
    const GraphAndTopology& files, const CostOptions& costs, const AlgorithmSettings& settings,
    const DecidedSettings& decided, const std::atomic<bool>& stop,
    const std::function<void(const SettingsSearchProgress&)>& progress = nullptr);

}  // namespace ff
