#include "common/task_graph/task_graph.h"

#include <catch2/catch.hpp>
#include <set>

#include "common/task_graph/edge_copies.h"
#include "common/task_graph/issue_order.h"
#include "tests/support/graph_text.h"
#include "tests/support/random_network.h"

using namespace ff;

TEST_CASE("every pair of blocks is an ordering edge on one device, a transfer between two or a part of a collective") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 3, random);
    TaskGraphBuilder builder(graph);
    const TaskGraph tasks = builder.build(strategy);
    int64_t transfers = 0, bytes = 0, copies = 0, expected_collectives = 0;
    for (const Edge& edge : builder.edges()) {
      const int directions_here = has_gradient(graph, edge) ? 2 : 1;
      const Vector<DeviceId>&producers = strategy[edge.producer].devices, &consumers = strategy[edge.consumer].devices;
      const int e = static_cast<int>(&edge - builder.edges().data());
      if (const Vector<Collective> collectives = builder.collectives(e, strategy); !collectives.empty()) {
        EdgeCopyBytes edge_copies;
        edge_copies.set(*builder.exchanges(e, strategy[edge.producer].degrees, strategy[edge.consumer].degrees),
                        collectives, directions_here == 2);
        for (int64_t packed : edge_copies.packed) copies += packed;
        for (int64_t assembled : edge_copies.assembled) copies += assembled;
        for (const Collective& collective : collectives)
          bytes += directions_here * (collective.kind == CollectiveKind::all_reduce ? 2 : 1) *
                   (std::ssize(collective.holders) - 1) * collective.bytes;
        expected_collectives += directions_here * std::ssize(collectives);
        continue;
      }
      for (const BlockPair& pair :
           intersect_blocks(blocks_of(graph, edge, strategy[edge.producer].degrees, strategy[edge.consumer].degrees))) {
        const bool local = producers[pair.producer_part] == consumers[pair.consumer_part];
        const EdgeCopy copy = edge_copy(pair, local, Direction::forward);
        copies += ((copy.source == BlockUse::packed) + (copy.destination == BlockUse::packed)) * pair.bytes;
        if (local) continue;
        transfers += directions_here;
        bytes += directions_here * pair.bytes;
      }
    }
    std::set<TaskKey> keys;
    int64_t forward_copies = 0;
    for (const Task& task : tasks.tasks) {
      CHECK(keys.insert(task.key).second);
      CHECK(kind_of(task.key) == task.kind);
      transfers -= is_transfer(task.kind);
      expected_collectives -= is_edge_collective(task.kind);
      if (is_compute(task.kind) && is_forward(task.kind)) forward_copies += task.copy_bytes;
      if (is_transfer(task.kind)) CHECK(task.device != task.destination);
      if (is_collective(task.kind)) CHECK_FALSE(tasks.holders(task).empty());
    }
    CHECK(transfers == 0);
    CHECK(expected_collectives == 0);
    CHECK(tasks.transfer_bytes() == bytes);
    CHECK(forward_copies == copies);
  }
}

TEST_CASE("the default issue order is a total order that the task graph allows, and is read back from its names") {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 3, random);
    TaskGraphBuilder builder(graph);
    const TaskGraph tasks = builder.build(strategy);
    const Vector<int> order = default_issue_order(builder, tasks);
    REQUIRE(order.size() == tasks.tasks.size());
    Vector<int> position(order.size(), -1);
    for (size_t i = 0; i < order.size(); ++i) position[order[i]] = static_cast<int>(i);
    for (size_t t = 0; t < order.size(); ++t)
      for (int32_t s = tasks.successor_begin[t]; s < tasks.successor_begin[t + 1]; ++s)
        REQUIRE(position[t] < position[tasks.successors[s]]);
    const Vector<std::string> names = issue_order_names(builder, tasks, order);
    const Vector<int> read = issue_order_from_names(builder, tasks, names);
    REQUIRE(read.size() == order.size());
    CHECK(issue_order_names(builder, tasks, read) == names);
    CHECK(issue_order_from_names(builder, tasks, Vector<std::string>(names.rbegin(), names.rend())).empty());
  }
}

