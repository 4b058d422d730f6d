#include "search/explain/decisions.h"

#include <catch2/catch.hpp>

#include "search/explain/explain.h"
#include "tests/support/message_of.h"
#include "tests/support/search_problem.h"

using namespace ff;

TEST_CASE("what undoing a decision costs is what a full simulation of that strategy says") {
  for (const auto& [graph, topology] : {std::pair{"alexnet", "p100-4x4"}, std::pair{"rnnlm-2step", "k80-2x4"}}) {
    SearchProblem problem(graph, topology);
    RandomStream random(11, 0);
    const Strategy plain = data_parallel(problem.graph, problem.topology);
    for (int round = 0; round < 5; ++round) {
      const Strategy strategy = problem.space.random_strategy(random);
      const Nanoseconds makespan = problem.evaluator.evaluate(strategy).makespan;
      const Vector<Effect> undone = effects(problem.evaluator, strategy, plain, false);
      REQUIRE(!undone.empty());
      Nanoseconds before = undone[0].change;
      Strategy all = strategy;
      for (const Effect& effect : undone) {
        const Strategy changed = with_decision(strategy, effect.decision);
        CHECK(effect.predicted == Evaluator(problem.problem).evaluate(changed).makespan);
        CHECK(effect.change == effect.predicted - makespan);
        CHECK(effect.change <= before);  // the greatest first
        before = effect.change;
        all = with_decision(all, effect.decision);
      }
      CHECK(all == plain);
    }
  }
}

TEST_CASE("operators whose names differ in numbers alone are one decision while their configurations agree") {
  SearchProblem problem("alexnet");
  const Strategy plain = data_parallel(problem.graph, problem.topology);
  Strategy strategy = plain;
  Vector<OperatorId> convolutions;
  for (const OperatorId op : problem.graph.operator_ids())
    if (problem.graph.operators[op].name.starts_with("conv")) convolutions.push_back(op);
  REQUIRE(convolutions.size() == 5);
  for (const OperatorId op : convolutions) strategy[op] = single_device(problem.graph, 0)[op];
  strategy[convolutions[3]] = single_device(problem.graph, 1)[convolutions[3]];
  const Vector<Decision> decisions = differences(problem.graph, strategy, plain);
  REQUIRE(decisions.size() == 2);
  CHECK(decisions[0].name == "conv[1-3,5]");
  CHECK(decisions[1].name == "conv4");
  CHECK(configuration_text(problem.graph, convolutions[3], decisions[1].from) == "whole on device 1");
  CHECK(configuration_text(problem.graph, convolutions[3], decisions[1].to) == "sample 4 on devices 0-3");
}

TEST_CASE("a difference that matters more comes first, whichever way it goes, and equal strategies have none") {
  SearchProblem problem("alexnet");
  RandomStream random(5, 0);
  const Strategy a = problem.space.random_strategy(random), b = problem.space.random_strategy(random);
  const Json json = explain_difference(problem.problem, a, b, 3).json;
  double before = 1e300;
  for (const Json& difference : json["differences"]) {
    CHECK(std::abs(difference["change_us"].get<double>()) <= before);
    before = std::abs(difference["change_us"].get<double>());
  }
  CHECK(explain_difference(problem.problem, a, a, 3).text.ends_with("\nno operator differs\n"));
}

TEST_CASE("strategies of different graphs, numbers of devices or micro-batches are not compared") {
  const auto file = [](const std::string& graph, const std::string& topology, int64_t batch = 0) {
    SearchProblem problem(load_graph(FF_SOURCE_DIR "/graphs/" + graph + ".json", batch),
                          load_topology(FF_SOURCE_DIR "/topologies/" + topology + ".json"));
    return StrategyFile{problem.graph, problem.topology, data_parallel(problem.graph, problem.topology), {}, {}};
  };
  const StrategyFile lenet = file("lenet", "p100-1x4");
  CHECK(message_of<InputError>([&] { expect_comparable("a.json", lenet, "b.json", file("alexnet", "p100-1x4")); }) ==
        "b.json: is for another graph than a.json: \"alexnet\", batch 256, instead of \"lenet\", batch 64");
  CHECK(message_of<InputError>([&] { expect_comparable("a.json", lenet, "b.json", file("lenet", "p100-2x4")); }) ==
        "b.json: is for 8 devices, a.json for 4");
  StrategyFile in_pieces = lenet;
  in_pieces.settings.micro_batches = 4;
  CHECK(message_of<InputError>([&] { expect_comparable("a.json", lenet, "b.json", in_pieces); }) ==
        "b.json: micro_batches is 4, that of a.json is 1");
}
