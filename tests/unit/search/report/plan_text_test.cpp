#include "search/report/plan_text.h"

#include <catch2/catch.hpp>

#include <algorithm>

#include "common/errors.h"
#include "search/explain/decisions.h"
#include "tests/support/message_of.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

// The line without its padding, and with a colon after the operators, as an edit.
std::string edit_of(const std::string& line) {
  const size_t begin = line.find_first_not_of(' '), end = line.find("  ", begin);
  return line.substr(begin, end - begin) + ": " + line.substr(line.find_first_not_of(' ', end));
}

Vector<std::string> lines_of(const std::string& text) {
  Vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

TEST_CASE("a plan's text names layers that are alike once") {
  SearchProblem problem("gpt-7.5b", "dgx-a100-1");
  const Strategy strategy = problem.run("megatron").strategy;
  const Vector<std::string> lines = lines_of(plan_text(problem.graph, strategy, {}));
  CHECK(lines.size() < 40);
  CHECK(problem.graph.operators.size() > 300);
  // Every operator is in one group, and the names of a group stand for its operators.
  Vector<int> times(problem.graph.operators.size(), 0);
  for (const PlanGroup& group : plan_groups(problem.graph, strategy)) {
    for (const OperatorId op : group.operators) ++times[op];
    const Vector<Change> changes = parse_edit(group.name + ": whole on 0", problem.graph, problem.topology, strategy);
    Vector<OperatorId> named;
    for (const Change& change : changes) named.push_back(change.op);
    CHECK(named == group.operators);
  }
  CHECK(std::all_of(times.begin(), times.end(), [](int count) { return count == 1; }));
}

TEST_CASE("the lines of a plan's text, as edits, give the plan again") {
  for (const auto& [graph, topology] :
       {std::pair{"inception_v3", "p100-4x4"}, std::pair{"rnnlm", "k80-2x4"}, std::pair{"lenet", "p100-1x4"}}) {
    SearchProblem problem(graph, topology);
    RandomStream random(3, 0);
    for (const bool searched : {false, true}) {
      const Strategy strategy = searched ? problem.space.random_strategy(random) : problem.run("expert").strategy;
      const Vector<ConfigurationOrigin> origins(strategy.size(), ConfigurationOrigin::searched);
      Strategy again(strategy.size());
      for (const std::string& line : lines_of(plan_text(problem.graph, strategy, origins)))
        for (const Change& change : parse_edit(edit_of(line), problem.graph, problem.topology, strategy, origins)) {
          CHECK(again[change.op].devices.empty());
          again[change.op] = change.configuration;
        }
      CHECK(again == strategy);
    }
  }
}

TEST_CASE("edits name operators by patterns, and dimensions with shares") {
  SearchProblem problem("lenet", "p100-1x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const auto edited = [&](const std::string& edit) {
    return parse_edit(edit, problem.graph, problem.topology, strategy);
  };
  const Vector<Change> changes = edited("fc[1-2], fc3:  sample 2 (3:1) x channel 2  on devices 0-3");
  REQUIRE(changes.size() == 3);
  for (const Change& change : changes)
    CHECK(configuration_text(problem.graph, change.op, change.configuration) ==
          "sample 2 (3:1) x channel 2 on devices 0-3");
  CHECK(edited("conv*: whole on device 3, propagated").size() == 2);
  CHECK(edited("fc1: sample 2 on node0.gpu3, node0.gpu0")[0].configuration.devices == Vector<DeviceId>{3, 0});
  CHECK(edited("fc1: sample 4 on devices node0.*")[0].configuration.devices == Vector<DeviceId>{0, 1, 2, 3});
  CHECK(edited("fc1: sample 3 on node0.gpu[1-2], 0")[0].configuration.devices == Vector<DeviceId>{1, 2, 0});
  CHECK(edited("*: whole on 0").size() == problem.graph.operators.size());
}

TEST_CASE("mistakes in edits name the edit, the operator and the wrong part") {
  SearchProblem problem("lenet", "p100-1x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const auto error = [&](const std::string& edit) {
    return message_of<InputError>([&] { parse_edit(edit, problem.graph, problem.topology, strategy); });
  };
  const std::string form = ": expected OPERATORS: SPLIT on DEVICES, such as";
  CHECK_THAT(error("fc1 sample 4 on 0-3"), Catch::StartsWith("edit \"fc1 sample 4 on 0-3\"" + form));
  CHECK_THAT(error("fc1: sample 4"), Catch::StartsWith("edit \"fc1: sample 4\"" + form));
  CHECK(error("cnv*: whole on 0") ==
        "edit \"cnv*: whole on 0\": in \"cnv*\": no operator's name matches \"cnv*\"; did you mean \"conv1\" or "
        "\"conv2\"?");
  CHECK(error("fc1: whole on node0.gpu9") ==
        "edit \"fc1: whole on node0.gpu9\": in \"on node0.gpu9\": unknown device \"node0.gpu9\"; did you mean "
        "\"node0.gpu0\"?");
  CHECK_THAT(error("fc9: whole on 0"), Catch::Contains("unknown operator \"fc9\"; did you mean \"fc1\"?"));
  CHECK_THAT(error("fc1: chanel 2 on 0-1"),
             Catch::Contains("in \"chanel 2 on 0-1\": unknown parallelizable dimension of fc1 (linear); did you mean "
                             "\"channel\"?"));
  CHECK_THAT(error("fc1: sample 999 on 0-3"),
             Catch::Contains("in \"sample 999 on 0-3\": found 999, but dimension \"sample\" of fc1 has size"));
  CHECK_THAT(error("fc1: sample 4 on 0-2"),
             Catch::Contains("in \"sample 4 on 0-2\": has 3 devices, expected 4: one for each task of fc1"));
  CHECK_THAT(error("fc1: sample 4 on 0-4"), Catch::Contains("device 4 is not there"));
  CHECK_THAT(error("fc1: sample 4 on 0-4"), Catch::Contains("(configuration of fc1)"));
  CHECK_THAT(error("fc1: sample four on 0-3"), Catch::Contains("found \"sample four\", expected a dimension and its "));
  CHECK_THAT(error("fc1: sample 2 (3:x) on 0-1"), Catch::Contains("found \"sample 2 (3:x)\", expected a dimension"));
  CHECK_THAT(error("fc1: sample 2 x sample 2 on 0-3"), Catch::Contains("dimension \"sample\" stands twice"));
  CHECK_THAT(error("fc2 .. conv1: whole on 0"), Catch::Contains("\"fc2\" comes after \"conv1\" in the plan"));
}
