#include <algorithm>
#include <catch2/catch.hpp>

#include "search/optimizer/lower_bound.h"
#include "tests/support/random_network.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

void check_same_decisions(const SearchProblem& problem, McmcSettings settings) {
  settings.simulator = SimulatorKind::delta;
  const McmcResult delta = problem.search(settings);
  settings.simulator = SimulatorKind::full;
  const McmcResult full = problem.search(settings);
  REQUIRE(delta.chain_hash == full.chain_hash);
  REQUIRE(delta.best == full.best);
  REQUIRE(delta.accepted == full.accepted);
  REQUIRE(delta.proposals == full.proposals);
  REQUIRE(delta.statistics.proposals == full.statistics.proposals);
}

}  // namespace

TEST_CASE("the same seed and proposals give the same strategy for any number of threads") {
  SearchProblem problem("lenet");
  McmcSettings settings{.proposals = 400, .seed = 7, .chains = 4, .threads = 1};
  const McmcResult one = problem.search(settings);
  settings.threads = 3;
  const McmcResult three = problem.search(settings);
  CHECK(one.chain_hash == three.chain_hash);
  CHECK(one.best == three.best);
  CHECK(one.accepted == three.accepted);
  settings.seed = 8;
  CHECK(problem.search(settings).chain_hash != one.chain_hash);
}

TEST_CASE("mixed proposals give the same result for any number of threads") {
  SearchProblem problem("rnnlm-2step");
  McmcSettings settings{.proposals = 400, .seed = 7, .chains = 4, .threads = 1, .proposals_from = ProposalKind::mixed};
  const McmcResult one = problem.search(settings);
  settings.threads = 3;
  const McmcResult three = problem.search(settings);
  CHECK(one.chain_hash == three.chain_hash);
  CHECK(one.best == three.best);
}

TEST_CASE("delta and full simulation accept the same proposals") {
  SearchProblem problem("lenet");
  for (uint64_t seed : {1u, 2u, 3u}) {
    McmcSettings settings{
        .proposals = 1500, .seed = seed, .simulator = SimulatorKind::delta, .proposals_from = ProposalKind::paper};
    const McmcResult delta = problem.search(settings);
    settings.simulator = SimulatorKind::full;
    const McmcResult full = problem.search(settings);
    CHECK(delta.chain_hash == full.chain_hash);
    CHECK(delta.best == full.best);
    CHECK(delta.accepted == full.accepted);
    CHECK(delta.statistics.rejected_before_simulation > 0);
  }
}

TEST_CASE("delta and full simulation accept the same mixed proposals") {
  for (uint64_t seed : {1u, 2u, 3u})
    for (const char* name : {"lenet", "rnnlm-2step"}) {
      SearchProblem problem(name);
      check_same_decisions(problem, {.proposals = 1500, .seed = seed, .proposals_from = ProposalKind::mixed});
    }
  RandomSource random(7);
  for (int round = 0; round < 15; ++round) {
    SearchProblem problem(random_graph(random), load_topology(FF_SOURCE_DIR "/topologies/local-cpu-4.json"));
    check_same_decisions(
        problem,
        {.proposals = 300, .seed = static_cast<uint64_t>(round), .beta = 20, .proposals_from = ProposalKind::mixed});
  }
}

TEST_CASE("mixed proposals under a limit of memory: the same decisions, and the strategy fits") {
  SearchProblem unlimited("rnnlm-2step");
  const Vector<int64_t> needed =
      unlimited.evaluator.estimated_memory(data_parallel(unlimited.graph, unlimited.topology));
  Topology tight = unlimited.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0] * 9 / 10;
  SearchProblem problem(unlimited.graph, tight);
  const McmcSettings settings{.proposals = 3000, .seed = 1, .proposals_from = ProposalKind::mixed};
  check_same_decisions(problem, settings);
  CHECK(problem.search(settings).best_prediction.feasible());
}

// Data parallelism needs 48.7 MB a device here: activations of 16 MB, their gradients, and what relu adds up.
TEST_CASE("where memory is short operators get more parts than devices") {
  const Graph graph = parse_graph(parse_json(R"({"format":"ffgraph/1","name":"slices","batch_size":64,
    "inputs":[{"name":"x","shape":["batch",256,16],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[{"name":"features","type":"linear","inputs":["x"],"attributes":{"out_features":512}},
      {"name":"relu","type":"relu","inputs":["features"]},
      {"name":"mean","type":"mean","inputs":["relu"]},
      {"name":"out","type":"linear","inputs":["mean"],"attributes":{"out_features":10}},
      {"name":"loss","type":"softmax_cross_entropy","inputs":["out","label"]}]})",
                                             "graph"));
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/local-cpu-2.json");
  for (DeviceModel& model : topology.models) model.memory_bytes = 40 << 20;
  SearchProblem problem(graph, topology);
  REQUIRE_FALSE(problem.evaluator.evaluate(data_parallel(graph, topology)).feasible());
  const AlgorithmResult result = problem.run("mcmc", {.proposals = 4000, .seed = 1});
  CHECK(problem.evaluator.evaluate(result.strategy).feasible());
  int64_t most = 0;
  for (const Configuration& configuration : result.strategy) most = std::max(most, configuration.parts());
  CHECK(most > 2);
  McmcSettings settings{.proposals = 1000, .seed = 2};
  settings.slices = true;
  check_same_decisions(problem, settings);
}

TEST_CASE("the result is never worse than a candidate and never better than the lower bound") {
  SearchProblem problem("lenet");
  Evaluator& evaluator = problem.evaluator;
  const Nanoseconds bound = lower_bound(problem.problem, problem.space, evaluator.cost_model());
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const McmcResult result = problem.search({.proposals = 200, .seed = seed});
    CHECK(result.best_prediction.makespan <=
          evaluator.evaluate(data_parallel(problem.graph, problem.topology)).makespan);
    CHECK(result.best_prediction.makespan >= bound);
    CHECK(result.best_prediction.makespan == evaluator.evaluate(result.best).makespan);
  }
}

TEST_CASE("a stopped search returns the best so far") {
  SearchProblem problem("lenet");
  problem.stop = true;
  const McmcResult result = problem.search({.proposals = 1000});
  CHECK(result.interrupted);
  CHECK(result.proposals == 0);
  CHECK(result.best.size() == problem.graph.operators.size());
}

TEST_CASE("a search has a thread for each processor, within its chains and what memory has use for") {
  const int processors = default_threads(1, 1 << 20);
  CHECK(processors >= 1);
  CHECK(default_threads(4, 1) == 1);
  CHECK(default_threads(4, 8) == std::min(8, processors));
  CHECK(default_threads(512, 8) == std::min(2, processors));
  CHECK(default_threads(4096, 8) == 1);
}
