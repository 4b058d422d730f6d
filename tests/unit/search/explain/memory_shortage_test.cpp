#include "search/explain/memory_shortage.h"

#include <catch2/catch.hpp>
#include <set>

#include "common/recomputation.h"
#include "search/explain/explain.h"
#include "search/explain/settings_remedies.h"
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
  REQUIRE(remedies.size() >= 2);
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
  CHECK(explanation.json["memory"]["remedies"].size() == remedies.size());
  CHECK_THAT(explanation.text, Catch::Contains(": exceeds device memory by "));
}

namespace {

// As a user would give the flags of a remedy, judged alone.
Prediction with_flags(SearchProblem& problem, const Strategy& plain, const std::string& text) {
  const auto has = [&](const std::string& flag) { return text.find(flag) != std::string::npos; };
  StrategySettings settings;
  if (const size_t at = text.find("--micro-batches "); at != std::string::npos)
    settings.micro_batches = std::stoi(text.substr(at + 16));
  for (const char* stage : {"optimizer", "gradients", "parameters"})
    if (has(std::string("--sharding ") + stage))
      settings.synchronization = with_sharding(Synchronization::all_reduce, stage);
  if (has("--recompute full")) settings.recompute = full_recomputation(problem.graph);
  if (has("--precision bf16")) settings.precision = Precision::bf16;
  const auto whole =
      std::make_shared<const Graph>(with_activation_type(problem.graph, activation_type(settings.precision)));
  const Graph of_one = graph_of_micro_batch(*whole, settings.micro_batches);
  Problem changed{
      of_one, problem.topology, problem.kernels, nullptr, settings, 2, settings.micro_batches > 1 ? whole : nullptr};
  return Evaluator(changed).evaluate(plain);
}

size_t flags_of(const std::string& text) {
  size_t flags = 0;
  for (size_t at = text.find("--"); at != std::string::npos; at = text.find("--", at + 2)) ++flags;
  return flags;
}

}  // namespace

TEST_CASE("settings that make a strategy fit are the fewest that do, and each is what its flags are") {
  const auto with_adam = [](Problem of) {
    of.state_buffers = 2;
    return of;
  };
  SearchProblem unlimited = with_memory("llama-tiny", "dgx-a100-1", 0);
  const Strategy plain = data_parallel(unlimited.graph, unlimited.topology);
  int64_t bytes = Evaluator(with_adam(unlimited.problem)).details(plain).memory_bytes[0];
  std::set<size_t> seen;  // how many settings together
  std::set<std::string> alone;
  for (int round = 0; round < 12; ++round, bytes = bytes * 17 / 20) {
    SearchProblem problem = with_memory("llama-tiny", "dgx-a100-1", bytes);
    const Vector<MemoryRemedy> remedies = settings_remedies(with_adam(problem.problem), plain, 1000);
    for (const MemoryRemedy& remedy : remedies) {
      CAPTURE(bytes, remedy.what);
      seen.insert(flags_of(remedy.what));
      CHECK(flags_of(remedy.what) == flags_of(remedies[0].what));
      if (flags_of(remedy.what) == 1) alone.insert(remedy.what.substr(0, remedy.what.find_first_of(" ")));
      else CHECK(remedies.size() == 1);
      const Prediction judged = with_flags(problem, plain, remedy.what);
      CHECK(judged.feasible());
      CHECK(judged.makespan == remedy.predicted);
      CHECK(judged.fullness == remedy.fullness);
    }
    // None of the single ones fits where several are named.
    if (!remedies.empty() && flags_of(remedies[0].what) > 1)
      for (const char* flag : {"--micro-batches 2", "--sharding optimizer", "--sharding gradients",
                               "--sharding parameters", "--recompute full", "--precision bf16"})
        CHECK(!with_flags(problem, plain, flag).feasible());
  }
  CHECK(seen.contains(1));
  CHECK(seen.contains(2));
  CHECK(alone.size() >= 2);
}

TEST_CASE("where nothing fits, no remedy is named") {
  SearchProblem problem = with_memory("lenet", "p100-1x4", 1000);
  const Strategy plain = data_parallel(problem.graph, problem.topology);
  CHECK(memory_remedies(problem.evaluator, plain, problem.evaluator.details(plain)).empty());
}
