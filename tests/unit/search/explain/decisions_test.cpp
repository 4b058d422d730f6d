#include "search/explain/decisions.h"

#include <catch2/catch.hpp>

#include "common/sharding.h"
#include "search/explain/explain.h"
#include "search/simulator/delta.h"
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

TEST_CASE("decisions of plans that delta simulation does not know are simulated in full") {
  const StrategySettings reduced_late{.overlaps_reductions = false};
  StrategySettings sharded, recomputed;
  sharded.synchronization = Synchronization::sharded_optimizer;
  recomputed.recompute = {"conv*"};
  for (const StrategySettings& settings : {reduced_late, sharded, recomputed}) {
    CHECK(!delta_simulates(settings));
    SearchProblem problem("alexnet", "p100-4x4");
    Problem own = problem.problem;
    own.settings = settings;
    Evaluator evaluator(own);
    RandomStream random(5, 0);
    const Strategy plain = data_parallel(problem.graph, problem.topology),
                   strategy = problem.space.random_strategy(random);
    const Nanoseconds makespan = evaluator.evaluate(strategy).makespan;
    for (const Effect& effect : effects(evaluator, strategy, plain, false)) {
      const Strategy changed = with_decision(strategy, effect.decision);
      CHECK(effect.predicted == Evaluator(own).evaluate(changed).makespan);
      CHECK(effect.change == effect.predicted - makespan);
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
  const StrategyFile file_a{problem.graph, problem.topology, a, {}, {}},
      file_b{problem.graph, problem.topology, b, {}, {}};
  const Json json = explain_difference(problem.evaluator, file_a, problem.evaluator, file_b, 3).json;
  double before = 1e300;
  for (const Json& difference : json["differences"]) {
    CHECK(std::abs(difference["change_us"].get<double>()) <= before);
    before = std::abs(difference["change_us"].get<double>());
  }
  CHECK(json["settings"].empty());
  CHECK(explain_difference(problem.evaluator, file_a, problem.evaluator, file_a, 3)
            .text.ends_with("\nno operator differs\n"));
}

TEST_CASE("strategies with other settings are compared as they would run, and the settings are listed") {
  SearchProblem problem("lenet");
  StrategyFile a{problem.graph, problem.topology, data_parallel(problem.graph, problem.topology), {}, {}}, b = a;
  b.strategy = single_device(problem.graph, 0);
  b.settings.recompute = {"conv*"};
  set_sharding(b.settings, "fc1=parameters,*=optimizer");
  Problem other = problem.problem;
  other.settings = b.settings;
  Evaluator evaluator(other);
  const Explanation result = explain_difference(problem.evaluator, a, evaluator, b, 3);
  CHECK(result.json["settings"] == Json{"recompute is [\"conv*\"] instead of []",
                                        "sharding is \"fc1=parameters,*=optimizer\" instead of \"none\""});
  CHECK(result.json["a"]["predicted_us"] ==
        static_cast<double>(problem.evaluator.details_of_file(a).timeline.makespan) / 1e3);
  CHECK(result.json["b"]["predicted_us"] == static_cast<double>(evaluator.details_of_file(b).timeline.makespan) / 1e3);
  CHECK(result.json["b"]["memory_bytes"] == evaluator.details_of_file(b).memory_bytes[0]);
  REQUIRE(!result.json["differences"].empty());
  CHECK(!result.json["differences"][0].contains("change_us"));
  CHECK_THAT(result.text, Catch::Matchers::Contains("\nsettings of b that differ\n  recompute is [\"conv*\"]"));
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
  StrategyFile other = lenet;  // settings are compared, not refused
  other.settings.micro_batches = 4;
  const auto change = [](Graph& graph, const auto& set) {
    Json source = *graph.source;
    set(source);
    graph.source = std::make_shared<const Json>(std::move(source));
  };
  change(other.graph, [](Json& source) { source["optimizer"] = {{"type", "adam"}, {"learning_rate", 0.001}}; });
  expect_comparable("a.json", lenet, "b.json", other);
  StrategyFile wider = lenet;
  change(wider.graph, [](Json& source) { source["name"] = "wide"; });
  expect_comparable("a.json", lenet, "b.json", wider);  // a name is no difference
  change(wider.graph, [](Json& source) { source["operators"][1]["attributes"]["kernel"] = {3, 3}; });
  CHECK(message(wider) == begin +
                              "\n  name is \"wide\" instead of \"lenet\""
                              "\n  operator \"" +
                              lenet.graph.operators[1].name +
                              "\".attributes is {\"kernel\":[3,3]} instead of not given");
}
