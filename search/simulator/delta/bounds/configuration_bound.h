// A lower bound on the makespan after a change of one operator, before anything is built: what the known timeline says
// of the time before the change, the kernels and transfers of the changed operator, and the paths after it.
#pragma once

#include <algorithm>
#include <optional>

#include "common/vector.h"
#include "search/simulator/delta.h"
#include "search/simulator/delta/bounds/strategy_totals.h"

namespace ff::delta {

class KnownTimeline;

// The part of the known timeline that a change of an operator cannot affect.
struct KnownPrefix {
  const KnownTimeline& timeline;
  size_t events = 0;      // so many happen as they did
  Nanoseconds ready = 0;  // what happens after them does not become ready before this
};

class ConfigurationBound {
 public:
  ConfigurationBound(StrategyState& state, StrategyTotals& totals);

  // By which bound is the makespan with this change certain to exceed the limit? The state is the current strategy's.
  Bound exceeds(const Change& change, const KnownPrefix& prefix, Nanoseconds limit);

 private:
  // What transfers over an edge keep busy: each channel's occupancy, and when the first of them can start.
  struct ChannelUse {
    Nanoseconds occupied = 0, first = 0;
    uint32_t epoch = 0;
  };

  // By the kernels of a device? Sets the changed operator's kernels.
  bool kernels_exceed(const Change& change, Nanoseconds limit);
  // The paths from the last joint reductions before the change on? Sets the proposal's paths.
  bool paths_exceed(const Change& change, Nanoseconds limit);
  void set_proposed(const Change& change);
  void change_spans(const Change& change);
  // Until the parts can be ready, by the amount of data that each device and node must get? Without looking at pairs of
  // parts.
  bool volumes_exceed(const Change& change, Nanoseconds limit);
  // Until the parts can be ready, by the transfers and collectives that they wait for? Sets when that is. After
  // volumes_exceed, which finds the exchanges.
  bool transfers_exceed(const Change& change, Nanoseconds limit);
  // By the collectives of the edge from this producer. Nothing where it has transfers.
  std::optional<bool> collectives_exceed(OperatorId producer, const EdgeExchanges& exchanges, const Change& change,
                                         Nanoseconds limit);

  Nanoseconds forward_end(OperatorId op, int part);
  // No part of the operator that is not among the known events becomes ready before this.
  Nanoseconds forward_ready(OperatorId op);
  void begin_loads() {
    ++load_epoch_;
    loaded_.clear();
  }
  // Adds a transfer that cannot start before `earliest`; its end at the earliest.
  Nanoseconds add_transfer(DeviceId source, DeviceId destination, int64_t bytes, Nanoseconds earliest);
  // The last transfer over the most loaded channel ends no earlier.
  Nanoseconds loaded_until() const;
  // From the moment when a part is ready to the end.
  Nanoseconds behind_ready(int part, OperatorId op) const {
    return std::max(kernel_[Direction::forward][part] +
                        std::max(kernel_[Direction::backward][part] + behind_, proposed_.tail[Direction::forward][op]),
                    statistics_[Direction::forward][part] + proposed_.behind[stage_of(Direction::forward, op, true)]);
  }
  // The same with the operator's fastest part.
  Nanoseconds least_behind(OperatorId op) const {
    return std::max(least_[Direction::forward] + least_[Direction::backward] + behind_,
                    proposed_.behind_arrival(Direction::forward, op));
  }

  StrategyState& state_;
  StrategyTotals& totals_;
  const KnownPrefix* prefix_ = nullptr;
  // Of the changed operator:
  PerDirection<Vector<Nanoseconds>> kernel_;      // [direction][part]
  PerDirection<Vector<Nanoseconds>> statistics_;  // [direction][part]: of these, the statistics
  // Paths with the change, without copies of the operator and those next to it, of what comes after
  // known_reductions_. Kept from proposal to proposal, since most of it is the current strategy's.
  OperatorPaths proposed_;
  OperatorId proposed_op_ = 0;
  uint64_t proposed_version_ = 0;
  // The last joint reductions in front of the change that happen as they did, and when they end.
  Vector<std::pair<OperatorId, Nanoseconds>> known_reductions_;
  PerDirection<Nanoseconds> least_;                         // of the fastest part
  Nanoseconds behind_ = 0;                                  // path through consumers, and through producers back
  Vector<Nanoseconds> ready_;                               // [part]
  Vector<std::shared_ptr<const EdgeExchanges>> exchanges_;  // [edge into it]

  Vector<Nanoseconds> work_;              // [device], scratch
  Vector<Nanoseconds> forward_ready_;     // [operator], of this epoch
  Vector<uint32_t> forward_ready_epoch_;  // [operator]
  Vector<ChannelUse> channel_uses_;       // [channel]
  Vector<ChannelId> loaded_;              // of this epoch
  const Topology::IncomingRates incoming_;
  // [node]: device and block of the producer's parts there
  Vector<Vector<std::pair<DeviceId, Block>>> producer_blocks_;
  Vector<int64_t> node_bytes_;         // [node]
  Vector<Nanoseconds> node_rounding_;  // [node]: what rounding may make of that, at most
  CommunicationCost transfer_;         // scratch
  uint32_t epoch_ = 0, load_epoch_ = 0;
};

}  // namespace ff::delta
