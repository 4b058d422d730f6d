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

TEST_CASE("strategies that cannot be compared: the message lists all that differs") {
  const auto file = [](const std::string& graph, const std::string& topology, int64_t batch = 0) {
    SearchProblem problem(load_graph(FF_SOURCE_DIR "/graphs/" + graph + ".json", batch),
                          load_topology(FF_SOURCE_DIR "/topologies/" + topology + ".json"));
    return StrategyFile{problem.graph, problem.topology, data_parallel(problem.graph, problem.topology), {}, {}};
  };
  const StrategyFile lenet = file("lenet", "p100-1x4");
  const auto message = [&](const StrategyFile& b) {
    return message_of<InputError>([&] { expect_comparable("a.json", lenet, "b.json", b); });
  };
  const std::string begin = "b.json: cannot be compared with a.json, because";
  CHECK(message(file("lenet", "p100-2x4")) == begin + "\n  the number of devices is 8 instead of 4");
  CHECK(message(file("lenet", "p100-1x4", 128)) == begin + "\n  batch_size is 128 instead of 64");
  StrategyFile other = lenet;
  other.settings.micro_batches = 4;
  other.settings.recompute = {"conv*"};
  other.settings.synchronization = Synchronization::sharded_gradients;
  CHECK(message(other) == begin +
                              "\n  sharding is \"gradients\" instead of \"none\"; "
                              "ffsearch simulate --sharding writes one as the other"
                              "\n  recompute is [\"conv*\"] instead of []; "
                              "ffsearch simulate --recompute writes one as the other"
                              "\n  micro_batches is 4 instead of 1");
  StrategyFile adam = lenet;
  adam.graph.file["optimizer"] = {{"type", "adam"}, {"learning_rate", 0.001}};
  CHECK(message(adam) == begin +
                             "\n  optimizer is {\"type\":\"adam\",\"learning_rate\":0.001} instead of not given; "
                             "ffsearch simulate --optimizer writes one as the other");
  StrategyFile adamw = adam;
  adamw.graph.file["optimizer"] = {{"type", "adamw"}, {"learning_rate", 0.01}};
  CHECK(message_of<InputError>([&] { expect_comparable("a.json", adam, "b.json", adamw); }) ==
        begin +
            "\n  optimizer.type is \"adamw\" instead of \"adam\""
            "\n  optimizer.learning_rate is 0.01 instead of 0.001; "
            "ffsearch simulate --optimizer writes one as the other");
  StrategyFile wider = lenet;
  wider.graph.file["name"] = "wide";
  expect_comparable("a.json", lenet, "b.json", wider);  // a name is no difference
  wider.graph.file["operators"][1]["attributes"]["kernel"] = {3, 3};
  CHECK(message(wider) == begin +
                              "\n  name is \"wide\" instead of \"lenet\""
                              "\n  operator \"" +
                              lenet.graph.operators[1].name +
                              "\".attributes is {\"kernel\":[3,3]} instead of not given");
}
