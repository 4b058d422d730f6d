// The task graph of one device against that of all.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/memory_plan.h"
#include "common/task_graph/task_graph.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

// What a task is, whatever the graph that it is in.
using Facts = std::tuple<TaskKind, int, int, DeviceId, DeviceId, int64_t, int64_t, Vector<DeviceId>>;
Facts facts(const TaskGraph& graph, const Task& task) {
  return {task.kind,        task.op,
          task.part,        task.device,
          task.destination, task.bytes,
          task.copy_bytes,  is_collective(task.kind) ? graph.holders(task) : Vector<DeviceId>()};
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

void compare(const Graph& graph, const DrawnStrategy& drawn, int devices, Synchronization synchronization,
             std::set<TaskKind>* kinds = nullptr, const Vector<std::string>& recompute = {}) {
  const Strategy& strategy = drawn.strategy;
  TaskGraphBuilder builder(
      graph, {.synchronization = synchronization, .micro_batches = drawn.micro_batches, .recompute = recompute});
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
    const DrawnStrategy drawn = random_expanded_strategy(graph, 1 + static_cast<int>(seed / 3 % 3), devices, random);
    compare(graph, drawn, devices, synchronization_of(seed / 2), &kinds,
            seed % 3 == 1 ? Vector<std::string>{"*"} : Vector<std::string>());
  }
  CHECK(kinds.size() == task_kind_count);
}

namespace {

Vector<TaskKey> keys(const TaskGraph& graph, const Vector<int>& order, const std::set<TaskKey>& among) {
  Vector<TaskKey> result;
  for (const int task : order)
    if (among.count(graph.tasks[task].key)) result.push_back(graph.tasks[task].key);
  return result;
}

// What all devices find together.
bool fits(const TaskGraphBuilder& builder, const Vector<TaskGraph>& graphs, const Vector<std::string>& names) {
  int64_t counted = 0;
  bool fit = true;
  for (const TaskGraph& graph : graphs) {
    const NamedOrder found = order_by_names(builder, graph, names);
    fit = fit && found.order.size() == graph.tasks.size();
    counted += found.counted;
  }
  return fit && counted == order_by_names(builder, graphs[0], names).named;
}

}  // namespace

TEST_CASE("orders and memory of one device are its share of those of all") {
  int refused = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    const Graph graph = random_graph(random);
    const int devices = 1 + static_cast<int>(seed % 7);
    const auto [strategy, micro_batches] =
        random_expanded_strategy(graph, 1 + static_cast<int>(seed / 3 % 3), devices, random);
    const Vector<std::string> recompute = seed % 3 == 1 ? Vector<std::string>{"*"} : Vector<std::string>();
    TaskGraphBuilder builder(
        graph,
        {.synchronization = synchronization_of(seed / 2), .micro_batches = micro_batches, .recompute = recompute});
    const TaskGraph whole = builder.build(strategy);
    const TransferBuffers buffers = seed % 2 ? TransferBuffers::on_demand : TransferBuffers::preallocated;
    const Vector<int> default_order = default_issue_order(builder, whole, buffers);
    Vector<int> place(default_order.size());
    for (const int i : default_order.indices()) place[default_order[i]] = i;
    for (const int t : whole.tasks.indices())
      for (int32_t s = whole.successor_begin[t]; s < whole.successor_begin[t + 1]; ++s)
        REQUIRE(place[t] < place[whole.successors[s]]);
    Vector<int> drawn = random_task_order(whole, random);
    if (buffers == TransferBuffers::on_demand) drawn = on_demand_issue_order(whole, drawn);
    const Vector<std::string> names = issue_order_names(builder, whole, drawn);
    const Vector<int> order = issue_order_from_names(builder, whole, names, buffers);
    REQUIRE(!order.empty());
    if (buffers == TransferBuffers::on_demand) CHECK(order == drawn);
    Vector<TaskGraph> graphs;
    for (DeviceId device = 0; device < devices; ++device) {
      const TaskGraph& own = graphs.emplace_back(builder.build(strategy, device));
      std::set<TaskKey> here;
      for (const Task& task : own.tasks) here.insert(task.key);
      CHECK(keys(own, default_issue_order(builder, own, buffers), here) == keys(whole, default_order, here));
      const Vector<int> own_order = order_by_names(builder, own, names, buffers).order;
      CHECK(keys(own, own_order, here) == keys(whole, order, here));
      const MemoryPlan expected = plan_memory(builder, strategy, whole, order, {device}, buffers)[0],
                       found = plan_memory(builder, strategy, own, own_order, {device}, buffers)[0];
      CHECK(found.arena_bytes == expected.arena_bytes);
      CHECK(found.live_bytes == expected.live_bytes);
      REQUIRE(found.buffers.size() == expected.buffers.size());
      for (int b : found.buffers.indices()) CHECK(found.buffers[b].offset == expected.buffers[b].offset);
    }
    CHECK(fits(builder, graphs, names));
    // Names that are wrong somewhere: the devices' verdict is that of the whole.
    for (int change = 0; change < 6; ++change) {
      Vector<std::string> changed = names;
      const int64_t a = random.between(0, std::ssize(names) - 1), b = random.between(0, std::ssize(names) - 1);
      if (change == 0) changed.erase(changed.begin() + a);
      else if (change == 1) changed.push_back(changed[a]);
      else if (change == 2) changed[a] += "0";
      else if (change == 3) changed.push_back("nothing/forward/0-3");
      else std::swap(changed[a], changed[b]);
      const bool fit = !issue_order_from_names(builder, whole, changed).empty();
      CHECK(fits(builder, graphs, changed) == fit);
      refused += !fit;
    }
  }
  CHECK(refused > 300);
}
