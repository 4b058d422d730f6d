// Plans near the settings that a search found, which the search did not look at: other borders of the stages,
// recomputation of some layers of each chunk, and reduction of gradients at another time.
#pragma once

#include <functional>

#include "search/settings_prediction.h"

namespace ff {

struct SettingsRefinement {
  const Graph& graph;
  const Topology& topology;
  const CostOptions& costs;
  bool borders = true, recomputation = true, overlap = true, gathers = true;  // what may change
  std::function<bool()> ended;                                                // no time is left, or the user stops it
};

// The fastest plan found from `plan`, which fits; `plan` itself where nothing is faster by more than 0.1 %. Where all
// layers are recomputed, the fewest with which the plan fits, by bisection. Then a layer is moved from the stage that
// computes longest to the one that does least, while that is faster. At last gradients are reduced with backward
// instead of after it, or the other way round, and with Megatron-LM weights gathered with forward where they are.
// `simulated` counts the plans.
SettingsPrediction refined(const SettingsPrediction& plan, const SettingsRefinement& refinement, int64_t& simulated);

}  // namespace ff
