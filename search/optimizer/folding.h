// Plans of settings (parallelism.h) for many devices, folded: data-parallel groups that have the same timeline are
// simulated once (search/cost/replicas.h). The time of an iteration and the memory of each device are those of the
// simulation of all devices.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "search/cost/replicas.h"
#include "search/optimizer/parallelism.h"

namespace ff {

// What collectives of parameters load, for all plans on a topology: many plans have them among the same devices. Not
// thread-safe.
class ParameterLoads {
 public:
  // Equal times, at sizes at which different algorithms may be the fastest, have equal hashes.
  struct Load {
    ChannelId channel;
    uint64_t hash;
  };

  explicit ParameterLoads(const Topology& topology);
  const Vector<Load>& of(CollectiveKind kind, const Vector<DeviceId>& holders);

 private:
  const Topology& topology_;
  CommunicationModel communication_;
  Vector<uint64_t> hash_;  // [channel]; all 0 between calls
  std::map<std::pair<CollectiveKind, Vector<DeviceId>>, Vector<Load>> known_;
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
// simulated together; parameter servers. `parallelism`, its data-parallel degree included, is that of plan_of; `loads`
// are those on this topology.
std::optional<FoldedPlan> folded(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                 ParameterLoads& loads);

}  // namespace ff
