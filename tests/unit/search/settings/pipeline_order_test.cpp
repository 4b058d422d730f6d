#include <catch2/catch.hpp>
#include <set>

#include "common/micro_batches.h"
#include "common/task_graph/issue_order.h"
#include "tests/support/cases_of_today.h"
#include "tests/support/random_settings.h"

namespace ff {
namespace {

struct Pipeline {
  Graph graph;
  Topology topology;
  ParallelPlan plan;
  PipelineSchedule schedule;
};

// Of random settings; nothing where they are not possible, or no pipeline.
std::optional<Pipeline> random_pipeline(RandomSource& random) {
  constexpr const char* topologies[] = {"dgx-a100-1", "p100-2x4", "p100-4x4"};
  Topology topology = committed_topology(topologies[random.between(0, 2)]);
  const int64_t kind = random.between(0, 2);
  const bool has_experts = kind == 0;
  Graph graph = has_experts ? tiny_mixture(32) : kind == 1 ? tiny_tied_transformer(32) : tiny_transformer(32);
  std::optional<Parallelism> settings = random_settings(random, graph, topology.devices.count(), has_experts);
  if (!settings) return std::nullopt;
  if (settings->pipeline == 2 && random.between(0, 1) == 1) settings->chunks = 2, settings->layers.clear();
  ParallelPlan plan;
  try {
    plan = plan_of(*settings, graph, topology);
  } catch (const InputError&) {
    return std::nullopt;
  }
  CAPTURE(to_string(*settings));
  std::optional<PipelineSchedule> schedule =
      PipelineSchedule::of(graph, plan.strategy, plan.settings.micro_batches, topology.devices.count());
  const int micro_batches = plan.settings.micro_batches;
  if (settings->pipeline > 1)
    CHECK(schedule.has_value() ==
          (micro_batches > 1 && (settings->chunks == 1 || micro_batches % settings->pipeline == 0)));
  if (!schedule) return std::nullopt;
  return Pipeline{std::move(graph), std::move(topology), std::move(plan), *std::move(schedule)};
}

Vector<TaskKey> keys_of(const TaskGraph& tasks, const Vector<int>& order) {
  Vector<TaskKey> keys;
  for (const int task : order) keys.push_back(tasks.tasks[task].key);
  return keys;
}

}  // namespace

// Each rank of ffexec derives its own part of it.
TEST_CASE("the order of a pipeline respects the task graph, and that of each device is the order of all") {
  const uint32_t first = first_case_of_today(1000);
  int compared = 0;
  std::set<Synchronization> seen;
  for (uint32_t seed = first; seed < first + 1000 && (compared < 24 || seen.size() < 4); ++seed) {
    CAPTURE(seed);
    RandomSource random(seed);
    const std::optional<Pipeline> pipeline = random_pipeline(random);
    if (!pipeline) continue;
    const auto& [graph, topology, plan, schedule] = *pipeline;
    TaskGraphBuilder builder(graph, plan.settings);
    const Strategy strategy = expanded(graph, plan.strategy, plan.settings.micro_batches);
    const TaskGraph all = builder.build(strategy);
    for (const TransferBuffers buffers : {TransferBuffers::preallocated, TransferBuffers::on_demand}) {
      const Vector<int> order = pipeline_issue_order(builder, all, strategy, schedule, buffers);
      REQUIRE(is_allowed(all, order));
      const Vector<TaskKey> keys = keys_of(all, order);
      for (const DeviceId device : topology.devices.indices()) {
        const TaskGraph own = builder.build(strategy, device);
        const Vector<TaskKey> own_keys = keys_of(own, pipeline_issue_order(builder, own, strategy, schedule, buffers));
        const std::set<TaskKey> there(own_keys.begin(), own_keys.end());
        Vector<TaskKey> expected;
        for (const TaskKey key : keys)
          if (there.contains(key)) expected.push_back(key);
        REQUIRE(own_keys == expected);
      }
    }
    ++compared;
    seen.insert(plan.settings.synchronization);
  }
  CHECK(compared >= 24);
  CHECK(seen.size() == 4);
}

}  // namespace ff
