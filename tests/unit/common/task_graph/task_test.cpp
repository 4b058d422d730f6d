#include "common/task_graph/task.h"

#include <catch2/catch.hpp>

using namespace ff;

TEST_CASE("a task key holds what it was made of") {
  constexpr int most = (1 << 20) - 1, most_others = (1 << 19) - 1;
  for (int kind = 0; kind < static_cast<int>(task_kind_count); ++kind)
    for (int subject : {0, 7, most})
      for (int part : {0, 3, most})
        for (int other : {0, 1, most_others}) {
          const TaskKey key = make_task_key(static_cast<TaskKind>(kind), subject, part, other);
          CHECK(kind_of(key) == static_cast<TaskKind>(kind));
          CHECK(subject_of(key) == subject);
          CHECK(part_of(key) == part);
          CHECK(other_of(key) == other);
        }
}

TEST_CASE("ties are broken by kind, then subject, part and other") {
  CHECK(make_task_key(TaskKind::forward, 9, 9, 9) < make_task_key(TaskKind::activation, 0, 0, 0));
  CHECK(make_task_key(TaskKind::forward, 1, 9, 9) < make_task_key(TaskKind::forward, 2, 0, 0));
  CHECK(make_task_key(TaskKind::forward, 1, 2, 9) < make_task_key(TaskKind::forward, 1, 3, 0));
  CHECK(make_task_key(TaskKind::update, 1, 2, 3) < make_task_key(TaskKind::update, 1, 2, 4));
}

TEST_CASE("a kind's direction leads back to the kind") {
  for (Direction direction : directions)
    for (const auto kind : {compute_kind, statistics_kind, reduction_kind, transfer_kind})
      CHECK(direction_of(kind(direction)) == direction);
  CHECK(is_statistics(statistics_kind(Direction::backward)));
  CHECK(is_collective(reduction_kind(Direction::forward)));
  CHECK(is_transfer(transfer_kind(Direction::backward)));
}
