// Delta simulation against full simulation: the same ready, start and end of every task, after any sequence of
// accepted, rejected and undone changes, on random graphs and topologies (switches, shared and half-duplex links, busy
// endpoints, shared parameters, ties).
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "search/optimizer/evaluator.h"
#include "search/optimizer/search_space.h"
#include "search/simulator/delta.h"
#include "tests/support/cases_of_today.h"
#include "tests/support/chain_comparison.h"
#include "tests/support/graph_text.h"

using namespace ff;

TEST_CASE("the example of docs/simulator.md") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"flat":{"peak_tflops":1e9,"memory_gb_per_s":1e9,"launch_us":10}},
    "devices":[{"name":"d0","kind":"gpu","model":"flat"},{"name":"d1","kind":"gpu","model":"flat"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5}]})",
                                                      "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  TaskGraphBuilder builder(graph);
  TaskCostModel costs(graph, topology, kernels);
  DeltaSimulator delta(builder, topology, costs);
  delta.reset({{{1, 1, 1}, {0}}, {{1, 1, 1}, {1}}, {{1, 1}, {0}}});
  CHECK(delta.makespan() == 90512);
  CHECK_FALSE(delta.propose({{1, {{1, 1, 1}, {0}}}}, 79000));
  CHECK(delta.statistics().rejected_before_simulation == 1);
  delta.reject();
  REQUIRE(delta.propose({{1, {{1, 1, 1}, {0}}}}, 91000));
  delta.accept();
  CHECK(delta.makespan() == 80000);
}

TEST_CASE("delta simulation equals full simulation in every task's times", "[slow]") {
  DeltaStatistics sum;
  const uint32_t first = first_case_of_today(250);
  for (uint32_t number = first; number < first + 250; ++number) {
    INFO("case " << number << ", FF_TEST_DAY=" << test_day());
    RandomSource random(number);
    const DeltaComparison comparison = compare_delta_with_full(random, 200, 20);
    INFO(comparison.difference);
    REQUIRE(comparison.difference.empty());
    sum += comparison.statistics;
  }
  // The shortcuts have been tried often.
  CHECK(sum.rejected_before_simulation > 250);
  CHECK(sum.rejected_during_simulation > 250);
  CHECK(sum.returned > 250);
}

TEST_CASE("delta simulation equals full simulation where parameters have owners", "[slow]") {
  DeltaStatistics sum;
  const uint32_t first = first_case_of_today(150);
  for (uint32_t number = first; number < first + 150; ++number) {
    INFO("case " << number << ", FF_TEST_DAY=" << test_day());
    RandomSource random(number);
    const DeltaComparison comparison = compare_delta_with_full(random, 200, 20, Synchronization::parameter_server);
    INFO(comparison.difference);
    REQUIRE(comparison.difference.empty());
    sum += comparison.statistics;
  }
  CHECK(sum.rejected_before_simulation > 250);
  CHECK(sum.rejected_during_simulation > 250);
}

// Where bounds are close to the makespan: data parallelism and what is next to it, on networks whose batch
// normalization makes all devices meet a hundred times in each direction.
TEST_CASE("delta simulation: no bound exceeds the makespan of chains and branches of joint reductions") {
  int64_t rejected = 0;
  for (const char* name : {"resnet101", "inception_v3"}) {
    INFO(name);
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/" + std::string(name) + ".json", 4 * 64);
    const Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
    KernelCosts kernels(topology, CostMode::analytic, {});
    Evaluator evaluator({graph, topology, kernels});
    TaskCostModel costs(graph, topology, kernels);
    DeltaSimulator delta(evaluator.builder(), topology, costs);
    const SearchSpace space(graph, topology);
    RandomStream random(1, 0);
    Strategy strategy = data_parallel(graph, topology);
    delta.reset(strategy);
    for (int number = 0; number < 120; ++number) {
      const OperatorId op = static_cast<OperatorId>(random.below(graph.operators.count()));
      const Change change{op, space.random_configuration(op, random)};
      Strategy proposed = strategy;
      proposed[op] = change.configuration;
      const Nanoseconds judged = evaluator.estimate(proposed, 1).makespan;
      REQUIRE(delta.propose({change}, judged) == judged);
      delta.reject();
      const auto makespan = delta.propose({change}, delta.makespan() + delta.makespan() / 100);
      REQUIRE((makespan ? *makespan == judged : judged > delta.makespan() + delta.makespan() / 100));
      if (makespan && *makespan <= delta.makespan() + delta.makespan() / 500) {
        delta.accept();
        strategy = proposed;
      } else {
        delta.reject();
      }
    }
    rejected += delta.statistics().rejected_by[static_cast<size_t>(Bound::paths)];
  }
  CHECK(rejected > 0);
}

// The longest paths in front of operators stayed those of the first strategy, whose first layer is slow: the bound on
// paths rejected changes after it.
TEST_CASE("delta simulation: a simulator that is reset keeps nothing of the strategy before") {
  const Graph graph = parse_graph(parse_json(two_linear_layers, "graph"));
  const Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"fast":{"peak_tflops":1e9,"memory_gb_per_s":1e9,"launch_us":1},
                     "slow":{"peak_tflops":1e9,"memory_gb_per_s":1e9,"launch_us":100}},
    "devices":[{"name":"d0","kind":"gpu","model":"fast"},{"name":"d1","kind":"gpu","model":"slow"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":100,"latency_us":1}]})",
                                                      "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  Evaluator evaluator({graph, topology, kernels});
  DeltaSimulator delta(evaluator.builder(), topology, evaluator.cost_model());
  const Configuration on_fast{{1, 1, 1}, {0}}, on_slow{{1, 1, 1}, {1}}, loss{{1, 1}, {0}};
  delta.reset({on_fast, on_fast, loss});
  // The change of the first layer makes the known path in front of the second one long, and is accepted.
  REQUIRE(delta.propose({{0, on_slow}}, std::numeric_limits<Nanoseconds>::max()));
  delta.accept();
  delta.reset({on_fast, on_slow, loss});
  const Nanoseconds judged = evaluator.estimate({on_fast, on_fast, loss}, 1).makespan;
  REQUIRE(judged < delta.makespan());
  CHECK(delta.propose({{1, on_fast}}, judged) == judged);
}

// Networks, proposals and limits as searches have them.
TEST_CASE("delta simulation equals full simulation along chains of proposals", "[slow]") {
  DeltaStatistics sum;
  for (uint32_t number = 0; number < 60; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    const DeltaComparison comparison = compare_chain_with_full(
        random, 300, number % 4 == 3 ? Synchronization::parameter_server : Synchronization::all_reduce);
    INFO(comparison.difference);
    REQUIRE(comparison.difference.empty());
    sum += comparison.statistics;
  }
  CHECK(sum.rejected_before_simulation > 1000);
  CHECK(sum.rejected_during_simulation > 1000);
}

TEST_CASE("cases that a fuzzer has found") {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(FF_SOURCE_DIR "/tests/fuzz/cases")) {
    INFO(entry.path());
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    for (const Synchronization synchronization : {Synchronization::all_reduce, Synchronization::parameter_server}) {
      RandomSource random(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      const int changes = static_cast<int>(8 + bytes.size() / 16);
      CHECK(compare_delta_with_full(random, changes, 8, synchronization).difference == "");
    }
    ++cases;
  }
  CHECK(cases > 0);
}
