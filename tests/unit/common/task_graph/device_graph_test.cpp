// The task graph of one device against that of all.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/task_graph/task_graph.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

// What a task is, whatever the graph that it is in.
using Facts = std::tuple<TaskKind, int, int, DeviceId, DeviceId, int64_t, int64_t, Vector<DeviceId>>;
Facts facts(const TaskGraph& graph, const Task& task) {
  return {task.kind,
          task.op,
          task.part,
          task.device,
          task.destination,
          task.bytes,
          task.copy_bytes,
          is_collective(task.kind) ? graph.holders(task) : Vector<DeviceId>()};
}

struct Known {
  std::map<TaskKey, Facts> tasks;
  std::set<std::pair<TaskKey, TaskKey>> order;
  bool operator==(const Known&) const = default;
};

// The tasks of a device, and the order among them.
Known known(const TaskGraph& graph, DeviceId device) {
  Known result;
  Vector<bool> here;
  for (const Task& task : graph.tasks) {
    bool meets = task.device == device || task.destination == device;
    if (is_collective(task.kind)) {
      const Vector<DeviceId>& holders = graph.holders(task);
      meets = std::find(holders.begin(), holders.end(), device) != holders.end();
    }
    here.push_back(meets);
    if (meets) CHECK(result.tasks.emplace(task.key, facts(graph, task)).second);
  }
  for (int t : graph.tasks.indices())
    for (int32_t s = graph.successor_begin[t]; s < graph.successor_begin[t + 1]; ++s)
      if (here[t] && here[graph.successors[s]])
        result.order.emplace(graph.tasks[t].key, graph.tasks[graph.successors[s]].key);
  return result;
}

void compare(const Graph& graph, const Strategy& strategy, int devices, std::set<TaskKind>* kinds = nullptr) {
  TaskGraphBuilder builder(graph);
  const TaskGraph whole = builder.build(strategy);
  for (DeviceId device = 0; device < devices; ++device) {
    const TaskGraph own = builder.build(strategy, device);
    const Known expected = known(whole, device), found = known(own, device);
    CHECK(found.tasks == expected.tasks);
    CHECK(found.order == expected.order);
    CHECK(own.tasks.size() == expected.tasks.size());
    if (kinds)
      for (const Task& task : own.tasks) kinds->insert(task.kind);
    for (int e : builder.edges().indices()) {
      const Edge& edge = builder.edges()[e];
      CHECK((own.pairs[e] || !whole.pairs[e]));
      if (!whole.pairs[e]) continue;
      BlockPairs pairs;
      for (const BlockPair& pair : *whole.pairs[e])
        if (strategy[edge.producer].devices[pair.producer_part] == device ||
            strategy[edge.consumer].devices[pair.consumer_part] == device)
          pairs.push_back(pair);
      CHECK(*own.pairs[e] == pairs);
    }
  }
}

}  // namespace

TEST_CASE("the task graph of one device is its share of the task graph of all") {
  std::set<TaskKind> kinds;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int devices = 1 + static_cast<int>(seed % 7);
    compare(graph, random_strategy(graph, devices, random), devices, &kinds);
  }
  CHECK(kinds.size() == task_kind_count);
}
