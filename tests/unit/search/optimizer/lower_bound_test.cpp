#include "search/optimizer/lower_bound.h"

#include <catch2/catch.hpp>
#include <numeric>

#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"
#include "tests/support/search_problem.h"

namespace ff {
namespace {

Nanoseconds bound_of(SearchProblem& problem) {
  return lower_bound(problem.problem, problem.space, problem.evaluator.cost_model());
}

// The first devices of a cluster of 64 GPUs.
Topology first_devices(int count) {
  Vector<DeviceId> kept(static_cast<size_t>(count));
  std::iota(kept.begin(), kept.end(), 0);
  return load_topology(FF_SOURCE_DIR "/topologies/p100-16x4.json").with_devices(kept);
}

Graph committed_graph(const std::string& name) { return load_graph(FF_SOURCE_DIR "/graphs/" + name + ".json"); }

void check_every_algorithm(SearchProblem& problem) {
  const Nanoseconds bound = bound_of(problem);
  for (const std::string& algorithm : algorithm_names()) {
    if (algorithm == "exhaustive") continue;  // the bounds of its own are tested with it
    CAPTURE(algorithm);
    try {
      const AlgorithmResult found = problem.run(algorithm, {.proposals = 40, .chains = 2});
      CHECK(problem.evaluator.evaluate(found.strategy).makespan >= bound);
      for (const TaskOrder order : {TaskOrder::fifo, TaskOrder::best})
        CHECK(problem.evaluator.details(found.strategy, order).timeline.makespan >= bound);
      for (const Baseline& baseline : found.baselines) CHECK(baseline.predicted >= bound);
    } catch (const NotApplicable&) {}
  }
}

}  // namespace

TEST_CASE("no algorithm finds a strategy below the bound, whatever divides the number of devices") {
  for (const int devices : {3, 5, 17, 19})
    for (uint64_t seed = 0; seed < 3; ++seed) {
      CAPTURE(devices, seed);
      RandomSource random(seed * 100 + static_cast<uint64_t>(devices));
      Graph graph = random_graph(random);
      SearchProblem problem(std::move(graph), random_topology(random, devices));
      check_every_algorithm(problem);
    }
}

TEST_CASE("no random strategy is below the bound: any degrees, shares and devices") {
  for (const int devices : {1, 2, 3, 5, 17, 19})
    for (uint64_t seed = 0; seed < 25; ++seed) {
      CAPTURE(devices, seed);
      RandomSource random(seed * 100 + static_cast<uint64_t>(devices));
      Graph graph = random_graph(random);
      SearchProblem problem(std::move(graph), random_topology(random, devices));
      const Nanoseconds bound = bound_of(problem);
      CHECK(bound > 0);
      for (int i = 0; i < 4; ++i)
        CHECK(problem.evaluator.evaluate(random_strategy(problem.graph, devices, random)).makespan >= bound);
      // Several parts a device, as where memory is short.
      Strategy sliced = data_parallel(problem.graph, problem.topology);
      for (const OperatorId op : problem.graph.operator_ids()) {
        const Vector<Degrees> degrees = problem.space.sliced_degrees(op);
        if (degrees.empty()) continue;
        Configuration& configuration = sliced[op];
        configuration.degrees = degrees[random.between(0, degrees.count() - 1)];
        configuration.devices.clear();
        for (int part = 0; part < parts_of(configuration.degrees); ++part)
          configuration.devices.push_back(part % devices);
      }
      CHECK(problem.evaluator.evaluate(sliced).makespan >= bound);
    }
}

TEST_CASE("a device that nothing uses does not raise the bound") {
  for (const char* name : {"gpt2-small", "alexnet", "resnet50", "rnnlm-2step", "moe-tiny"})
    for (const auto& [fewer, more] : {std::pair(2, 3), std::pair(4, 5), std::pair(16, 17), std::pair(18, 19)}) {
      CAPTURE(name, fewer);
      SearchProblem few(committed_graph(name), first_devices(fewer)), many(committed_graph(name), first_devices(more));
      CHECK(bound_of(many) <= bound_of(few));
    }
}

// 8 samples on 17 devices: 8 parts run, though 8 does not divide 17.
TEST_CASE("the bound of a language model on 17 devices is not above its data parallelism") {
  SearchProblem problem(committed_graph("gpt2-small"), first_devices(17));
  const Nanoseconds bound = bound_of(problem);
  CHECK(bound <= problem.evaluator.evaluate(data_parallel(problem.graph, problem.topology)).makespan);
  SearchProblem sixteen(committed_graph("gpt2-small"), first_devices(16));
  // The same work, less what rounding may take: half a nanosecond a part.
  CHECK(16 * bound_of(sixteen) <= 17 * bound + bound / 1000);
}

TEST_CASE("the bound knows the rates of other precisions and the shares of them that kernels reach") {
  const Json file = load_topology(FF_SOURCE_DIR "/topologies/dgx-a100-2.json").file;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16})
    for (const bool efficiency : {false, true}) {
      CAPTURE(to_string(precision), efficiency);
      Json own = file;
      if (efficiency)
        own["device_models"]["a100"]["efficiency"] = Json::parse(R"({"memory":0.9,"sustained":0.95,"variation":0.1,
          "products":{"depths":[256,4096],"outputs":[65536,16777216],"shares":[[0.1,0.5],[0.3,0.85]],
          "accumulating":0.9,"fp8":2},
          "attention":[{"head_channels":64,"causal":true,"forward":1.3,"by_length":[[512,0.3],[4096,0.6]]}]})");
      const Topology topology = parse_topology(JsonPlace(std::make_shared<Json>(own), "topology"));
      Graph graph = committed_graph("gpt2-small");
      if (precision == Precision::bf16) graph = with_activation_type(graph, DataType::bf16);
      KernelCosts kernels(topology, CostMode::analytic, {}, 0, precision);
      const Problem problem{graph, topology, kernels};
      Evaluator evaluator(problem);
      const SearchSpace space(graph, topology);
      const Nanoseconds bound = lower_bound(problem, space, evaluator.cost_model());
      if (efficiency) {  // no product is in fp8
        own["device_models"]["a100"]["efficiency"]["products"].erase("fp8");
        const Topology without = parse_topology(JsonPlace(std::make_shared<Json>(own), "topology"));
        KernelCosts its_kernels(without, CostMode::analytic, {}, 0, precision);
        Evaluator other({graph, without, its_kernels});
        CHECK(lower_bound(other.problem(), SearchSpace(graph, without), other.cost_model()) == bound);
      }
      const Nanoseconds data_parallel_ns = evaluator.evaluate(data_parallel(graph, topology)).makespan;
      CHECK(bound <= data_parallel_ns);
      CHECK(5 * bound >= data_parallel_ns);
      RandomSource random(7);
      for (int i = 0; i < 10; ++i)
        CHECK(evaluator.evaluate(random_strategy(graph, topology.devices.count(), random)).makespan >= bound);
    }
}

}  // namespace ff
