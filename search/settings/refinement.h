// Plans near the settings that a search found, which the search did not look at: other borders and chunks of stages,
// recomputation of some layers of each chunk, reduction of gradients at another time, and state that groups of ranks
// share instead of all.
#pragma once

#include <functional>

#include "search/settings/prediction.h"

namespace ff {

struct SettingsRefinement {
  const Graph& graph;
  const Topology& topology;
  const CostOptions& costs;
  KnownFolds& folds;  // on this topology
  // What may change:
  bool borders = true, chunks = true, recomputation = true, overlap = true, gathers = true, groups = true;
  std::function<bool()> ended;  // no time is left, or the user stops it
};

// Can a framework shard this among groups of ranks, each of which has all of it? FSDP and DeepSpeed (MiCS) what has
// sharded parameters, InternEvo the optimizer's state, Megatron-LM both (--num-distributed-optimizer-instances).
bool can_shard_in_groups(const std::string& framework, Synchronization synchronization);

// The ranks of a node that have the same parameters; 0: one alone, or all of them.
int smallest_shard_group(const Parallelism& parallelism, int devices_of_node);

// The fastest plan found from `plan`, which fits; `plan` itself where nothing is faster by more than 0.1 %. First a
// layer for each chunk, and chunks of the embedding and the loss alone, where these are up to twelve a stage. Where all
// layers are recomputed, the fewest with which the plan fits, by bisection. Then a layer is moved from the stage that
// computes longest to the one that does least, while that is faster. At last gradients are reduced with backward
// instead of after it, or the other way round, and with Megatron-LM weights gathered with forward where they are; and
// sharded state is shared by the ranks of as few nodes as have memory for it. `simulated` counts the plans.
SettingsPrediction refined(const SettingsPrediction& plan, const SettingsRefinement& refinement, int64_t& simulated);

}  // namespace ff
