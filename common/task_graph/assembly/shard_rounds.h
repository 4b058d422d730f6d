// Units with sharded gradients or weights, round by round, and what limits how many are in flight (sharded_units.h).
#pragma once

#include "common/task_graph/assembly/recomputation.h"
#include "common/task_graph/assembly/units.h"
#include "common/task_graph/sharded_units.h"

namespace ff::assembly {

class ShardRoundsDraft {
 public:
  ShardRoundsDraft(Draft& draft, Recomputation& recomputation) : draft_(draft), recomputation_(recomputation) {}

  // The unit, which is the next of TaskGraph::units.
  void add(UnitDraft& unit, const ShardRounds& rounds);
  // When all have been added.
  void limit_in_flight();

 private:
  struct ShardedUnit {
    int32_t unit;  // index into TaskGraph::units
    ShardRounds rounds;
    OperatorId op;               // the group's
    OperatorId begin;            // where its weights are first needed again
    Vector<int32_t> reductions;  // by round
    Vector<int32_t> gatherings;  // by ShardRounds::gathering; empty: weights are not sharded
  };
  // A sharded unit as one of its holders sees it.
  struct HeldShard {
    DeviceId device;
    const ShardedUnit* of;
    Vector<int32_t> parts;  // of its operator on this device
  };
  // What a device gathers at once, in the order of operators: the shards of a layer (TaskGraphBuilder::sharded_layer),
  // or a single one.
  using HeldLayer = Vector<const HeldShard*>;

  void add_gatherings(UnitDraft& unit, ShardedUnit& sharded);
  int32_t first_part(OperatorId op, int micro_batch) const;
  int micro_batch(OperatorId op, int32_t part) const {
    return micro_batch_of_part(draft_.builder, draft_.strategy, op, part);
  }
  std::map<DeviceId, Vector<HeldShard>> held_shards() const;
  Vector<HeldLayer> layers_of(const Vector<HeldShard>& shards) const;
  static const HeldShard* in_front_of(const Vector<HeldLayer>& layers, int layer);
  static const HeldShard* after(const Vector<HeldLayer>& layers, int layer, OperatorId op);
  void limit_in_flight(const Vector<HeldLayer>& layers);
  void join_layers();
  template <class Visit>
  void for_each_part(const HeldShard& shard, int in, const Visit& visit) const;
  void limit_gradients(const HeldShard& shard, const HeldShard& later);
  void gather_for_forward(const HeldShard& shard, int round, const HeldShard* before);
  void gather_for_backward(const HeldShard& shard, int round, const HeldShard* before);

  Draft& draft_;
  Recomputation& recomputation_;
  Vector<ShardedUnit> sharded_;
};

}  // namespace ff::assembly
