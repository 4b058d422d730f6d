// What delta simulation knows of a strategy: per operator, edge and parameter group, so that a change of one operator replaces little.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "search/cost/task_costs.h"

namespace ff::delta {

// The all-reduce of the statistics that some parts of an operator have in common.
struct ReductionState {
  std::vector<int> parts;
  CommunicationCost collective;
};

// One operator under its current configuration. Durations include copies.
struct OperatorState {
  std::vector<DeviceId> devices;
  std::vector<int> degrees;
  std::vector<Nanoseconds> forward_kernel, backward_kernel;            // [part]
  std::vector<Nanoseconds> forward, backward;                          // [part]: kernel plus copies
  // Of operators with statistics, else empty. forward_kernel and backward_kernel include them.
  std::vector<Nanoseconds> forward_statistics_kernel, backward_statistics_kernel, forward_statistics, backward_statistics;  // [part]
  std::vector<ReductionState> reductions;                              // [statistics group], alike in both directions
  std::vector<int32_t> forward_waits, backward_waits;                  // [part]: predecessors
  int parts() const { return static_cast<int>(devices.size()); }
};

// One edge under given degrees at both ends: who exchanges blocks with whom.
struct EdgePlan {
  const BlockPairs* pairs = nullptr;      // in order of (consumer part, producer part)
  std::vector<int32_t> consumer_begin;    // [consumer part + 1]: its pairs
  std::vector<int32_t> producer_begin;    // [producer part + 1]: into by_producer
  std::vector<int32_t> by_producer;       // indices of pairs
};

// Copies that an edge causes, which depend on the devices too.
struct EdgeState {
  const EdgePlan* plan = nullptr;
  std::vector<int64_t> assembled;    // [consumer part]: bytes copied to assemble its input
  std::vector<int64_t> packed;       // [producer part]: bytes packed to send activations
  std::vector<int64_t> packed_back;  // [consumer part]: bytes packed to send gradients
  std::vector<int64_t> contributed;  // [producer part]: bytes of the contributions to its output's gradient
  std::vector<int32_t> contributions;  // [producer part]: how many
  std::vector<uint8_t> in_place;       // [producer part]: the (only) contribution needs no copy
};

struct UnitState {
  int64_t number;  // of the first piece: part of the key
  SynchronizationUnit unit;
  std::vector<Nanoseconds> update;  // [holder]
  CommunicationCost collective;     // of several holders
  int32_t waits = 0;
};

struct GroupState {
  std::vector<UnitState> units;
  // Units that wait for a part: units_of[position of the operator in the group][part].
  std::vector<std::vector<std::vector<int32_t>>> units_of;
};

}  // namespace ff::delta
