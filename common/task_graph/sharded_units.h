// Units of parameters with sharded gradients or weights (synchronization_units.h): how often they are reduced and
// gathered, and for how long a device has them whole.
//
// Each micro-batch (micro_batches.h) is a round: its gradients of a unit lie in a buffer of their own, from the first
// backward task that writes there until the reduce-scatter that adds them to the shards is complete. Sharded weights
// are gathered twice a round, for forward, and for backward with what is recomputed in front of it. An operator that is
// computed once for all micro-batches has one round.
//
// Parameters that several operators share have gradients and weights whole, as with a sharded optimizer: a tied
// embedding is needed from the first to the last operator of the network, by each micro-batch in flight.
//
// So that a device holds few units whole, it goes on only where those before are done with. Of the units on a device,
// in the order of their operators:
//   - backward of a unit waits for the reduce-scatter of the one `shards_in_flight` units after it in the network,
//     whose backward came before
//   - weights are gathered for forward when the unit `shards_in_flight` in front of it has run, and for backward when
//     the one so far after it has; after the last operator of a segment, where it is recomputed
//   - no unit is gathered before the round before has begun there; for backward the last ones in the network, which
//     this leaves free, wait for their own forward
#pragma once

#include "common/strategy.h"
#include "common/task_graph/task_graph.h"

namespace ff {

constexpr int shards_in_flight = 2;

// How the units of a group with several holders are sharded.
struct ShardRounds {
  bool gradients = false, parameters = false;
  int rounds = 1;
  int micro_batches = 1;

  // Of a part of the group's operator, whose micro-batch is -1 where it is computed once.
  int round_of(int micro_batch) const { return rounds == 1 ? 0 : micro_batch; }
  // Where a round waits for parts of other operators, it is for those of this micro-batch.
  int micro_batch(int round, Direction direction) const {
    return rounds > 1 ? round : direction == Direction::forward ? 0 : micro_batches - 1;
  }
  // Task::round of the gathering in front of this direction.
  static int gathering(int round, Direction direction) { return 2 * round + (direction == Direction::backward); }
};
ShardRounds shard_rounds(const TaskGraphBuilder& builder, int group);
// -1: the operator is computed once.
int micro_batch_of_part(const TaskGraphBuilder& builder, const Strategy& strategy, OperatorId op, int32_t part);
// Of compute tasks and transfers between parts; -1: of none or all, or there is one alone.
int micro_batch_of_task(const TaskGraphBuilder& builder, const Strategy& strategy, const Task& task);

}  // namespace ff
