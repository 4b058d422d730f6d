#include "common/task_graph/wiring.h"

#include <catch2/catch.hpp>
#include <string>

using namespace ff;

namespace {

struct Unit {
  Vector<DeviceId> holders;
  DeviceId owner = no_owner;
  int64_t replicas = 1;
  int64_t holder_count() const { return holders.count() * replicas; }
};

// "update@5 update@7": what a task releases, each on its holder.
std::string behind(const Unit& unit, AfterUpdate after_update, UnitTask task) {
  std::string text;
  for_each_successor(unit, after_update, task, [&](UnitTask next) {
    text +=
        (text.empty() ? "" : " ") + std::string(to_string(next.kind)) + "@" + std::to_string(unit.holders[next.place]);
  });
  return text;
}

}  // namespace

TEST_CASE("blocks go from producer to consumer, gradients back") {
  const Edge edge{3, 4, 9, 0};
  const BlockPair pair{1, 2, 16, true, true};
  CHECK(sender_of(edge, Direction::forward) == 4);
  CHECK(receiver_of(edge, Direction::forward) == 9);
  CHECK(sender_of(edge, Direction::backward) == 9);
  CHECK(receiver_of(edge, Direction::backward) == 4);
  CHECK(sender_of(pair, Direction::forward) == 1);
  CHECK(receiver_of(pair, Direction::forward) == 2);
  CHECK(sender_of(pair, Direction::backward) == 2);
  CHECK(receiver_of(pair, Direction::backward) == 1);
}

TEST_CASE("a collective waits for the last tasks of its senders and releases the first ones of its receivers") {
  const Edge edge{3, 4, 9, 0};
  Exchange exchange;
  exchange.producers = {0, 2};
  exchange.consumers = {1, 3, 5};
  const Join forward = exchange_join(Direction::forward, edge, exchange);
  CHECK(forward.awaited.op == 4);
  CHECK(forward.awaited.end == PartTasksAt::End::last);
  CHECK(forward.awaited.parts == exchange.producers);
  CHECK(forward.released.op == 9);
  CHECK(forward.released.end == PartTasksAt::End::first);
  CHECK(forward.released.parts == exchange.consumers);
  const Join backward = exchange_join(Direction::backward, edge, exchange);
  CHECK(backward.awaited.op == 9);
  CHECK(backward.awaited.parts == exchange.consumers);
  CHECK(backward.released.op == 4);
  CHECK(backward.released.parts == exchange.producers);
}

TEST_CASE("statistics are reduced between the first and the last task of a part") {
  const Vector<int32_t> parts{0, 1};
  const Join join = reduction_join(Direction::backward, 6, parts);
  CHECK(join.awaited.end == PartTasksAt::End::first);
  CHECK(join.released.end == PartTasksAt::End::last);
  CHECK(join.released.op == 6);
  CHECK(join.released.direction == Direction::backward);
}

TEST_CASE("parameters follow the last task of a part") {
  CHECK(last_direction(/*has_backward=*/true) == Direction::backward);
  CHECK(last_direction(/*has_backward=*/false) == Direction::forward);
}

TEST_CASE("an all-reduce releases the updates, with which a unit ends") {
  const Unit unit{{2, 5, 7}};
  CHECK(after_contributors(unit).kind == TaskKind::synchronization);
  CHECK(behind(unit, AfterUpdate::nothing, {TaskKind::synchronization}) == "update@2 update@5 update@7");
  CHECK(behind(unit, AfterUpdate::nothing, {TaskKind::update, 1}) == "");
}

TEST_CASE("a single holder updates behind its contributors, unless it stands for several devices") {
  CHECK(after_contributors(Unit{{4}}).kind == TaskKind::update);
  CHECK(after_contributors(Unit{{4}, no_owner, 8}).kind == TaskKind::synchronization);
}

TEST_CASE("an owner gathers gradients, updates, and sends values") {
  const Unit unit{{2, 5, 7}, 5};
  const auto next = [&](TaskKind kind, int32_t place) { return behind(unit, AfterUpdate::owner_sends, {kind, place}); };
  CHECK(next(TaskKind::barrier, 0) == "parameter_gradient@2");
  CHECK(next(TaskKind::barrier, 1) == "update@5");
  CHECK(next(TaskKind::parameter_gradient, 2) == "update@5");
  CHECK(next(TaskKind::update, 1) == "parameter_values@2 parameter_values@7");
  CHECK(next(TaskKind::parameter_values, 2) == "update@7");
  CHECK(next(TaskKind::update, 2) == "");
  CHECK(awaited_by_owner(unit) == 3);  // its barrier, two gradients
}

TEST_CASE("shards are gathered when all are updated") {
  const Unit unit{{2, 5}};
  const auto next = [&](AfterUpdate after_update, TaskKind kind) { return behind(unit, after_update, {kind, 0}); };
  CHECK(next(AfterUpdate::gather_and_copy, TaskKind::synchronization) == "update@2 update@5");
  CHECK(next(AfterUpdate::gather_and_copy, TaskKind::update) == "parameter_all_gather@2");
  CHECK(next(AfterUpdate::gather_and_copy, TaskKind::parameter_all_gather) == "parameter_copy@2 parameter_copy@5");
  CHECK(next(AfterUpdate::gather, TaskKind::update) == "parameter_all_gather@2");
  CHECK(next(AfterUpdate::gather, TaskKind::parameter_all_gather) == "");
}

TEST_CASE("the place of a device among the holders") {
  const Unit unit{{2, 5, 7}};
  CHECK(place_of(unit, 2) == 0);
  CHECK(place_of(unit, 7) == 2);
  CHECK(place_of(unit, 6) == -1);
  CHECK(place_of(unit, 9) == -1);
}
