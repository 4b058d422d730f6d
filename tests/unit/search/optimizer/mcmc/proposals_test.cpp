#include "search/optimizer/mcmc/proposals.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/support/search_problem.h"

using namespace ff;

namespace {

bool in_space(const SearchSpace& space, OperatorId op, const Configuration& configuration, int devices) {
  const auto& allowed = space.degrees(op);
  int64_t parts = 1;
  for (int degree : configuration.degrees) parts *= degree;
  return std::find(allowed.begin(), allowed.end(), configuration.degrees) != allowed.end() &&
         configuration.parts() == parts &&
         std::all_of(configuration.devices.begin(), configuration.devices.end(),
                     [&](DeviceId device) { return device >= 0 && device < devices; });
}

}  // namespace

TEST_CASE("mixed proposals stay within the search space and change groups together") {
  for (const char* name : {"rnnlm-2step", "lenet", "dlrm"}) {
    SearchProblem problem(name);
    const ProposalSource source(ProposalKind::mixed, problem.graph, problem.topology, problem.space);
    RandomStream random(5, 0);
    Strategy strategy = problem.space.random_strategy(random);
    int several = 0;
    for (int i = 0; i < 5000; ++i) {
      Vector<Change> changes = source.draw(strategy, random);
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
  SearchProblem problem("rnnlm-2step");
  const ProposalSource source(ProposalKind::mixed, problem.graph, problem.topology, problem.space);
  Strategy strategy = data_parallel(problem.graph, problem.topology);
  for (Configuration& configuration : strategy) configuration = {Degrees(configuration.degrees.size(), 1), {2}};
  RandomStream random(5, 0);
  int moved = 0, split_from_there = 0;
  for (int i = 0; i < 2000; ++i) {
    Vector<Change> changes = source.draw(strategy, random);
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
  SearchProblem problem("lenet");
  const ProposalSource source(ProposalKind::paper, problem.graph, problem.topology, problem.space);
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  RandomStream random(6, 0), same(6, 0);
  for (int i = 0; i < 200; ++i) {
    Vector<Change> changes = source.draw(strategy, random);
    REQUIRE(changes.size() == 1);
    const OperatorId op = same.below(problem.graph.operators.count());
    REQUIRE(changes[0].op == op);
    REQUIRE(changes[0].configuration == problem.space.random_configuration(op, same));
  }
}
