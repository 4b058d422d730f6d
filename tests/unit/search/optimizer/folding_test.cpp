#include "search/optimizer/folding.h"

#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "common/sharding.h"
#include "search/discovery/presets.h"
#include "search/optimizer/alike_ranks.h"
#include "search/optimizer/evaluator.h"
#include "tests/support/cases_of_today.h"
#include "tests/support/large_model_costs.h"
#include "tests/support/random_settings.h"

namespace ff {
namespace {

std::optional<FoldedPlan> folded_plan(const Parallelism& parallelism, const Graph& graph, const Topology& topology) {
  KnownFolds folds(topology);
  return folded(parallelism, graph, folds);
}

// What one device does, and when.
using Work = Vector<std::tuple<Nanoseconds, Nanoseconds, TaskKind, int>>;

struct Simulated {
  Nanoseconds makespan = 0, fifo = 0;
  Vector<int64_t> memory_bytes;
  Vector<Work> work;                               // [device]
  Vector<DeviceId> stand_in;                       // [device]: whose work and memory are its own too
  int64_t transferred_bytes = 0, collectives = 0;  // of edges, of all devices
};

// With the framework's conventions if the settings have one, then in bf16 where the devices have rates for it. `batch`:
// that of all groups.
Simulated simulated(const Graph& whole, const Topology& topology, const ParallelPlan& plan,
                    std::shared_ptr<const Replicas> replicas, const Parallelism& parallelism, int64_t batch,
                    bool one_of_each_group = false) {
  CostOptions costs = analytic_bf16_adamw();
  if (parallelism.framework == "none" || topology.models[0].peak_bf16_tflops == 0) costs.precision = Precision::fp32;
  costs.conventions = conventions_of(parallelism, batch);
  Loaded loaded = load({whole, topology, "", plan.settings, std::move(replicas)}, costs);
  Problem problem = loaded.problem();
  if (one_of_each_group) problem.replicas = with_stand_ins(problem, parallelism, plan.strategy);
  Evaluator evaluator(problem);
  const Evaluator::Details details = evaluator.details(plan.strategy, TaskOrder::one_forward_one_backward);
  Simulated result{details.timeline.makespan, details.makespan_fifo, details.memory_bytes,
                   Vector<Work>(topology.devices.size()), Vector<DeviceId>(topology.devices.size())};
  for (const DeviceId device : topology.devices.indices())
    result.stand_in[device] = problem.replicas ? problem.replicas->stand_in(device) : device;
  for (const int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    const int64_t times = problem.replicas ? problem.replicas->tasks_of(details.tasks, task) : 1;
    result.transferred_bytes += times * details.tasks.transferred_bytes(task);
    if (is_edge_collective(task.kind)) result.collectives += times;
    if (is_compute(task.kind) || task.kind == TaskKind::update)
      result.work[task.device].emplace_back(details.timeline.start[t], details.timeline.end[t], task.kind, task.op);
  }
  for (Work& one : result.work) std::sort(one.begin(), one.end());
  return result;
}

void expect_equal(const Simulated& some, const Simulated& all, DeviceId device, DeviceId of_all) {
  CAPTURE(device, of_all);
  CHECK(some.memory_bytes[some.stand_in[device]] == all.memory_bytes[of_all]);
  CHECK(some.work[some.stand_in[device]] == all.work[of_all]);
}

bool has_stand_ins(const Simulated& simulated) {
  for (const DeviceId device : simulated.stand_in.indices())
    if (simulated.stand_in[device] != device) return true;
  return false;
}

struct Compared {
  bool groups = false, ranks = false;  // what could be folded
};

// Of the settings: folded, compared with the simulation of all devices, task by task: data-parallel groups, and the
// devices of tensor-parallel groups.
Compared folded_as_all(Parallelism settings, const Graph& graph, const Topology& topology, KnownFolds& known) {
  CAPTURE(to_string(settings), topology.name);
  const ParallelPlan plan = [&] {
    try {
      return plan_of(settings, graph, topology);
    } catch (const InputError&) {
      return ParallelPlan();  // heads or layers that they do not divide
    }
  }();
  if (plan.strategy.empty()) return {};
  const Simulated all = simulated(graph, topology, plan, nullptr, settings, graph.batch_size);
  Compared result;
  const auto expect_alike = [&](const Simulated& some, int replicas) {
    CHECK(some.makespan == all.makespan);
    CHECK(some.fifo == all.fifo);
    CHECK(replicas * some.transferred_bytes == all.transferred_bytes);
    CHECK(replicas * some.collectives == all.collectives);
  };
  const Simulated of_ranks = simulated(graph, topology, plan, nullptr, settings, graph.batch_size, true);
  expect_alike(of_ranks, 1);
  result.ranks = has_stand_ins(of_ranks);
  for (const DeviceId device : topology.devices.indices()) expect_equal(of_ranks, all, device, device);
  if (const std::optional<FoldedPlan> found = folded(settings, graph, known)) {
    result.groups = true;
    for (const bool ranks : {false, true}) {
      const Simulated some =
          simulated(found->graph, found->topology, found->plan, found->replicas, settings, graph.batch_size, ranks);
      expect_alike(some, found->replicas->count);
      for (const DeviceId device : found->replicas->devices.indices())
        for (const DeviceId of_all : found->replicas->devices[device]) expect_equal(some, all, device, of_all);
    }
  }
  return result;
}

Compared folded_as_all(const Parallelism& settings, const Graph& graph, const Topology& topology) {
  KnownFolds known(topology);
  return folded_as_all(settings, graph, topology, known);
}

struct Folded {
  int plans = 0, of_several_stages = 0, of_context = 0, of_ranks = 0;
};

// Compares random settings, from a case of today on, until as many as in `least` could be folded.
void compare_random_settings(const Graph& graph, const Vector<std::string>& topologies, bool has_experts,
                             const Folded& least) {
  Folded found;
  const auto enough = [&] {
    return found.plans >= least.plans && found.of_several_stages >= least.of_several_stages &&
           found.of_context >= least.of_context && found.of_ranks >= least.of_ranks;
  };
  std::map<std::pair<std::string, bool>, KnownFolds> known;  // by topology, and whether it has rates of fp8
  constexpr uint32_t cases = 1000;
  const uint32_t first = first_case_of_today(cases);
  for (uint32_t seed = first; seed < first + cases && !enough(); ++seed) {
    CAPTURE(seed);
    RandomSource random(seed);
    Topology topology = committed_topology(topologies[random.between(0, topologies.count() - 1)]);
    std::optional<Parallelism> settings = random_settings(random, graph, topology.devices.count(), has_experts);
    if (!settings) continue;
    const bool with_fp8 =
        settings->framework == "megatron" && topology.models[0].peak_bf16_tflops > 0 && random.between(0, 1) == 1;
    if (with_fp8) {
      for (DeviceModel& model : topology.models) model.efficiency.products = {{1}, {1}, {{1}}, 1, 2};
      settings->fp8 = true;
      settings->fp8_weights = random.between(0, 1) == 1;
    }
    KnownFolds& of_topology = known.try_emplace({topology.name, with_fp8}, topology).first->second;
    const Compared compared = folded_as_all(*settings, graph, topology, of_topology);
    if (compared.ranks) ++found.of_ranks;
    if (!compared.groups) continue;
    ++found.plans;
    if (settings->pipeline > 1) ++found.of_several_stages;
    if (settings->context > 1) ++found.of_context;
  }
  CHECK(found.of_ranks >= least.of_ranks);
  CHECK(found.plans >= least.plans);
  CHECK(found.of_several_stages >= least.of_several_stages);
  CHECK(found.of_context >= least.of_context);
}

}  // namespace

TEST_CASE("folded plans take the times and the memory of the simulation of all devices") {
  compare_random_settings(tiny_transformer(32),
                          {"dgx-a100-2", "dgx-h100-2", "p100-4x4", "p100-2x4", "dgx-a100-1", "k80-2x4"}, false,
                          {.plans = 24, .of_several_stages = 8, .of_context = 8, .of_ranks = 12});
}

TEST_CASE("folded plans whose groups split experts take the times and the memory of the simulation of all devices") {
  compare_random_settings(tiny_mixture(64), {"dgx-a100-2", "dgx-h100-2", "p100-4x4"}, true,
                          {.plans = 6, .of_several_stages = 2, .of_context = 0, .of_ranks = 6});
}

TEST_CASE("folded plans on 64 devices, and on 256, take the times of the simulation of all") {
  const Graph of_64 = tiny_transformer(128);
  int fewer = 0, of_several_stages = 0;
  for (uint32_t seed = 0; seed < 300 && (fewer < 6 || of_several_stages < 2); ++seed) {
    CAPTURE(seed);
    RandomSource random(seed);
    const char* const names[] = {"dgx-a100-8", "dgx-h100-8", "p100-16x4"};
    const Topology topology = committed_topology(names[random.between(0, 2)]);
    const std::optional<Parallelism> settings = random_settings(random, of_64, topology.devices.count());
    if (!settings || !folded_as_all(*settings, of_64, topology).groups) continue;
    ++fewer;
    if (settings->pipeline > 1) ++of_several_stages;
  }
  CHECK(fewer >= 6);
  CHECK(of_several_stages >= 2);
  const Json preset = discovery::topology_of_preset({"dgx-a100-80gb", 32});
  const Topology topology = parse_topology(JsonPlace(std::make_shared<Json>(preset), "preset"));
  REQUIRE(topology.devices.size() == 256);
  const Graph of_256 = tiny_transformer(256);
  CHECK(folded_as_all({.tensor = 2,
                       .pipeline = 2,
                       .data = 64,
                       .micro_batch = 1,
                       .synchronization = Synchronization::sharded_optimizer},
                      of_256, topology)
            .groups);
  for (const Synchronization synchronization : {Synchronization::all_reduce, Synchronization::sharded_optimizer}) {
    const Compared compared =
        folded_as_all({.tensor = 4, .pipeline = 2, .data = 32, .micro_batch = 1, .synchronization = synchronization},
                      of_256, topology);
    CHECK(compared.groups);
    CHECK(compared.ranks);
  }
}

TEST_CASE("plans whose groups meet elsewhere than in parameters are not folded") {
  const Graph graph = tiny_transformer(32);
  const Topology topology = committed_topology("dgx-a100-2");
  Parallelism one_group{.tensor = 2, .pipeline = 1, .chunks = 1, .data = 8, .micro_batch = 4};
  CHECK(folded_plan(one_group, graph, topology));
  one_group.synchronization = Synchronization::parameter_server;
  CHECK_FALSE(folded_plan(one_group, graph, topology));
  // Groups that do not fall into sets that split the experts: plan_of says so.
  for (const int expert : {3, 16})
    CHECK_FALSE(folded_plan({.tensor = 2, .data = 8, .micro_batch = 4, .expert = expert}, tiny_mixture(32), topology));
  // Two stages of groups that share their node's one link to the network.
  Parallelism stages{.tensor = 1, .pipeline = 2, .chunks = 1, .data = 8, .micro_batch = 4};
  const std::optional<FoldedPlan> found = folded_plan(stages, graph, committed_topology("p100-4x4"));
  if (found) CHECK(found->replicas->count < 8);
}

}  // namespace ff
