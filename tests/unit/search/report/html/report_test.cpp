#include "search/report/html/report.h"

#include <catch2/catch.hpp>

#include "search/report/html/svg.h"
#include "tests/support/search_problem.h"

using namespace ff;
using namespace ff::html;

TEST_CASE("text of a report is escaped and cut between letters") {
  CHECK(escaped("<a & \"b\" 'c'>\n") == "&lt;a &amp; &quot;b&quot; &#39;c&#39;&gt; ");
  CHECK(clipped("abcdef", 6) == "abcdef");
  CHECK(clipped("abcdefg", 6) == "abc...");
  CHECK(clipped("ab\u00e4defgh", 6) == "ab...");  // not half of the letter
}

TEST_CASE("the time of each device and of the critical path adds up to the iteration") {
  for (const auto& [graph, topology] : {std::pair{"alexnet", "p100-4x4"}, std::pair{"rnnlm-2step", "k80-2x4"}}) {
    SearchProblem problem(graph, topology);
    RandomStream random(1, 0);
    for (int round = 0; round < 5; ++round) {
      const Strategy strategy = problem.space.random_strategy(random);
      const Evaluator::Details details = problem.evaluator.details(strategy);
      const Analysis analysis(problem.evaluator, strategy, details);
      for (const DeviceTime& time :
           device_times(details, analysis.causes, analysis.links, problem.topology.devices.count())) {
        Nanoseconds sum = time.computing + time.others + time.nothing_to_do;
        for (const Nanoseconds link : time.links) sum += link;
        CHECK(sum == analysis.makespan());
      }
      Nanoseconds path = analysis.bound.computing + analysis.bound.updates, exposed = 0;
      for (const Nanoseconds link : analysis.bound.links) {
        path += link;
        exposed += link;
      }
      CHECK(path == analysis.makespan());
      for (const auto& [key, use] :
           communication(problem.evaluator.builder(), details, analysis.pieces, analysis.links).by_kind) {
        CHECK(use.exposed <= use.busy);
        exposed -= use.exposed;
      }
      CHECK(exposed == 0);
    }
  }
}

TEST_CASE("a report says why the alternatives are not taken, also that they do not fit") {
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json");
  const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/alexnet.json");
  SearchProblem unlimited(graph, topology);
  const Strategy plain = data_parallel(graph, topology);
  for (DeviceModel& model : topology.models)
    model.memory_bytes = 2 * unlimited.evaluator.details(plain).memory_bytes[0];
  SearchProblem problem(graph, topology);
  const Evaluator::Details details = problem.evaluator.details(plain);
  const std::string text =
      html_report(Analysis(problem.evaluator, plain, details),
                  {{}, {{"all on one", "", single_device(graph)}, {"nothing", "needs <more>", {}}}});
  CHECK_THAT(text, Catch::Contains("Exceeds device memory: device 0 needs "));
  CHECK_THAT(text, Catch::Contains("Not applicable: needs &lt;more&gt;"));
  CHECK_THAT(text, Catch::Contains("This is data parallelism"));
}
