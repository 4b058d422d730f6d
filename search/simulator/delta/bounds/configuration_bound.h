// A lower bound on the makespan after a change of one operator, found without simulating: what the current timeline
// says of the time before the change, the kernels and transfers of the changed operator, and the paths behind it.
#pragma once

#include "common/vector.h"
#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {

// The part of the current timeline that no change of an operator can affect.
struct KnownPrefix {
  size_t events = 0;      // so many events happen as they did
  Nanoseconds ready = 0;  // what happens behind them does not become ready before this
  // [operator]: first slot; [slot]: when a forward task ended, and as which event.
  const Vector<int32_t>& forward_slot;
  const Vector<Nanoseconds>& ended_at;
  const Vector<size_t>& position;
};

class ProposalBound {
 public:
  explicit ProposalBound(StrategyState& state);

  // Is the makespan with this configuration for `op` certain to exceed the limit? The state is the current strategy's.
  bool exceeds(OperatorId op, const Configuration& configuration, const KnownPrefix& prefix, Nanoseconds limit);

 private:
  // What transfers over an edge keep busy: each channel's occupancy, and when the first of them can start.
  struct Load {
    Nanoseconds occupied = 0, first = 0;
    uint32_t epoch = 0;
  };

  bool devices_exceed(OperatorId op, const Configuration& configuration, Nanoseconds limit);
  // Do the tasks before late groups, and then their synchronization without that of the operator's own groups, take too
  // long?
  bool late_groups_exceed(OperatorId op, const Configuration& configuration, Nanoseconds limit);
  // When can the parts be ready at the earliest, by the amount of data that each device and node must get? Without
  // looking at pairs of parts.
  bool volumes_exceed(OperatorId op, const Configuration& configuration, Nanoseconds limit);
  // Sets when the parts become ready.
  bool inputs_exceed(OperatorId op, const Configuration& configuration, Nanoseconds limit);
  bool shared_devices_exceed(const Configuration& configuration, Nanoseconds limit);
  Nanoseconds forward_end(OperatorId op, int part);
  Nanoseconds forward_ready(OperatorId op);
  void begin_loads() {
    ++load_epoch_;
    loaded_.clear();
  }
  // Adds a transfer that cannot start before `earliest`; its end at the earliest.
  Nanoseconds add_transfer(DeviceId source, DeviceId destination, int64_t bytes, Nanoseconds earliest);
  // The last transfer over the most loaded channel ends no earlier.
  Nanoseconds loaded_until() const;

  StrategyState& state_;
  const KnownPrefix* prefix_ = nullptr;
  Vector<Nanoseconds> forward_kernel_, backward_kernel_, ready_;         // [part of the changed operator]
  Vector<Nanoseconds> work_;                                             // [device]
  Vector<Nanoseconds> device_ready_, device_forward_, device_backward_;  // [device]
  Vector<Nanoseconds> forward_ready_;                                    // [operator], of this epoch
  Vector<uint32_t> forward_ready_epoch_;                                 // [operator]
  Vector<Load> loads_;                                                   // [channel]
  Vector<ChannelId> loaded_;
  const Topology::IncomingRates incoming_;
  // [node]: device and block of the producer's parts there
  Vector<Vector<std::pair<DeviceId, Block>>> producer_blocks_;
  Vector<int64_t> node_bytes_;  // [node]
  CommunicationCost transfer_;  // scratch
  uint32_t epoch_ = 0, load_epoch_ = 0;
  Nanoseconds least_forward_ = 0, least_backward_ = 0, behind_ = 0;
};

}  // namespace ff::delta
