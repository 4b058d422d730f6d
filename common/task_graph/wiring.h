// Wiring: what a task waits for and what it releases, said once. The assembly of a task graph makes orders of it, delta
// simulation counts arrivals and pushes events, other predictions read which way blocks go.
//
// A part of an operator has one task in each direction; with statistics (where a Join is the task in the middle)
//     statistics -> reduction -> compute            from its first task to its last one
// and between the directions
//     last forward task -> first backward task      of the same part, where the operator has backward
// Over an edge, from the sender to the receiver: forward from producer to consumer, backward the other way
//     last task -> first task                       for each pair of blocks on one device
//     last task -> transfer -> first task           for each pair of blocks between devices
//     last tasks -> collective -> first tasks       for each exchange that is a collective
// Parameters follow the last task of each part, in the direction that last_direction says. Of a unit
//     all-reduce       contributors -> [synchronization ->] updates
//     owner            barrier of the owner -> its update
//                      barrier of another holder -> gradients -> owner's update -> values -> the holder's update
//     shards           contributors -> synchronization (a reduce-scatter) -> updates -> all-gather -> copies
// With sharded gradients there is a synchronization for each round, the last of which releases the updates. What limits
// the shards in flight (sharded_units.h, assembly/shard_rounds) and when recomputation begins (assembly/recomputation)
// is decided where task graphs are assembled alone, as delta simulation knows neither.
#pragma once

#include <algorithm>

#include "common/task_graph/collectives.h"
#include "common/task_graph/edges.h"
#include "common/task_graph/synchronization_units.h"
#include "common/task_graph/task.h"
#include "common/vector.h"

