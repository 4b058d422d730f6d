#include "search/explain/memory_shortage.h"

#include <catch2/catch.hpp>

#include "search/explain/explain.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

SearchProblem with_memory(const std::string& graph, const std::string& topology_name, int64_t bytes) {
  Topology topology = load_topology(FF_SOURCE_DIR "/topologies/" + topology_name + ".json");
  for (DeviceModel& model : topology.models) model.memory_bytes = bytes;
  return SearchProblem(load_graph(FF_SOURCE_DIR "/graphs/" + graph + ".json"), std::move(topology));
}

StrategyFile file_of(const SearchProblem& problem, Strategy strategy) {
  return {problem.graph, problem.topology, std::move(strategy), {}, {}};
}

}  // namespace

TEST_CASE("what a device keeps at its peak adds up to what it allocates") {
  for (const char* graph : {"alexnet", "rnnlm-2step"}) {
    SearchProblem problem = with_memory(graph, "p100-1x4", 16'000'000'000);
    RandomStream random(2, 0);
    for (int round = 0; round < 5; ++round) {
      const Strategy strategy = problem.space.random_strategy(random);
      const Evaluator::Details details = problem.evaluator.details(strategy);
      const MemoryPeak peak = memory_peak(problem.evaluator, details);
      CHECK(peak.needed == *std::max_element(details.memory_bytes.begin(), details.memory_bytes.end()));
      CHECK(peak.needed == details.memory_bytes[peak.device]);
      int64_t sum = 0, live = 0;
      for (const MemoryItem& item : peak.kinds) sum += item.bytes;
      CHECK(sum == peak.needed);
      for (int kind = 1; kind <= 3; ++kind) live += peak.kinds[kind].bytes;
      for (const MemoryItem& item : peak.largest) live -= item.bytes;
      CHECK(live == 0);
      CHECK(peak.kinds.back().bytes >= 0);
      CHECK_THAT(peak.task, Catch::Contains("/"));
    }
  }
}

TEST_CASE("a remedy fits, and its time is that of a simulation of it") {
  // LeNet whole on each of 4 devices, in data parallelism, needs more than this; its largest layer split does not.
  SearchProblem unlimited("alexnet");
  const Strategy plain = data_parallel(unlimited.graph, unlimited.topology);
  const auto with_momentum = [](Problem of) {
    of.state_buffers = 1;
    return of;
  };
  const int64_t needed = Evaluator(with_momentum(unlimited.problem)).details(plain).memory_bytes[0];
  SearchProblem problem = with_memory("alexnet", "p100-1x4", needed * 8 / 10);
  Evaluator evaluator(with_momentum(problem.problem));
  const Evaluator::Details details = evaluator.details(plain);
  const Vector<MemoryRemedy> remedies = memory_remedies(evaluator, plain, details);
  REQUIRE(remedies.size() == 2);
  for (const MemoryRemedy& remedy : remedies) {
    CHECK(remedy.fullness <= 1);
    CHECK(remedy.fullness > 0);
    CHECK(remedy.predicted > 0);
  }
  CHECK_THAT(remedies[0].what, Catch::StartsWith("fc6: "));
  REQUIRE_THAT(remedies[1].what, Catch::StartsWith("batch ") && Catch::EndsWith(" instead of 256"));
  const int64_t batch = std::stoll(remedies[1].what.substr(6));
  const auto judged = [&](int64_t samples) {
    const Graph graph = load_graph(FF_SOURCE_DIR "/graphs/alexnet.json", samples);
    return Evaluator(with_momentum({graph, problem.topology, problem.kernels})).evaluate(plain);
  };
  CHECK(judged(batch).feasible());
  CHECK(!judged(batch + 1).feasible());
  CHECK(judged(batch).makespan == remedies[1].predicted);
  const Explanation explanation = explain_strategy(with_momentum(problem.problem), file_of(problem, plain), {});
  CHECK(explanation.json["memory"]["fits"] == false);
  CHECK(explanation.json["memory"]["remedies"].size() == 2);
  CHECK_THAT(explanation.text, Catch::Contains(": exceeds device memory by "));
}

TEST_CASE("where nothing fits, no remedy is named") {
  SearchProblem problem = with_memory("lenet", "p100-1x4", 1000);
  const Strategy plain = data_parallel(problem.graph, problem.topology);
  CHECK(memory_remedies(problem.evaluator, plain, problem.evaluator.details(plain)).empty());
}
