// Two linear layers and a loss on two devices, joined by a link of 1 byte a nanosecond and 5 us. A device computes 100
// operations a microsecond; a kernel takes 1 us at least.
#include "search/cost/task_costs.h"

#include <catch2/catch.hpp>

#include "common/graph.h"
#include "tests/support/graph_text.h"

using namespace ff;

namespace {

struct TwoDevices {
  Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"m":{"peak_tflops":1e-4,"memory_gb_per_s":1e9,"launch_us":1}},
    "devices":[{"name":"d0","kind":"gpu","model":"m"},{"name":"d1","kind":"gpu","model":"m"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}]})",
                                                "topology"));
  KernelCosts kernels{topology, CostMode::analytic, {}};
  TaskCostModel model{graph, topology, kernels};
};

}  // namespace

TEST_CASE("with a framework's collectives beside kernels, those of parameters do not queue with other transfers") {
  TwoDevices two;
  TaskGraphBuilder builder(two.graph);
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}};
  const TaskGraph tasks = builder.build(strategy);
  const TaskCosts together = two.model.costs(tasks, strategy);
  two.kernels.follow({.overlapped_collectives = true});
  const TaskCosts costs = TaskCostModel(two.graph, two.topology, two.kernels).costs(tasks, strategy);
  int moves = 0;
  for (const int t : tasks.tasks.indices())
    for (size_t u = 0; u < costs.uses_of(t).size(); ++u) {
      const int32_t resource = costs.uses_of(t)[u].resource, before = together.uses_of(t)[u].resource;
      CHECK(costs.is_device(resource) == occupies_device(tasks.tasks[t].kind));
      if (costs.is_device(resource)) continue;
      ++moves;
      CHECK(costs.is_parameter_channel(resource) == is_parameter_collective(tasks.tasks[t].kind));
      CHECK(costs.channel_of(resource) == together.channel_of(before));
      CHECK(!together.is_parameter_channel(before));
    }
  CHECK(moves == 2 + 2);  // an activation and its gradient; an all-reduce in both directions
}

TEST_CASE("compute tasks hold their device, transfers and all-reduces the links") {
  TwoDevices two;
  TaskGraphBuilder builder(two.graph);
  // fc1 by sample on both devices; fc2 and the loss on device 1
  const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{1, 1, 1}, {1}}, {{1, 1}, {1}}};
  const TaskGraph tasks = builder.build(strategy);
  const TaskCosts costs = two.model.costs(tasks, strategy);
  REQUIRE(costs.duration.size() == tasks.tasks.size());
  int computed = 0, transferred = 0, reduced = 0;
  for (size_t t = 0; t < tasks.tasks.size(); ++t) {
    const Task& task = tasks.tasks[t];
    const auto uses = costs.uses_of(static_cast<int>(t));
    if (is_transfer(task.kind)) {
      ++transferred;
      CHECK(task.bytes == 64);  // two samples of eight numbers
      CHECK(costs.duration[t] == 5000 + 64);
      CHECK(uses.size() == 1);
      CHECK(uses[0].occupancy == 64);
    } else if (is_collective(task.kind)) {
      ++reduced;
      CHECK(costs.duration[t] > 2 * 5000);  // of fc1's weight
      CHECK(uses.size() == 2);              // the link in both directions
    } else {
      ++computed;
      CHECK(costs.duration[t] >= 1000);
      REQUIRE(uses.size() == 1);
      CHECK(uses[0].resource == task.device);
      CHECK(uses[0].occupancy == costs.duration[t]);
    }
  }
  CHECK(transferred == 2);  // an activation there, its gradient back
  CHECK(reduced == 1);
  CHECK(computed == 2 * 4 + 2 + 1);  // parts, forward and backward; updates of fc1 on both devices and of fc2
  const CostCounts counts = two.model.count_sources(strategy);
  CHECK(counts.analytic == 8);
  CHECK(counts.profile + counts.measured == 0);
}

TEST_CASE("parts of different sizes have costs of their own, and no others are computed") {
  TwoDevices two;
  // 4 samples over 3 parts: 1, 1 and 2, of 2 * 8 * 8 operations a sample.
  const TaskCostModel::PartCosts& costs = two.model.part_costs(0, {3, 1, 1}, 0);
  REQUIRE(costs.distinct.size() == 2);
  CHECK(costs.which[0] == costs.which[1]);
  CHECK(costs.which[1] != costs.which[2]);
  CHECK(costs[0].forward.ns == 1280);
  CHECK(costs[2].forward.ns == 2560);
  CHECK(two.model.part_costs(0, {4, 1, 1}, 0).distinct.size() == 1);
}

TEST_CASE("nothing to copy or to update takes no time") {
  TwoDevices two;
  CHECK(two.model.copy_ns(0, 0) == 0);
  CHECK(two.model.update_ns(0, 0) == 0);
  CHECK(two.model.copy_ns(4, 0) == 1000);
}
