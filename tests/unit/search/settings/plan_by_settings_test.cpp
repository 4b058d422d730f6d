#include "search/settings/plan_by_settings.h"

#include <catch2/catch.hpp>

#include "tests/support/large_model_costs.h"

namespace ff {
namespace {

// Eight devices of so little memory.
GraphAndTopology small_memory(double gigabytes) {
  GraphAndTopology files;
  files.graph = load_graph(FF_SOURCE_DIR "/graphs/gpt2-small.json", 64);
  files.topology = load_topology(FF_SOURCE_DIR "/topologies/dgx-a100-1.json");
  for (DeviceModel& model : files.topology.models) model.memory_bytes = static_cast<int64_t>(gigabytes * 1e9);
  return files;
}

std::optional<PlanBySettings> planned(const GraphAndTopology& files, const DecidedSettings& decided) {
  const std::atomic<bool> no_stop{false};
  AlgorithmSettings settings;
  settings.search.proposals = 100;  // no limit of time
  return plan_by_settings(files, analytic_bf16_adamw(), settings, decided, no_stop);
}

}  // namespace

TEST_CASE("a transformer that exceeds memory otherwise is searched from the best settings") {
  const std::optional<PlanBySettings> plan = planned(small_memory(4), {});
  REQUIRE(plan);
  CHECK((plan->settings.micro_batches > 1 || is_sharded(plan->settings.synchronization) ||
         !plan->settings.recompute.empty() || plan->parallelism.pipeline > 1));
  CHECK_FALSE(plan->large);
  GraphAndTopology files = small_memory(4);
  files.settings = plan->settings;
  Loaded loaded = load(files, analytic_bf16_adamw());
  Evaluator evaluator(loaded.problem());
  const Evaluator::Details details = evaluator.details(plan->strategy, TaskOrder::best);
  CHECK(evaluator.fullness(details.memory_bytes) <= 1);
  const std::atomic<bool> no_stop{false};
  const Prediction others = best_baseline_of(small_memory(4), analytic_bf16_adamw(), {}, {no_stop}).value();
  CHECK(better(Evaluator::prediction(details.timeline.makespan, evaluator.fullness(details.memory_bytes)), others));
}

TEST_CASE("what flags decide stays in the settings that a search starts from") {
  GraphAndTopology files = small_memory(4);
  files.settings.micro_batches = 4;
  CHECK(planned(files, {.micro_batches = true}).value().settings.micro_batches == 4);
  files.settings.micro_batches = 1;
  CHECK_FALSE(is_sharded(planned(files, {.sharding = true}).value().settings.synchronization));
  files.settings.synchronization = Synchronization::sharded_gradients;
  CHECK(planned(files, {.sharding = true}).value().settings.synchronization == Synchronization::sharded_gradients);
  files.settings.synchronization = Synchronization::all_reduce;
  CHECK(planned(files, {.recompute = true}).value().settings.recompute.empty());
  files.settings.recompute = {"*.gelu"};
  CHECK(planned(files, {.recompute = true}).value().settings.recompute == Vector<std::string>{"*.gelu"});
}

TEST_CASE("where nothing fits, a search starts from the settings that need the least memory") {
  const std::optional<PlanBySettings> plan = planned(small_memory(0.1), {});
  REQUIRE(plan);
  CHECK(plan->parallelism.recompute == Recomputation::full);
  CHECK((plan->parallelism.pipeline > 1 || shards_parameters(plan->settings.synchronization)));
}

TEST_CASE("without layers or several devices a search does not start from settings") {
  GraphAndTopology files = small_memory(4);
  files.graph = load_graph(FF_SOURCE_DIR "/graphs/lenet.json");
  CHECK_FALSE(planned(files, {}));
  files = small_memory(80);
  files.topology = load_topology(FF_SOURCE_DIR "/topologies/h100-1.json");
  CHECK_FALSE(planned(files, {}));
}

TEST_CASE("evaluations follow the problem's order") {
  GraphAndTopology files = small_memory(80);
  files.settings.micro_batches = 4;
  Loaded loaded = load(files, analytic_bf16_adamw());
  Problem problem = loaded.problem();
  Parallelism parallelism{.pipeline = 4, .micro_batch = 8};
  const ParallelPlan plan = plan_of(parallelism, files.graph, files.topology);
  REQUIRE(plan.settings.micro_batches == 4);
  Evaluator fifo(problem);
  problem.order = TaskOrder::one_forward_one_backward;
  Evaluator alternating(problem);
  const Evaluator::Details details = fifo.details(plan.strategy, TaskOrder::one_forward_one_backward);
  CHECK(alternating.evaluate(plan.strategy).makespan == details.timeline.makespan);
  CHECK(alternating.estimate(plan.strategy, 1).makespan == details.timeline.makespan);
  CHECK(fifo.evaluate(plan.strategy).makespan == details.makespan_fifo);
  CHECK(details.makespan_fifo != details.timeline.makespan);
}

}  // namespace ff
