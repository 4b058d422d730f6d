#include "common/task_graph/assembly/shard_rounds.h"

#include <algorithm>
#include <tuple>

#include "common/micro_batches.h"

namespace ff::assembly {

void ShardRoundsDraft::add(UnitDraft& unit, const ShardRounds& rounds) {
  const OperatorId op = draft_.builder.groups()[unit.unit.group].operators[0];
  ShardedUnit sharded{
      static_cast<int32_t>(draft_.result.units.size()), rounds, op, recomputation_.last_with(op), {}, {}};
  for (int round = 0; round < rounds.rounds; ++round) {
    sharded.reductions.push_back(unit.add_collective(TaskKind::synchronization, round, rounds.rounds));
    if (round > 0) draft_.add_order(sharded.reductions[round - 1], sharded.reductions[round]);
  }
  for (const auto& [user, part] : contributors_of(unit.unit))
    draft_.add_order(draft_.last(Direction::backward, op, part),
                     sharded.reductions[rounds.round_of(micro_batch(op, part))]);
  unit.add_shard_updates(rounds.rounds, /*sends=*/!rounds.parameters);
  if (rounds.parameters) add_gatherings(unit, sharded);
  else unit.add_collective(TaskKind::parameter_all_gather);
  unit.link(rounds.parameters ? AfterUpdate::nothing : AfterUpdate::gather);
  sharded_.push_back(std::move(sharded));
}

void ShardRoundsDraft::add_gatherings(UnitDraft& unit, ShardedUnit& sharded) {
  for (int round = 0; round < sharded.rounds.rounds; ++round)
    for (Direction direction : directions) {
      const int32_t index = unit.add_collective(TaskKind::parameter_all_gather,
                                                ShardRounds::gathering(round, direction), 2 * sharded.rounds.rounds);
      sharded.gatherings.push_back(index);
      Task& gathering = draft_.task(index);
      gathering.before_op = direction == Direction::forward ? sharded.op : sharded.begin;
      gathering.before_part = first_part(gathering.before_op, sharded.rounds.micro_batch(round, direction));
    }
}

// The first part of an operator in a micro-batch, on whatever device.
int32_t ShardRoundsDraft::first_part(OperatorId op, int micro_batch) const {
  if (!has_micro_batches(*draft_.graph.operators[op].definition)) return 0;
  return static_cast<int32_t>(draft_.strategy[op].parts() / draft_.builder.micro_batches() * micro_batch);
}

std::map<DeviceId, Vector<ShardRoundsDraft::HeldShard>> ShardRoundsDraft::held_shards() const {
  std::map<DeviceId, Vector<HeldShard>> held;
  for (const ShardedUnit& one : sharded_) {
    const SynchronizationUnit& unit = draft_.result.units[one.unit];
    for (const DeviceId holder : unit.holders)
      if (draft_.is_here(holder)) held[holder].push_back({holder, &one, {}});
    for (const auto& [op, part] : contributors_of(unit))
      if (const DeviceId device = draft_.strategy[op].devices[part]; draft_.is_here(device))
        held[device].back().parts.push_back(part);
  }
  for (auto& [device, shards] : held)
    std::stable_sort(shards.begin(), shards.end(),
                     [](const HeldShard& a, const HeldShard& b) { return a.of->op < b.of->op; });
  return held;
}

void ShardRoundsDraft::limit_in_flight() {
  for (const auto& [device, shards] : held_shards()) limit_in_flight(layers_of(shards));
  if (draft_.builder.shards_layers()) join_layers();
}

void ShardRoundsDraft::limit_in_flight(const Vector<HeldLayer>& layers) {
  for (const int layer : layers.indices()) {
    const HeldShard* in_front = in_front_of(layers, layer);
    for (const HeldShard* shard : layers[layer]) {
      if (in_front) limit_gradients(*shard, *in_front);
      if (shard->of->gatherings.empty()) continue;
      const HeldShard* later = after(layers, layer, shard->of->begin);
      for (int round = 0; round < shard->of->rounds.rounds; ++round) {
        gather_for_forward(*shard, round, in_front);
        gather_for_backward(*shard, round, later);
      }
    }
  }
}

Vector<ShardRoundsDraft::HeldLayer> ShardRoundsDraft::layers_of(const Vector<HeldShard>& shards) const {
  Vector<HeldLayer> layers;
  const TaskGraphBuilder& builder = draft_.builder;
  for (const HeldShard& shard : shards) {
    const bool joins = builder.shards_layers() && !layers.empty() &&
                       builder.sharded_layer(layers.back()[0]->of->op) == builder.sharded_layer(shard.of->op);
    HeldLayer& layer = joins ? layers.back() : layers.emplace_back();
    layer.push_back(&shard);
  }
  return layers;
}

// The last shard that must have run forward when the layer is gathered; null: there is none.
const ShardRoundsDraft::HeldShard* ShardRoundsDraft::in_front_of(const Vector<HeldLayer>& layers, int layer) {
  const OperatorId op = layers[layer][0]->of->op;
  int end = layer;
  while (end > 0 && layers[end - 1][0]->of->op == op) --end;  // an operator may have several units
  return end < shards_in_flight ? nullptr : layers[end - shards_in_flight].back();
}

// The first shard that must have run backward, where the layer is needed from this operator on.
const ShardRoundsDraft::HeldShard* ShardRoundsDraft::after(const Vector<HeldLayer>& layers, int layer, OperatorId op) {
  int behind = 0;  // the operator
  for (int later = layer + 1; later < layers.count(); ++later) {
    if (layers[later][0]->of->op > op) ++behind;
    if (behind == shards_in_flight) return layers[later][0];
  }
  return nullptr;
}

// Of the units of a layer with the same holders the first one stands for all: the others are gathered and reduced when
// it is.
void ShardRoundsDraft::join_layers() {
  std::map<std::tuple<int, Vector<DeviceId>, int, int>, const ShardedUnit*> first;
  const auto of_layer = [&](const ShardedUnit& one) -> const ShardedUnit*& {
    return first[{draft_.builder.sharded_layer(one.op), draft_.result.units[one.unit].holders, one.reductions.count(),
                  one.gatherings.count()}];
  };
  for (const ShardedUnit& one : sharded_)
    if (const ShardedUnit*& known = of_layer(one); !known || one.op < known->op) known = &one;
  Vector<int32_t>& gathered_with = draft_.result.gathered_with;
  for (const int32_t unit : draft_.result.units.indices()) gathered_with.push_back(unit);
  for (const ShardedUnit& one : sharded_) {
    const ShardedUnit& with = *of_layer(one);
    gathered_with[one.unit] = with.unit;
    if (&with == &one) continue;
    for (const int round : one.reductions.indices()) draft_.add_order(with.reductions[round], one.reductions[round]);
    for (const int round : one.gatherings.indices()) draft_.add_order(with.gatherings[round], one.gatherings[round]);
  }
}

// Calls visit(part) for the parts of the unit's operator on the device in the micro-batch.
template <class Visit>
void ShardRoundsDraft::for_each_part(const HeldShard& shard, int in, const Visit& visit) const {
  for (const int32_t part : shard.parts)
    if (const int of_part = micro_batch(shard.of->op, part); of_part < 0 || of_part == in) visit(part);
}

void ShardRoundsDraft::limit_gradients(const HeldShard& shard, const HeldShard& later) {
  for (const int round : shard.of->reductions.indices())
    for_each_part(later, shard.of->rounds.micro_batch(round, Direction::backward), [&](int32_t part) {
      draft_.add_order(shard.of->reductions[round], draft_.first(Direction::backward, later.of->op, part));
    });
}

// `before`: what must have run; null: nothing.
void ShardRoundsDraft::gather_for_forward(const HeldShard& shard, int round, const HeldShard* before) {
  const int in = shard.of->rounds.micro_batch(round, Direction::forward);
  const int32_t gathering = shard.of->gatherings[ShardRounds::gathering(round, Direction::forward)];
  if (before)
    for_each_part(*before, in, [&](int32_t part) {
      draft_.add_order(draft_.last(Direction::forward, before->of->op, part), gathering);
    });
  for (const int32_t part : shard.parts) {
    const int of_part = shard.of->rounds.round_of(micro_batch(shard.of->op, part));
    const int32_t task = draft_.first(Direction::forward, shard.of->op, part);
    if (of_part == round) draft_.add_order(gathering, task);
    if (of_part == round - 1) draft_.add_order(task, gathering);
  }
}

void ShardRoundsDraft::gather_for_backward(const HeldShard& shard, int round, const HeldShard* before) {
  const int in = shard.of->rounds.micro_batch(round, Direction::backward);
  const int32_t gathering = shard.of->gatherings[ShardRounds::gathering(round, Direction::backward)];
  const OperatorId op = shard.of->op, begin = shard.of->begin;
  if (before)
    for_each_part(*before, in, [&](int32_t part) {
      draft_.add_order(draft_.last(Direction::backward, before->of->op, part), gathering);
    });
  if (round > 0)
    for (const int32_t part : draft_.result.parts[begin])
      if (draft_.strategy[begin].devices[part] == shard.device && micro_batch(begin, part) == in - 1)
        draft_.add_order(draft_.first(Direction::backward, begin, part), gathering);
  for (const int32_t part : shard.parts) {
    if (shard.of->rounds.round_of(micro_batch(op, part)) != round) continue;
    if (!before) draft_.add_order(draft_.last(Direction::forward, op, part), gathering);
    draft_.add_order(gathering, recomputation_.task_of(op, part));
    draft_.add_order(gathering, draft_.first(Direction::backward, op, part));
  }
}

}  // namespace ff::assembly
