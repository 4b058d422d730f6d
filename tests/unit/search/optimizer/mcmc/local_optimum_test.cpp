#include "search/optimizer/mcmc/local_optimum.h"

#include <catch2/catch.hpp>

#include "tests/support/random_network.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

bool in_space(const SearchSpace& space, OperatorId op, const Configuration& configuration) {
  const Vector<Degrees>& allowed = space.degrees(op);
  return std::find(allowed.begin(), allowed.end(), configuration.degrees) != allowed.end() &&
         configuration.parts() == parts_of(configuration.degrees);
}

}  // namespace

TEST_CASE("a local optimum is one: no neighbour is better by full simulation", "[slow]") {
  RandomSource random(8);
  int improved = 0;
  for (int round = 0; round < 12; ++round) {
    SearchProblem problem(
        random_graph(random),
        load_topology(FF_SOURCE_DIR "/topologies/" + std::string(round % 3 ? "local-cpu-2" : "p100-1x4") + ".json"));
    const int devices = problem.topology.devices.count();
    const Neighbourhood neighbourhood(problem.graph, problem.topology, problem.space);
    CHECK(neighbourhood.text() == "one operator changed: all degrees of the search space, every assignment of devices");
    RandomStream stream(static_cast<uint64_t>(round), 0);
    const Strategy start =
        round % 2 ? data_parallel(problem.graph, problem.topology) : problem.space.random_strategy(stream);
    const LocalOptimum found =
        local_optimum(problem.problem, neighbourhood, start, SimulatorKind::delta, {problem.stop});
    REQUIRE(found.proven);
    improved += found.improvements > 0;
    Evaluator& evaluator = problem.evaluator;
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
    const LocalOptimum again =
        local_optimum(problem.problem, neighbourhood, found.strategy, SimulatorKind::full, {problem.stop});
    REQUIRE(again.improvements == 0);
    REQUIRE(again.evaluated == neighbours);
    REQUIRE(again.strategy == found.strategy);
  }
  CHECK(improved > 5);
}

TEST_CASE("a large neighbourhood says what it holds") {
  SearchProblem problem("lenet", "p100-4x4");
  const Neighbourhood neighbourhood(problem.graph, problem.topology, problem.space);
  CHECK(neighbourhood.text() ==
        "one operator changed: all degrees of the search space, every assignment of devices up to 2 parts, consecutive "
        "devices from every first one beyond");
  int64_t count = 0, expected = 0;
  neighbourhood.for_each(0, [&](const Configuration& configuration) {
    REQUIRE(in_space(problem.space, 0, configuration));
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
  SearchProblem problem("lenet");
  problem.stop = true;
  const LocalOptimum found =
      local_optimum(problem.problem, Neighbourhood(problem.graph, problem.topology, problem.space),
                    data_parallel(problem.graph, problem.topology), SimulatorKind::delta, {problem.stop});
  CHECK_FALSE(found.proven);
  CHECK(found.operators == 0);
  CHECK(found.strategy == data_parallel(problem.graph, problem.topology));
}

TEST_CASE("a check that is stopped on the way says of how many operators no neighbour is better") {
  SearchProblem problem("lenet");
  const Neighbourhood neighbourhood(problem.graph, problem.topology, problem.space);
  const LocalOptimum optimum =
      local_optimum(problem.problem, neighbourhood, data_parallel(problem.graph, problem.topology),
                    SimulatorKind::delta, {problem.stop});
  CHECK(optimum.proven);
  CHECK(optimum.operators == problem.graph.operators.count());
  constexpr int64_t enough = 6400;
  const LocalOptimum stopped = local_optimum(
      problem.problem, neighbourhood, optimum.strategy, SimulatorKind::delta,
      {problem.stop, [&](const SearchProgress& now) { problem.stop = problem.stop || now.proposals >= enough; }});
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