TEST_CASE("issue orders are read back as they were written") {
  int kept = 0, saved_as_default = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const Strategy strategy = random_strategy(graph, 5, random);
    TaskGraphBuilder builder(graph);
    const TaskGraph tasks = builder.build(strategy);
    const Vector<int> order = seed % 3 ? random_task_order(tasks, random) : default_issue_order(builder, tasks);
    const auto names_of = [&](const Vector<int>& all) {  // of each task that the file names
      Vector<std::string> names;
      for (const int task : all)
        if (!is_transfer(tasks.tasks[task].kind)) names.push_back(task_name(builder, tasks, task));
      return names;
    };
    const Vector<std::string> entries = issue_order_names(builder, tasks, order);
    const Vector<int> read = issue_order_from_names(builder, tasks, entries);
    REQUIRE(read.size() == order.size());
    CHECK(names_of(read) == names_of(order));
    CHECK(entries.size() <= names_of(order).size());
    // Files of earlier versions name every task by itself.
    CHECK(issue_order_from_names(builder, tasks, names_of(order)) == read);

    const Vector<std::string> saved = issue_order_to_save(builder, tasks, order);
    kept += !saved.empty();
    saved_as_default += saved.empty();
    CHECK(saved == (read == default_issue_order(builder, tasks) ? Vector<std::string>() : entries));
  }
  CHECK(kept > 50);
  CHECK(saved_as_default > 10);
}

TEST_CASE("an issue order that does not name every task once does not fit") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "two"));
  const Strategy strategy = {{{1, 4, 1}, {0, 1, 2, 3}}, {{4, 1, 1}, {0, 1, 2, 3}}, {{1, 1}, {0}}};
  TaskGraphBuilder builder(graph);
  const TaskGraph tasks = builder.build(strategy);
  const Vector<std::string> names = {"fc1/forward/0-3",
                                     "fc1->fc2:0/activation_collective/0",
                                     "fc2/forward/0-3",
                                     "loss/forward/0",
                                     "loss/backward/0",
                                     "fc2/backward/0-3",
                                     "fc2:0->fc1/gradient_collective/0",
                                     "fc2/synchronization/0",
                                     "fc2/update/0@0-3",
                                     "fc1/backward/0-3",
                                     "fc1/update/0-3@0-3"};
  CHECK(issue_order_from_names(builder, tasks, names).size() == tasks.tasks.size());
  CHECK(issue_order_names(builder, tasks, issue_order_from_names(builder, tasks, names)) == names);
  const auto fits = [&](size_t entry, const std::string& other) {
    Vector<std::string> changed = names;
    changed[entry] = other;
    return !issue_order_from_names(builder, tasks, changed).empty();
  };
  CHECK(fits(0, "fc1/forward/3,0-2"));
  CHECK(fits(8, "fc2/update/0 x4@3-0"));
  for (const char* other : {"fc1/forward/0-2", "fc1/forward/0-4", "fc1/forward/0-3,0", "fc1/forward/", "fc1/forward",
                            "fc1", "", "fc3/forward/0-3", "fc1/forward/0-3@0-3", "fc1/forward/0-999999999",
                            "fc1/forward/a", "fc1/backward/0-3", "fc1/forward/0-3@"}) {
    INFO(other);
    CHECK_FALSE(fits(0, other));
  }
  for (const char* other : {"fc1/update/0-3", "fc1/update/0-3@0", "fc1/update/0-1@0-3", "fc1/update/0-3@3-0",
                            "fc1/update/0@0-3", "fc1/update/0-3@0-2097151", "fc1/update/@"}) {
    INFO(other);
    CHECK_FALSE(fits(8, other));
  }
}
