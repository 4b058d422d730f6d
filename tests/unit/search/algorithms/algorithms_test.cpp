// Searches with their initial candidates.
#include <catch2/catch.hpp>
#include <limits>

#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// The heuristic baselines that a search without annotations looks at.
Vector<std::string> looked_at(SearchProblem& network) {
  Vector<std::string> names;
  for (const std::string& name : heuristic_baseline_names()) {
    if (name == "propagate") continue;
    try {
      network.run(name);
      names.push_back(name);
    } catch (const NotApplicable&) {}
  }
  return names;
}

}  // namespace

TEST_CASE("a search with the default candidates is never slower than any baseline") {
  for (const auto& [graph, topology] : {std::pair("lenet", "p100-1x4"),
                                        {"alexnet", "k80-1x4"},
                                        {"rnnlm-2step", "p100-1x4"},
                                        {"lenet", "local-cpu-2"},
                                        {"moe-tiny", "p100-1x4"}}) {
    SearchProblem network(graph, topology);
    const AlgorithmResult result = network.run("mcmc");
    CHECK(result.baselines.size() == looked_at(network).size());
    const Prediction found = network.evaluator.evaluate(result.strategy);
    for (const std::string& name : looked_at(network)) {
      const Prediction prediction = network.evaluator.evaluate(network.run(name).strategy);
      CHECK(found.cost <= prediction.cost);
      const auto baseline = std::find_if(result.baselines.begin(), result.baselines.end(),
                                         [&](const Baseline& b) { return b.algorithm == name; });
      REQUIRE(baseline != result.baselines.end());
      CHECK(baseline->predicted == prediction.makespan);
    }
  }
}

TEST_CASE("a candidate that exceeds a device's memory is not preferred to one that fits") {
  SearchProblem unlimited("lenet", "p100-1x4");
  const Vector<int64_t> alone = unlimited.evaluator.estimated_memory(single_device(unlimited.graph));
  const Vector<int64_t> split =
      unlimited.evaluator.estimated_memory(data_parallel(unlimited.graph, unlimited.topology));
  REQUIRE(alone[0] > split[0]);
  REQUIRE(unlimited.evaluator.evaluate(single_device(unlimited.graph)).makespan <
          unlimited.evaluator.evaluate(data_parallel(unlimited.graph, unlimited.topology)).makespan);
  Topology tight = unlimited.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = (alone[0] + split[0]) / 2;
  Evaluator evaluator({unlimited.graph, tight, unlimited.kernels});
  const AlgorithmResult result = run_algorithm("mcmc", {.evaluator = evaluator,
                                                        .space = unlimited.space,
                                                        .settings = {.search = {.proposals = 20}},
                                                        .control = {unlimited.stop}});
  CHECK(evaluator.evaluate(result.strategy).feasible());
  const auto single = std::find_if(result.baselines.begin(), result.baselines.end(),
                                   [](const Baseline& b) { return b.algorithm == "single-device"; });
  REQUIRE(single != result.baselines.end());
  CHECK_FALSE(single->feasible);
}

TEST_CASE("a search whose time is up is data parallelism, and says what it left out") {
  SearchProblem lenet("lenet", "p100-1x4");
  const auto run = [&](double seconds, const Vector<std::string>& init) {
    return run_algorithm("mcmc", {.evaluator = lenet.evaluator,
                                  .space = lenet.space,
                                  .settings = {.search = {.budget_s = seconds, .chains = 3}, .init = init},
                                  .control = {lenet.stop}});
  };
  AlgorithmResult result = run(1e-6, {});
  CHECK(result.strategy == data_parallel(lenet.graph, lenet.topology));
  CHECK(result.note ==
        "nothing better than data-parallel was found; no time for single-device, model-parallel, expert, pipeline, "
        "megatron, gshard, optcnn, sub-cluster, 3 of 3 chains");
  CHECK(result.chains->proposals == 0);
  // What is asked for by name is looked at, whatever it takes.
  result = run(1e-6, {"single-device", "expert"});
  CHECK(result.baselines.size() == 2);
  CHECK(result.chains->chains_without_time == 3);
  const Prediction best = lenet.evaluator.evaluate(result.strategy);
  for (const Baseline& baseline : result.baselines) CHECK(best.makespan <= baseline.predicted);
}