namespace ff {

// ---- who sends and who receives over an edge ----

constexpr OperatorId sender_of(const Edge& edge, Direction direction) {
  return direction == Direction::forward ? edge.producer : edge.consumer;
}
constexpr OperatorId receiver_of(const Edge& edge, Direction direction) {
  return direction == Direction::forward ? edge.consumer : edge.producer;
}
// Pair: a BlockPair, or what else has producer_part and consumer_part.
template <typename Pair>
constexpr int32_t sender_of(const Pair& pair, Direction direction) {
  return direction == Direction::forward ? pair.producer_part : pair.consumer_part;
}
template <typename Pair>
constexpr int32_t receiver_of(const Pair& pair, Direction direction) {
  return direction == Direction::forward ? pair.consumer_part : pair.producer_part;
}
inline const Vector<int32_t>& senders_of(const Exchange& exchange, Direction direction) {
  return direction == Direction::forward ? exchange.producers : exchange.consumers;
}
inline const Vector<int32_t>& receivers_of(const Exchange& exchange, Direction direction) {
  return direction == Direction::forward ? exchange.consumers : exchange.producers;
}
// The exchange in which a part sends; -1: in none.
inline int32_t exchange_of_sender(const EdgeExchanges& edge, Direction direction, int32_t part) {
  return (direction == Direction::forward ? edge.of_producer : edge.of_consumer)[part];
}

// ---- tasks between parts ----

// The first or last tasks in a direction of some parts of an operator.
struct PartTasksAt {
  enum class End : bool { first, last };
  Direction direction;
  OperatorId op;
  End end;
  const Vector<int32_t>& parts;
};
// A task that waits for all of some parts and releases others.
struct Join {
  PartTasksAt awaited, released;
};
inline Join reduction_join(Direction direction, OperatorId op, const Vector<int32_t>& parts) {
  return {{direction, op, PartTasksAt::End::first, parts}, {direction, op, PartTasksAt::End::last, parts}};
}
inline Join exchange_join(Direction direction, const Edge& edge, const Exchange& exchange) {
  return {{direction, sender_of(edge, direction), PartTasksAt::End::last, senders_of(exchange, direction)},
          {direction, receiver_of(edge, direction), PartTasksAt::End::first, receivers_of(exchange, direction)}};
}

// ---- after a part ----

// The direction of a part's last task, after which all of its gradients are there: it releases the units that the part
// contributes to or, where parameters have owners, the barrier of its device. The last forward task of a part that has
// backward tasks releases the first of these.
constexpr Direction last_direction(bool has_backward) {
  return has_backward ? Direction::backward : Direction::forward;
}

// ---- units of parameters ----

// A task of a unit: of one holder, by its place among the holders; of all, place 0.
struct UnitTask {
  TaskKind kind;
  int32_t place = 0;
};

// What follows the updates of a unit.
enum class AfterUpdate : uint8_t { nothing, owner_sends, gather, gather_and_copy };

// Unit: a SynchronizationUnit, or what else has holders, owner and holder_count().

// The place of a device among the holders; -1: it is none.
template <typename Unit>
int32_t place_of(const Unit& unit, DeviceId device) {
  const auto found = std::lower_bound(unit.holders.begin(), unit.holders.end(), device);
  return found == unit.holders.end() || *found != device ? -1 : static_cast<int32_t>(found - unit.holders.begin());
}

// Calls visit(UnitTask) for what a task of the kind releases. A barrier here is that of the holder's device. The kind
// is known at compile time where the search spends its time.
template <TaskKind kind, typename Unit, typename Visit>
void for_each_successor(const Unit& unit, AfterUpdate after_update, int32_t place, const Visit& visit) {
  const auto each = [&](TaskKind next, int32_t except) {
    for (int32_t other = 0, holders = static_cast<int32_t>(unit.holders.size()); other < holders; ++other)
      if (other != except) visit(UnitTask{next, other});
  };
  const auto owns = [&] { return unit.holders[place] == unit.owner; };
  if constexpr (kind == TaskKind::barrier)
    visit(UnitTask{owns() ? TaskKind::update : TaskKind::parameter_gradient, place});
  if constexpr (kind == TaskKind::parameter_gradient) visit(UnitTask{TaskKind::update, place_of(unit, unit.owner)});
  if constexpr (kind == TaskKind::parameter_values) visit(UnitTask{TaskKind::update, place});
  if constexpr (kind == TaskKind::synchronization) each(TaskKind::update, -1);
  if constexpr (kind == TaskKind::update) {
    if (after_update == AfterUpdate::owner_sends && owns()) each(TaskKind::parameter_values, place);
    if (after_update >= AfterUpdate::gather) visit(UnitTask{TaskKind::parameter_all_gather});
  }
  if constexpr (kind == TaskKind::parameter_all_gather)
    if (after_update == AfterUpdate::gather_and_copy) each(TaskKind::parameter_copy, -1);
}
template <typename Unit, typename Visit>
void for_each_successor(const Unit& unit, AfterUpdate after_update, UnitTask task, const Visit& visit) {
  using enum TaskKind;
  const auto visit_all = [&]<TaskKind kind>() { for_each_successor<kind>(unit, after_update, task.place, visit); };
  switch (task.kind) {
    case barrier: return visit_all.template operator()<barrier>();
    case parameter_gradient: return visit_all.template operator()<parameter_gradient>();
    case parameter_values: return visit_all.template operator()<parameter_values>();
    case synchronization: return visit_all.template operator()<synchronization>();
    case update: return visit_all.template operator()<update>();
    case parameter_all_gather: return visit_all.template operator()<parameter_all_gather>();
    default: return;
  }
}

// What the contributors of a unit without an owner release.
template <typename Unit>
UnitTask after_contributors(const Unit& unit) {
  return {unit.holder_count() > 1 ? TaskKind::synchronization : TaskKind::update};
}
// The owner's update waits for its own barrier and for the gradients of the other holders; a unit without an
// owner waits for as many parts as contribute.
template <typename Unit>
int32_t awaited_by_owner(const Unit& unit) {
  return static_cast<int32_t>(unit.holders.size());
}

}  // namespace ff
