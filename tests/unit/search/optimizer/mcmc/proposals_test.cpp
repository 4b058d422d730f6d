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
  return std::any_of(allowed.begin(), allowed.end(),
                     [&](const Degrees& degrees) { return degrees.same_degrees(configuration.degrees); }) &&
         configuration.parts() == parts &&
         std::all_of(configuration.devices.begin(), configuration.devices.end(),
                     [&](DeviceId device) { return device >= 0 && device < devices; });
}

// Accepts all of so many proposals, each of which is within the search space and changes an operator once at most. How
// many change several.
int several_in_walk(const SearchProblem& problem, const ProposalSource& source, Strategy strategy, int draws,
                    RandomStream& random) {
  int several = 0;
  for (int i = 0; i < draws; ++i) {
    Vector<Change> changes = source.draw(strategy, random);
    REQUIRE_FALSE(changes.empty());
    for (size_t c = 0; c < changes.size(); ++c) {
      REQUIRE(in_space(problem.space, changes[c].op, changes[c].configuration, 4));
      for (size_t other = 0; other < c; ++other) REQUIRE(changes[other].op != changes[c].op);
    }
    several += changes.size() > 1;
    for (Change& change : changes) strategy[change.op] = std::move(change.configuration);
  }
  return several;
}

}  // namespace

TEST_CASE("mixed proposals stay within the search space and change groups together") {
  for (const char* name : {"rnnlm-2step", "lenet", "dlrm"}) {
    SearchProblem problem(name);
    const ProposalSource source(ProposalKind::mixed, problem.graph, problem.topology, problem.space);
    RandomStream random(5, 0);
    const Strategy strategy = problem.space.random_strategy(random);
    const int several = several_in_walk(problem, source, strategy, 5000, random);
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

TEST_CASE("structured proposals stay within the search space and change layers, ranges of steps and neighbours") {
  for (const char* name : {"rnnlm-2step", "lenet", "dlrm"}) {
    SearchProblem problem(name);
    const ProposalSource source(ProposalKind::structured, problem.graph, problem.topology, problem.space);
    RandomStream random(5, 0);
    const Strategy strategy = data_parallel(problem.graph, problem.topology);
    const int several = several_in_walk(problem, source, strategy, 20000, random);
    CAPTURE(name);
    CHECK(several > 100);
  }
}

TEST_CASE("structured proposals rotate operators together and keep to what is annotated") {
  SearchProblem problem("lenet");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const ProposalSource source(ProposalKind::structured, problem.graph, problem.topology, problem.space);
  RandomStream random(3, 0);
  int rotated = 0;
  for (int i = 0; i < 3000; ++i) {
    const Vector<Change> changes = source.draw(strategy, random);
    const auto by_one = [&](const Change& change) {
      return change.configuration.degrees == strategy[change.op].degrees &&
             change.configuration.devices == Vector<DeviceId>{1, 2, 3, 0};
    };
    rotated += changes.size() == strategy.size() && std::all_of(changes.begin(), changes.end(), by_one);
  }
  CHECK(rotated > 5);
  const Annotations annotations = parse_annotations(parse_json(R"({"format": "ffannotations/1", "annotations": [
        {"operators": "conv1", "split": {"channel": 2}}]})",
                                                               "annotations"),
                                                    problem.graph, problem.topology);
  const SearchSpace space(problem.graph, problem.topology, false, &annotations);
  const ProposalSource annotated(ProposalKind::structured, problem.graph, problem.topology, space);
  Strategy current = keep_annotations(strategy, &annotations, problem.graph, problem.topology);
  for (int i = 0; i < 3000; ++i)
    for (Change& change : annotated.draw(current, random)) {
      REQUIRE(annotations.allow(change.op, change.configuration));
      current[change.op] = std::move(change.configuration);
    }
}

TEST_CASE("where devices are not alike, mixed proposals give parts unequal shares, those of alike operators together") {
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-1x4.json");
  topology.models.push_back(topology.models[0]);
  topology.models[1].peak_tflops /= 3;
  topology.devices[3].model = 1;
  SearchProblem problem(load_graph(FF_SOURCE_DIR "/graphs/lenet.json"), topology);
  SearchSpace space(problem.graph, problem.topology);
  for (const bool allowed : {false, true}) {
    space.set_unequal_shares(allowed);
    const ProposalSource source(ProposalKind::mixed, problem.graph, problem.topology, space);
    Strategy strategy = data_parallel(problem.graph, problem.topology);
    RandomStream random(7, 0);
    int unequal = 0, all_as_fast = 0;
    for (int i = 0; i < 5000; ++i) {
      const Vector<Change> changes = source.draw(strategy, random);
      REQUIRE_FALSE(changes.empty());
      bool as_fast = changes.size() == strategy.size();
      for (const Change& change : changes) {
        const Configuration& configuration = change.configuration;
        REQUIRE(in_space(space, change.op, configuration, 4));
        unequal += configuration.degrees.has_shares();
        as_fast = as_fast && configuration.degrees.shares(0) == Vector<int>{19, 19, 19, 6};  // of 64: 19.2 and 6.4
        const auto& dimensions = problem.graph.operators[change.op].definition->dimensions();
        for (const int d : dimensions.indices()) REQUIRE(configuration.degrees.leave_none_empty(d, dimensions[d].size));
      }
      all_as_fast += as_fast;
    }
    CHECK((unequal > 0) == allowed);
    CHECK((all_as_fast > 20) == allowed);
  }
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
