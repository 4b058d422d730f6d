#include "search/optimizer/mcmc/coarse_problem.h"

#include <catch2/catch.hpp>

#include "tests/support/search_problem.h"

using namespace ff;

TEST_CASE("a coarse problem has a share of the nodes and of the samples") {
  const SearchProblem whole("rnnlm-2step", "p100-16x4");
  CHECK(coarse_copies(whole.topology) == 4);
  const auto coarse = coarse_problem(whole.problem, 4);
  REQUIRE(coarse);
  CHECK(coarse->cluster.topology.devices.count() == 16);
  CHECK(4 * coarse->graph.batch_size == whole.graph.batch_size);
  Vector<int> times(whole.topology.devices.count(), 0);
  for (const Vector<DeviceId>& copy : coarse->devices) {
    REQUIRE(copy.count() == 16);
    for (const DeviceId device : copy) ++times[device];
  }
  CHECK(times == Vector<int>(64, 1));
}

TEST_CASE("what every copy does is what the coarse strategy does: all parts compute as many samples") {
  SearchProblem whole("rnnlm-2step", "p100-16x4");
  const auto coarse = coarse_problem(whole.problem, 4);
  REQUIRE(coarse);
  CHECK(coarse->projected(whole.graph, data_parallel(coarse->graph, coarse->cluster.topology)) ==
        data_parallel(whole.graph, whole.topology));
  const SearchSpace space(coarse->graph, coarse->cluster.topology);
  RandomStream random(3, 0);
  for (int round = 0; round < 20; ++round) {
    const Strategy small = space.random_strategy(random);
    const Strategy large = coarse->projected(whole.graph, small);
    for (const OperatorId op : whole.graph.operator_ids()) {
      const OperatorDefinition &share = *coarse->graph.operators[op].definition,
                               &all = *whole.graph.operators[op].definition;
      const int64_t parts = small[op].parts();
      REQUIRE(large[op].parts() == 4 * parts);
      for (const int part : large[op].devices.indices()) {
        const int of_copy = static_cast<int>(part % parts), copy = static_cast<int>(part / parts);
        CHECK(large[op].devices[part] == coarse->devices[copy][small[op].devices[of_copy]]);
        CHECK(all.part(large[op].degrees, part).shape() == share.part(small[op].degrees, of_copy).shape());
      }
    }
    CHECK(whole.evaluator.evaluate(large).makespan > 0);
  }
}

TEST_CASE("there is no coarse problem where nodes or samples do not divide, or nodes are not alike") {
  SearchProblem small("lenet", "p100-4x4");
  CHECK(coarse_copies(small.topology) == 1);
  CHECK_FALSE(coarse_problem(small.problem, 1));
  CHECK_FALSE(coarse_problem(small.problem, 3));
  CHECK(coarse_problem(small.problem, 2));
  Graph odd = load_graph(FF_SOURCE_DIR "/graphs/lenet.json", 63);
  CHECK_FALSE(coarse_problem({odd, small.topology, small.kernels}, 2));
  Topology uneven = small.topology;
  uneven.models.push_back(uneven.models[0]);
  uneven.models.back().speed = 0.5;
  uneven.devices[5].model = uneven.models.count() - 1;
  CHECK_FALSE(coarse_problem({small.graph, uneven, small.kernels}, 2));
}

TEST_CASE("a search of few proposals on many devices has one level, and ends") {
  SearchProblem problem("rnnlm-2step", "k80-8x4");
  for (const int64_t proposals : {1, 2, 150, 199, 200, 401})
    CHECK(problem.run("mcmc", {.proposals = proposals, .chains = 2}).chains->proposals <= proposals);
}

TEST_CASE("a multilevel search makes as many proposals as it may, and is the same with threads and full simulation") {
  SearchProblem problem("rnnlm-2step", "k80-8x4");
  McmcSettings settings{.proposals = 900, .seed = 5, .chains = 3, .look_ahead_from_s = 0};
  const AlgorithmResult one = problem.run("mcmc", settings);
  CHECK(one.chains->proposals <= 900);
  CHECK(one.chains->proposals >= 900 / 4);  // each level may end when half of its proposals found nothing better
  settings.threads = 3;
  const AlgorithmResult several = problem.run("mcmc", settings);
  CHECK(several.chains->chain_hash == one.chains->chain_hash);
  CHECK(several.strategy == one.strategy);
  settings.simulator = SimulatorKind::full;
  CHECK(problem.run("mcmc", settings).chains->chain_hash == one.chains->chain_hash);
  for (const Baseline& baseline : one.baselines)
    CHECK(problem.evaluator.evaluate(one.strategy).makespan <= baseline.predicted);
}
