// What --simulator checked leaves when delta simulation is wrong: strategy files that repeat it.
#include "search/optimizer/mcmc/simulation_check.h"

#include <catch2/catch.hpp>

#include "search/optimizer/evaluator.h"
#include "tests/support/graph_text.h"

using namespace ff;

TEST_CASE("the files of a wrong answer have all settings, and the strategy of one micro-batch") {
  const auto whole = std::make_shared<const Graph>(
      with_activation_type(parse_graph(parse_json(two_linear_layers, "graph")), DataType::bf16));
  const Graph graph = graph_of_micro_batch(*whole, 2);
  const Topology topology = parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"flat":{"peak_tflops":1,"peak_bf16_tflops":1,"memory_gb_per_s":1,"launch_us":1}},
    "devices":[{"name":"d0","kind":"gpu","model":"flat"},{"name":"d1","kind":"gpu","model":"flat"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":1}]})",
                                                      "topology"));
  KernelCosts kernels(topology, CostMode::analytic, {});
  const StrategySettings settings{
      .synchronization = Synchronization::parameter_server, .micro_batches = 2, .precision = Precision::bf16};
  const Problem problem{.graph = graph,
                        .topology = topology,
                        .kernels = kernels,
                        .annotations = nullptr,
                        .settings = settings,
                        .batch_graph = whole};
  Evaluator evaluator(problem);
  DeltaSimulator delta(evaluator.builder(), topology, evaluator.cost_model());
  SimulationCheck check(problem, evaluator.builder(), evaluator.cost_model());
  const Configuration split{{2, 1, 1}, {0, 1}}, alone{{1, 1, 1}, {1}};
  const Strategy strategy{split, split, {{1, 1}, {0}}};
  delta.reset(evaluator.expanded(strategy));
  check.start(delta);

  const Vector<Change> changes = evaluator.expanded(Vector<Change>{{1, alone}});
  const Nanoseconds makespan = delta.propose(changes, INT64_MAX).value();
  try {
    check.proposal(delta, changes, INT64_MAX, makespan + 1);
    FAIL("a wrong prediction was not seen");
  } catch (const SimulationDisagreement& error) {
    CHECK(error.what() == "delta simulation predicts " + std::to_string(makespan + 1) + " ns, full simulation " +
                              std::to_string(makespan) + " ns; changed: " + whole->operators[1].name +
                              ": sample 2 on devices 1,1");
    const StrategyFile before = parse_strategy(parse_json(error.before.dump(), "before")),
                       proposed = parse_strategy(parse_json(error.proposed.dump(), "proposed"));
    CHECK(before.settings == settings);
    CHECK(proposed.settings == settings);
    CHECK(before.strategy == strategy);
    CHECK(proposed.strategy == Strategy{split, alone, strategy[2]});
    CHECK(evaluator.estimate(proposed.strategy, 1).makespan == makespan);
  }
}
