#include "common/task_graph/task.h"

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>

#include "common/errors.h"
#include "common/task_graph/task_graph.h"
#include "tests/support/message_of.h"

using namespace ff;

namespace {

// Two linear layers without bias that share a weight of so many rows and columns.
Graph tied_layers(int size, int batch_size) {
  const std::string text = std::to_string(size);
  return parse_graph(parse_json(R"({"format":"ffgraph/1","name":"tied","batch_size":)" + std::to_string(batch_size) +
                                    R"(,"inputs":[{"name":"x","shape":["batch",)" + text +
                                    R"(],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],"operators":[
      {"name":"a","type":"linear","inputs":["x"],"attributes":{"out_features":)" +
                                    text + R"(,"bias":false},"parameters":"w"},
      {"name":"b","type":"linear","inputs":["a"],"attributes":{"out_features":)" +
                                    text + R"(,"bias":false},"parameters":"w"},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["b","label"]}]})",
                                "graph"));
}

}  // namespace

TEST_CASE("a task key holds what it was made of") {
  constexpr int most_subject = most_key_subjects - 1, most = most_key_parts - 1;
  for (int kind = 0; kind < static_cast<int>(task_kind_count); ++kind)
    for (int subject : {0, 7, most_subject})
      for (int part : {0, 3, most})
        for (int other : {0, 1, most}) {
          const TaskKey key = make_task_key(static_cast<TaskKind>(kind), subject, part, other);
          CHECK(kind_of(key) == static_cast<TaskKind>(kind));
          CHECK(subject_of(key) == subject);
          CHECK(part_of(key) == part);
          CHECK(other_of(key) == other);
          CHECK(prefix_of(key) == prefix_of(make_task_key(static_cast<TaskKind>(kind), subject, 0, 0)));
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

// Each kind once, as the comments of tasks and the issue orders of strategy files say it.
TEST_CASE("the table of kinds says what a task occupies, what it belongs to and when it runs") {
  const auto names = [](bool (*is)(TaskKind)) {
    std::set<std::string> found;
    for (const TaskKindInfo& info : task_kinds)
      if (is(info.kind)) found.emplace(to_string(info.kind));
    return found;
  };
  using Names = std::set<std::string>;
  CHECK(names([](TaskKind) { return true; }).size() == task_kind_count);
  CHECK(names(is_compute) == Names{"forward", "backward", "forward_statistics", "backward_statistics", "recompute"});
  CHECK(names(occupies_device) == Names{"forward", "backward", "forward_statistics", "backward_statistics", "recompute",
                                        "update", "barrier", "parameter_copy"});
  CHECK(names(is_edge_transfer) == Names{"activation", "gradient"});
  CHECK(names(is_parameter_transfer) == Names{"parameter_gradient", "parameter_values"});
  CHECK(names(is_transfer) == Names{"activation", "gradient", "parameter_gradient", "parameter_values"});
  CHECK(names(is_statistics) == Names{"forward_statistics", "backward_statistics"});
  CHECK(names(is_reduction) == Names{"forward_reduction", "backward_reduction"});
  CHECK(names(is_edge_collective) == Names{"activation_collective", "gradient_collective"});
  CHECK(names(is_parameter_collective) == Names{"synchronization", "parameter_all_gather"});
  CHECK(names(is_collective) == Names{"forward_reduction", "backward_reduction", "activation_collective",
                                      "gradient_collective", "synchronization", "parameter_all_gather"});
  CHECK(names(is_forward) == Names{"forward", "forward_statistics", "activation", "activation_collective"});
  CHECK(names([](TaskKind kind) { return direction_of(kind) == Direction::backward; }) ==
        Names{"backward", "backward_statistics", "backward_reduction", "gradient", "gradient_collective"});
}

TEST_CASE("a task graph that has no room in the keys is refused") {
  CHECK_NOTHROW(check_room_in_keys("graph \"g\"", "edges", most_key_subjects, most_key_subjects));
  CHECK(message_of<InputError>([] { check_room_in_keys("graph \"g\"", "edges", 131073, most_key_subjects); }) ==
        "graph \"g\": 131073 edges, but a task graph numbers 131072 at most");

  const Graph graph = tied_layers(8, 4'000'000);
  TaskGraphBuilder builder(graph);
  Strategy strategy = single_device(graph);
  strategy[1] = {{2'097'153, 1, 1}, Vector<DeviceId>(2'097'153, 0)};
  CHECK(message_of<InputError>([&] { builder.build(strategy); }) ==
        "operator \"b\": 2097153 parts, but a task graph numbers 2097152 at most");
  strategy = single_device(graph);
  strategy[2].devices = {2'097'152};
  CHECK(message_of<InputError>([&] { builder.build(strategy); }) ==
        "strategy: 2097153 devices, but a task graph numbers 2097152 at most");
}

// The weight is cut into 1449 rows by one layer and into as many columns by the other: 2,099,601 pieces. Device 1 has
// the last row of them: a unit with the number of its first piece, 1448 * 1449.
TEST_CASE("parameters that are cut into too many pieces are refused") {
  const Graph graph = tied_layers(1449, 1);
  TaskGraphBuilder builder(graph);
  Strategy strategy = single_device(graph);
  strategy[0] = {{1, 1449, 1}, Vector<DeviceId>(1449, 0)};
  strategy[0].devices[1448] = 1;
  strategy[1] = {{1, 1, 1449}, Vector<DeviceId>(1449, 0)};
  CHECK(message_of<InputError>([&] { builder.build(strategy, 1); }) ==
        "parameter group \"w\": 2098153 or more pieces times micro-batches, but a task graph numbers 2097152 at most");
}
