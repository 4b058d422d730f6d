// Delta simulation against full simulation: the same ready, start and end of every task, after any sequence of accepted, rejected and
// undone changes, on random graphs and topologies (switches, shared and half-duplex links, busy endpoints, shared parameters, ties).
#include <algorithm>
#include <catch2/catch.hpp>

#include "search/optimizer/evaluator.h"
#include "search/simulator/delta.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"

using namespace ff;

namespace {

int64_t between(std::mt19937& random, int64_t least, int64_t most) { return std::uniform_int_distribution<int64_t>(least, most)(random); }

bool same_timeline(const DeltaSimulator& delta, Evaluator& evaluator, std::string& difference) {
  const Evaluator::Details details = evaluator.details(delta.strategy());
  std::vector<DeltaSimulator::Record> records = delta.records();
  if (records.size() != details.tasks.tasks.size()) {
    difference = std::to_string(records.size()) + " records of " + std::to_string(details.tasks.tasks.size()) + " tasks";
    return false;
  }
  std::sort(records.begin(), records.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
  std::vector<int> order(records.size());
  for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int>(t);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return details.tasks.tasks[a].key < details.tasks.tasks[b].key; });
  for (size_t i = 0; i < order.size(); ++i) {
    const int t = order[i];
    const DeltaSimulator::Record& record = records[i];
    if (record.key == details.tasks.tasks[t].key && record.ready == details.timeline.ready[t] && record.start == details.timeline.start[t] &&
        record.end == details.timeline.end[t])
      continue;
    difference = task_name(evaluator.builder(), details.tasks, t) + ": delta " + std::to_string(record.ready) + " " + std::to_string(record.start) +
                 " " + std::to_string(record.end) + ", full " + std::to_string(details.timeline.ready[t]) + " " +
                 std::to_string(details.timeline.start[t]) + " " + std::to_string(details.timeline.end[t]);
    return false;
  }
  return delta.makespan() == details.timeline.makespan;
}

}  // namespace

TEST_CASE("the example of docs/simulator.md") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"two","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
      {"name":"fc1","type":"linear","inputs":["x"],"attributes":{"out_features":8,"bias":false}},
      {"name":"fc2","type":"linear","inputs":["fc1"],"attributes":{"out_features":8,"bias":false}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["fc2","label"]}]})", "graph"));
  const Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"flat":{"peak_tflops":1e9,"memory_gb_per_s":1e9,"launch_us":10}},
    "devices":[{"name":"d0","kind":"gpu","model":"flat"},{"name":"d1","kind":"gpu","model":"flat"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}]})", "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  TaskGraphBuilder builder(graph);
  TaskCostModel costs(graph, topology, kernels);
  DeltaSimulator delta(builder, topology, costs);
  delta.reset({{{1, 1}, {0}}, {{1, 1}, {1}}, {{1}, {0}}});
  CHECK(delta.makespan() == 90512);
  CHECK_FALSE(delta.propose(1, {{1, 1}, {0}}, 79000));
  CHECK(delta.statistics().rejected_before_simulation == 1);
  delta.reject();
  REQUIRE(delta.propose(1, {{1, 1}, {0}}, 91000));
  delta.accept();
  CHECK(delta.makespan() == 80000);
}

TEST_CASE("delta simulation equals full simulation in every task's times") {
  const int cases = 1000, changes = 200;
  for (int number = 0; number < cases; ++number) {
    INFO("case " << number);
    std::mt19937 random(static_cast<uint32_t>(number));
    const Graph graph = parse_graph(parse_json(random_network(random).dump(), "graph"));
    const int devices = static_cast<int>(between(random, 1, 5));
    const Topology topology = random_topology(random, devices);
    KernelCosts kernels(topology, CostMode::analytic, {});
    TaskCostModel costs(graph, topology, kernels);
    Evaluator evaluator(graph, topology, kernels);
    DeltaSimulator delta(evaluator.builder(), topology, costs);
    Strategy strategy = random_strategy(graph, devices, random);
    delta.reset(strategy);
    std::string difference;
    REQUIRE((same_timeline(delta, evaluator, difference) || (UNSCOPED_INFO(difference), false)));
    for (int change = 0; change < changes; ++change) {
      INFO("change " << change);
      const OperatorId op = static_cast<OperatorId>(between(random, 0, static_cast<int64_t>(graph.operators.size()) - 1));
      const Configuration proposal = random_strategy(graph, devices, random)[op];
      // Limits around the current makespan, and none.
      const int64_t kind = between(random, 0, 2);
      const Nanoseconds limit = kind == 0 ? INT64_MAX : delta.makespan() * between(random, 70, 150) / 100;
      const auto makespan = delta.propose(op, proposal, limit);
      const bool compare = change % 20 == 0 || change + 1 == changes;
      Strategy proposed = delta.strategy();
      proposed[op] = proposal;
      if (compare || !makespan) {
        const Nanoseconds judged = evaluator.evaluate(proposed).makespan;
        if (makespan) REQUIRE(*makespan == judged);
        else REQUIRE(judged > limit);
      }
      if (makespan && between(random, 0, 1)) {
        delta.accept();
        REQUIRE(delta.strategy() == proposed);
        strategy = proposed;
      } else {
        delta.reject();
      }
      REQUIRE(delta.strategy() == strategy);
      if (compare) REQUIRE((same_timeline(delta, evaluator, difference) || (UNSCOPED_INFO(difference), false)));
    }
  }
}
