#include <catch2/catch.hpp>
#include <set>

#include "search/optimizer/lower_bound.h"
#include "search/optimizer/mcmc/mcmc.h"

using namespace ff;

namespace {

struct Problem {
  Graph graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json");
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  KernelCosts kernels{topology, CostMode::analytic, {}};
  std::atomic<bool> stop{false};

  McmcResult search(const McmcSettings& settings) {
    const SearchSpace space(graph, topology);
    RandomStream random(settings.seed, 99);
    return search_mcmc(graph, topology, kernels,
                       {{"data-parallel", data_parallel(graph, topology)}, {"random", space.random_strategy(random)}},
                       settings, stop, nullptr);
  }
};

}  // namespace

TEST_CASE("the same seed and proposals give the same strategy for any number of threads") {
  Problem problem;
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

TEST_CASE("delta and full simulation accept the same proposals") {
  Problem problem;
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

TEST_CASE("the result is never worse than a candidate and never better than the lower bound") {
  Problem problem;
  Evaluator evaluator(problem.graph, problem.topology, problem.kernels);
  const SearchSpace space(problem.graph, problem.topology);
  const Nanoseconds bound = lower_bound(problem.graph, problem.topology, space, evaluator.cost_model());
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const McmcResult result = problem.search({.proposals = 200, .seed = seed});
    CHECK(result.best_prediction.makespan <=
          evaluator.evaluate(data_parallel(problem.graph, problem.topology)).makespan);
    CHECK(result.best_prediction.makespan >= bound);
    CHECK(result.best_prediction.makespan == evaluator.evaluate(result.best).makespan);
  }
}

TEST_CASE("a stopped search returns the best so far") {
  Problem problem;
  problem.stop = true;
  const McmcResult result = problem.search({.proposals = 1000});
  CHECK(result.interrupted);
  CHECK(result.proposals == 0);
  CHECK(result.best.size() == problem.graph.operators.size());
}

TEST_CASE("a strategy that exceeds a device's memory is never preferred to one that fits") {
  Problem problem;
  Evaluator roomy(problem.graph, problem.topology, problem.kernels);
  const Vector<int64_t> needed = roomy.memory_bound(data_parallel(problem.graph, problem.topology));
  Topology tight = problem.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0] - 1;
  Evaluator evaluator(problem.graph, tight, problem.kernels);
  const Prediction prediction = evaluator.evaluate(data_parallel(problem.graph, tight));
  CHECK_FALSE(prediction.feasible);
  CHECK(prediction.cost > 2 * static_cast<double>(prediction.makespan));
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0];
  CHECK(Evaluator(problem.graph, tight, problem.kernels).evaluate(data_parallel(problem.graph, tight)).feasible);
}

TEST_CASE("random configurations are valid and reach every degree of the space") {
  Problem problem;
  const SearchSpace space(problem.graph, problem.topology);
  RandomStream random(3, 0);
  for (OperatorId op = 0; op < static_cast<OperatorId>(problem.graph.operators.size()); ++op) {
    std::set<Vector<int>> seen;
    for (int i = 0; i < 2000; ++i) {
      const Configuration configuration = space.random_configuration(op, random);
      int64_t parts = 1;
      for (int degree : configuration.degrees) parts *= degree;
      REQUIRE(configuration.parts() == parts);
      for (DeviceId device : configuration.devices) REQUIRE((device >= 0 && device < 4));
      seen.insert(configuration.degrees);
    }
    CHECK(seen.size() == space.degrees(op).size());
  }
}