TEST_CASE("a budget is that of baselines and chains together") {
  SearchProblem network("alexnet", "p100-4x4");
  const AlgorithmResult result = network.run("mcmc", {.budget_s = 0.5, .chains = 2});
  CHECK(result.chains->proposals > 0);
  CHECK(result.elapsed_s < 10);  // not twenty times as long, on a busy machine
}

TEST_CASE("an explicit init is all that is looked at") {
  SearchProblem lenet("lenet", "p100-1x4");
  AlgorithmResult result = lenet.run("mcmc", {.proposals = 100, .chains = 1}, {"data-parallel"});
  REQUIRE(result.baselines.size() == 1);
  CHECK(result.baselines[0].algorithm == "data-parallel");
  CHECK(result.chains->best_from == "data-parallel");
  const McmcResult same = search_mcmc(lenet.problem, {{"data-parallel", data_parallel(lenet.graph, lenet.topology)}},
                                      {.proposals = 100, .chains = 1}, {lenet.stop});
  CHECK(same.chain_hash == result.chains->chain_hash);
  result = lenet.run("mcmc", {.proposals = 100, .chains = 2}, {"expert", "optcnn"});
  CHECK(result.baselines.size() == 2);
  result = lenet.run("mcmc", {.proposals = 100, .chains = 1}, {"best"});
  CHECK(result.baselines.size() == looked_at(lenet).size());
}

TEST_CASE("placement splits no operator") {
  SearchProblem rnnlm("rnnlm-2step", "p100-1x4");
  const AlgorithmResult result = rnnlm.run("placement", {.proposals = 2000});
  for (const Configuration& configuration : result.strategy) CHECK(configuration.parts() == 1);
  const Nanoseconds found = rnnlm.evaluator.evaluate(result.strategy).makespan;
  CHECK(found <= rnnlm.evaluator.evaluate(single_device(rnnlm.graph)).makespan);
  CHECK(found <= rnnlm.evaluator.evaluate(rnnlm.run("model-parallel").strategy).makespan);
  CHECK_THROWS_WITH(rnnlm.run("placement", {.proposals = 10}, {"data-parallel"}),
                    "--init: \"data-parallel\" splits operators, which placement does not");
}

TEST_CASE("algorithms that search for long report what they have found, for when they are interrupted") {
  for (const std::string name : {"reinforce", "sub-cluster", "exhaustive"}) {
    INFO(name);
    SearchProblem problem("lenet");
    AlgorithmRequest request{.evaluator = problem.evaluator,
                             .space = problem.space,
                             .settings = {.search = {.proposals = 100, .budget_s = 0.3}},
                             .control = {problem.stop}};
    request.settings.assignments = exhaustive::Assignments::consecutive;
    double best = std::numeric_limits<double>::infinity();
    Strategy strategy;
    request.control.found = [&](const Strategy& found, const Prediction& prediction) {
      if (prediction.cost < best) best = prediction.cost, strategy = found;
    };
    const AlgorithmResult result = run_algorithm(name, request);
    CHECK(best == problem.evaluator.evaluate(result.strategy).cost);
    CHECK(problem.evaluator.evaluate(strategy).cost == best);
  }
}

TEST_CASE("a sub-cluster that is interrupted at once is data parallelism, and says so") {
  SearchProblem problem("lenet");
  problem.stop = true;
  const AlgorithmResult result = problem.run("sub-cluster");
  CHECK(result.strategy == data_parallel(problem.graph, problem.topology));
  CHECK(result.note == "interrupted before any sub-cluster was looked at: data parallelism on all devices");
}
