// Plans of settings (parallelism.h) for many devices, folded: data-parallel groups that have the same timeline are
// simulated once (search/cost/replicas.h). The time of an iteration and the memory of each device are those of the
// simulation of all devices.
#pragma once

#include <memory>
#include <optional>

#include "search/cost/replicas.h"
#include "search/optimizer/parallelism.h"

namespace ff {

// What is known of earlier plans on one topology: many have the same groups. Not thread-safe.
class KnownFolds {
 public:
  explicit KnownFolds(const Topology& topology);
  ~KnownFolds();
  struct State;
  State& state() { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

struct FoldedPlan {
  Graph graph;        // with the samples of the groups that are simulated
  Topology topology;  // their devices
  ParallelPlan plan;
  std::shared_ptr<const Replicas> replicas;
};

// With as few groups as can stand for all of them. Nothing where that is all of them: groups of different devices or
// links; groups whose transfers share a link; collectives that load one group's links in another way than another's;
// operators that read samples of other groups (batch normalization), but those that split the experts, which are
// simulated together; parameter servers. `parallelism`, its data-parallel degree included, is that of plan_of, on the
// topology of `known`.
std::optional<FoldedPlan> folded(const Parallelism& parallelism, const Graph& graph, KnownFolds& known);

}  // namespace ff
