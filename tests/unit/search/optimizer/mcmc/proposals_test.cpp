// Proposal distributions: within the search space, and the same decisions with either simulator. Local optima against
// enumeration.
#include <algorithm>
#include <catch2/catch.hpp>

#include "search/optimizer/mcmc/local_optimum.h"
#include "search/optimizer/mcmc/mcmc.h"
#include "tests/support/random_network.h"

using namespace ff;

namespace {

struct Problem {
  explicit Problem(const std::string& name, const std::string& topology_name = "p100-1x4")
      : Problem(load_graph(FF_SOURCE_DIR "/graphs/" + name + ".json"),
                load_topology(FF_SOURCE_DIR "/topologies/" + topology_name + ".json")) {}
  Problem(Graph a_graph, Topology a_topology) : graph(std::move(a_graph)), topology(std::move(a_topology)) {}
  Graph graph;
  Topology topology;
  KernelCosts kernels{topology, CostMode::analytic, {}};
  SearchSpace space{graph, topology};
  std::atomic<bool> stop{false};

  McmcResult search(const McmcSettings& settings) {
    RandomStream random(settings.seed, 99);
    return search_mcmc(graph, topology, kernels,
                       {{"data-parallel", data_parallel(graph, topology)}, {"random", space.random_strategy(random)}},
                       settings, stop, nullptr);
  }
};

bool in_space(const SearchSpace& space, OperatorId op, const Configuration& configuration, int devices) {
  const auto& allowed = space.degrees(op);
  int64_t parts = 1;
  for (int degree : configuration.degrees) parts *= degree;
  return std::find(allowed.begin(), allowed.end(), configuration.degrees) != allowed.end() &&
         configuration.parts() == parts &&
         std::all_of(configuration.devices.begin(), configuration.devices.end(),
                     [&](DeviceId device) { return device >= 0 && device < devices; });
}

void check_same_decisions(Problem& problem, McmcSettings settings) {
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

TEST_CASE("mixed proposals stay within the search space and change groups together") {
  for (const char* name : {"rnnlm-2step", "lenet", "dlrm"}) {
    Problem problem(name);
    const ProposalSource source(ProposalKind::mixed, problem.graph, problem.topology, problem.space);
    RandomStream random(5, 0);
    Strategy strategy = problem.space.random_strategy(random);
    Vector<Change> changes;
    int several = 0;
    for (int i = 0; i < 5000; ++i) {
      source.draw(strategy, random, changes);
      REQUIRE_FALSE(changes.empty());
      for (size_t c = 0; c < changes.size(); ++c) {
        REQUIRE(in_space(problem.space, changes[c].op, changes[c].configuration, 4));
        for (size_t other = 0; other < c; ++other) REQUIRE(changes[other].op != changes[c].op);
      }
      several += changes.size() > 1;
      for (Change& change : changes) strategy[change.op] = std::move(change.configuration);
    }
    CAPTURE(name);
    if (std::string(name) == "rnnlm-2step") CHECK(several > 50);
    else CHECK(several == 0);
  }
}

TEST_CASE("mixed proposals move whole groups to other devices and give them other degrees") {
  Problem problem("rnnlm-2step");
  const ProposalSource source(ProposalKind::mixed, problem.graph, problem.topology, problem.space);
  Strategy strategy = data_parallel(problem.graph, problem.topology);
  for (Configuration& configuration : strategy) configuration = {Degrees(configuration.degrees.size(), 1), {2}};
  RandomStream random(5, 0);
  Vector<Change> changes;
  int moved = 0, split_from_there = 0;
  for (int i = 0; i < 2000; ++i) {
    source.draw(strategy, random, changes);
    if (changes.size() < 2) continue;
    for (const Change& change : changes) REQUIRE(change.configuration == changes[0].configuration);
    const Configuration& configuration = changes[0].configuration;
    moved += configuration.parts() == 1 && configuration.devices[0] != 2;
    split_from_there += configuration.parts() == 4 && configuration.devices == Vector<DeviceId>{2, 3, 0, 1};
  }
  CHECK(moved > 100);
  CHECK(split_from_there > 40);
}

TEST_CASE("paper's proposals change one operator to a random configuration") {
  Problem problem("lenet");
  const ProposalSource source(ProposalKind::paper, problem.graph, problem.topology, problem.space);
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  RandomStream random(6, 0), same(6, 0);
  Vector<Change> changes;
  for (int i = 0; i < 200; ++i) {
    source.draw(strategy, random, changes);
    REQUIRE(changes.size() == 1);
    const OperatorId op = static_cast<OperatorId>(same.below(static_cast<uint32_t>(problem.graph.operators.size())));
    REQUIRE(changes[0].op == op);
    REQUIRE(changes[0].configuration == problem.space.random_configuration(op, same));
  }
}

TEST_CASE("delta and full simulation accept the same mixed proposals") {
  for (uint64_t seed : {1u, 2u, 3u})
    for (const char* name : {"lenet", "rnnlm-2step"}) {
      Problem problem(name);
      check_same_decisions(problem, {.proposals = 1500, .seed = seed, .proposals_from = ProposalKind::mixed});
    }
  RandomSource random(7);
  for (int round = 0; round < 15; ++round) {
    Problem problem(parse_graph(parse_json(random_network(random).dump(), "network")),
                    load_topology(FF_SOURCE_DIR "/topologies/local-cpu-4.json"));
    check_same_decisions(
        problem,
        {.proposals = 300, .seed = static_cast<uint64_t>(round), .beta = 20, .proposals_from = ProposalKind::mixed});
  }
}

TEST_CASE("mixed proposals under a limit of memory: the same decisions, and the strategy fits") {
  Problem roomy("rnnlm-2step");
  Evaluator evaluator(roomy.graph, roomy.topology, roomy.kernels);
  const Vector<int64_t> needed = evaluator.memory_bound(data_parallel(roomy.graph, roomy.topology));
  Topology tight = roomy.topology;
  for (DeviceModel& model : tight.models) model.memory_bytes = needed[0] * 9 / 10;
  Problem problem(roomy.graph, tight);
  const McmcSettings settings{.proposals = 3000, .seed = 1, .proposals_from = ProposalKind::mixed};
  check_same_decisions(problem, settings);
  CHECK(problem.search(settings).best_prediction.feasible);
}

TEST_CASE("mixed proposals give the same result for any number of threads") {
  Problem problem("rnnlm-2step");
  McmcSettings settings{.proposals = 400, .seed = 7, .chains = 4, .threads = 1, .proposals_from = ProposalKind::mixed};
  const McmcResult one = problem.search(settings);
  settings.threads = 3;
  const McmcResult three = problem.search(settings);
  CHECK(one.chain_hash == three.chain_hash);
  CHECK(one.best == three.best);
}

TEST_CASE("a local optimum is one: no neighbour is better by full simulation") {
  RandomSource random(8);
  int improved = 0;
  for (int round = 0; round < 12; ++round) {
    Problem problem(
        parse_graph(parse_json(random_network(random).dump(), "network")),
        load_topology(FF_SOURCE_DIR "/topologies/" + std::string(round % 3 ? "local-cpu-2" : "p100-1x4") + ".json"));
    const int devices = static_cast<int>(problem.topology.devices.size());
    const Neighbourhood neighbourhood(problem.graph, problem.topology, problem.space);
    CHECK(neighbourhood.text() == "one operator changed: all degrees of the search space, every assignment of devices");
    RandomStream stream(static_cast<uint64_t>(round), 0);
    const Strategy start =
        round % 2 ? data_parallel(problem.graph, problem.topology) : problem.space.random_strategy(stream);
    const LocalOptimum found = local_optimum(problem.graph, problem.topology, problem.kernels, neighbourhood, start,
                                             SimulatorKind::delta, problem.stop);
    REQUIRE(found.proven);
    improved += found.improvements > 0;
    Evaluator evaluator(problem.graph, problem.topology, problem.kernels);
    REQUIRE(evaluator.evaluate(found.strategy).cost == found.prediction.cost);
    REQUIRE(found.prediction.cost <= evaluator.evaluate(start).cost);
    // Every neighbour, counted out here: a number in base `devices` for each degrees.
    int64_t neighbours = 0;
    for (OperatorId op = 0; op < static_cast<OperatorId>(found.strategy.size()); ++op)
      for (const Degrees& degrees : problem.space.degrees(op)) {
        int parts = 1, assignments = 1;
        for (int degree : degrees) parts *= degree;
        for (int part = 0; part < parts; ++part) assignments *= devices;
        for (int number = 0; number < assignments; ++number) {
          Strategy changed = found.strategy;
          changed[op] = {degrees, {}};
          for (int part = 0, rest = number; part < parts; ++part, rest /= devices)
            changed[op].devices.push_back(rest % devices);
          if (changed[op] == found.strategy[op]) continue;
          ++neighbours;
          if (number % 5 == 0) REQUIRE(evaluator.evaluate(changed).cost >= found.prediction.cost);
        }
      }
    REQUIRE(found.neighbours == neighbours);
    const LocalOptimum again = local_optimum(problem.graph, problem.topology, problem.kernels, neighbourhood,
                                             found.strategy, SimulatorKind::full, problem.stop);
    REQUIRE(again.improvements == 0);
    REQUIRE(again.evaluated == neighbours);
    REQUIRE(again.strategy == found.strategy);
  }
  CHECK(improved > 5);
}

TEST_CASE("a large neighbourhood says what it holds") {
  Problem problem("lenet", "p100-4x4");
  const Neighbourhood neighbourhood(problem.graph, problem.topology, problem.space);
  CHECK(neighbourhood.text() ==
        "one operator changed: all degrees of the search space, every assignment of devices up to 2 parts, consecutive "
        "devices from every first one beyond");
  int64_t count = 0, expected = 0;
  neighbourhood.for_each(0, [&](const Configuration& configuration) {
    REQUIRE(in_space(problem.space, 0, configuration, 16));
    ++count;
    return true;
  });
  for (const Degrees& degrees : problem.space.degrees(0)) {
    int parts = 1;
    for (int degree : degrees) parts *= degree;
    expected += parts == 2 ? 256 : 16;
  }
  CHECK(count == expected);
}

TEST_CASE("a stopped check proves nothing") {
  Problem problem("lenet");
  problem.stop = true;
  const LocalOptimum found = local_optimum(
      problem.graph, problem.topology, problem.kernels, Neighbourhood(problem.graph, problem.topology, problem.space),
      data_parallel(problem.graph, problem.topology), SimulatorKind::delta, problem.stop);
  CHECK_FALSE(found.proven);
  CHECK(found.operators == 0);
  CHECK(found.strategy == data_parallel(problem.graph, problem.topology));
}

TEST_CASE("a check that is stopped on the way says of how many operators no neighbour is better") {
  Problem problem("lenet");
  const Neighbourhood neighbourhood(problem.graph, problem.topology, problem.space);
  const LocalOptimum optimum =
      local_optimum(problem.graph, problem.topology, problem.kernels, neighbourhood,
                    data_parallel(problem.graph, problem.topology), SimulatorKind::delta, problem.stop);
  CHECK(optimum.proven);
  CHECK(optimum.operators == static_cast<int64_t>(problem.graph.operators.size()));
  constexpr int64_t enough = 6400;
  const LocalOptimum stopped = local_optimum(
      problem.graph, problem.topology, problem.kernels, neighbourhood, optimum.strategy, SimulatorKind::delta,
      problem.stop, [&](int64_t evaluated, Nanoseconds) { problem.stop = problem.stop || evaluated >= enough; });
  CHECK_FALSE(stopped.proven);
  REQUIRE(stopped.evaluated == enough);
  int64_t seen = 0, operators = 0;
  for (OperatorId op = 0; seen < enough; ++op) {
    neighbourhood.for_each(
        op, [&](const Configuration& configuration) { return seen += configuration != optimum.strategy[op], true; });
    operators += seen < enough;
  }
  CHECK(stopped.operators == operators);
  CHECK(operators > 0);
}
