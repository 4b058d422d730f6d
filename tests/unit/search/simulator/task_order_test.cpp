#include "search/simulator/task_order.h"

#include <catch2/catch.hpp>
#include <map>

#include "common/task_graph/issue_order.h"
#include "search/optimizer/lower_bound.h"
#include "tests/support/random_network.h"
#include "tests/support/random_topology.h"
#include "tests/support/search_problem.h"

using namespace ff;

namespace {

struct RandomPlan {
  explicit RandomPlan(uint64_t seed) : random(seed) {}

  RandomSource random;
  SearchProblem problem{random_graph(random), random_topology(random, 1 + static_cast<int>(random.between(0, 3)))};
  Strategy strategy = random_strategy(problem.graph, problem.topology.devices.count(), random);
  Evaluator::Details details = problem.evaluator.details(strategy);
};

// Does each task start when its data is there, and not before what its device runs before it has ended?
void check_timeline(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline,
                    const Vector<int>& order) {
  Nanoseconds latest = 0;
  for (const int task : tasks.tasks.indices()) {
    REQUIRE(timeline.start[task] >= timeline.ready[task]);
    REQUIRE(timeline.end[task] == timeline.start[task] + costs.duration[task]);
    latest = std::max(latest, timeline.end[task]);
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      REQUIRE(timeline.start[tasks.successors[s]] >= timeline.end[task]);
  }
  CHECK(latest == timeline.makespan);
  std::map<DeviceId, Nanoseconds> free_at;
  for (const int task : order) {
    if (!occupies_device(tasks.tasks[task].kind)) continue;
    Nanoseconds& free = free_at[tasks.tasks[task].device];
    REQUIRE(timeline.start[task] >= free);
    free = timeline.end[task];
  }
}

bool transfers_keep_devices_busy(const Evaluator::Details& details) {
  const int devices = details.memory_bytes.count();
  for (const int task : details.tasks.tasks.indices())
    for (int32_t u = details.costs.use_begin[task]; u < details.costs.use_begin[task + 1]; ++u)
      if (details.costs.uses[u].resource < devices && !occupies_device(details.tasks.tasks[task].kind)) return true;
  return false;
}

}  // namespace

TEST_CASE("devices run their tasks in any order that the task graph allows, and nothing is below the bound") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    RandomPlan plan(seed);
    const auto& [tasks, costs] = std::tie(plan.details.tasks, plan.details.costs);
    const auto bound = lower_bound(plan.problem.problem, plan.problem.space, plan.problem.evaluator.cost_model());
    const Timeline& as_ready = plan.details.timeline;
    for (const Vector<int>& order : {random_task_order(tasks, plan.random),
                                     tasks_by_start(tasks, schedule_by_critical_path(tasks, costs, as_ready)),
                                     tasks_by_start(tasks, schedule_by_latest_start(tasks, costs, as_ready))}) {
      const Timeline timeline = simulate_in_order(tasks, costs, order);
      check_timeline(tasks, costs, timeline, order);
      CHECK(runs_in_order(tasks, timeline, order));
      CHECK(timeline.makespan >= bound);
    }
  }
}

TEST_CASE("the order in which tasks become ready gives the simulation of tasks as they become ready") {
  int compared = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    RandomPlan plan(seed);
    const Evaluator::Details& details = plan.details;
    // Transfers that keep devices busy hold up tasks by when they are taken, not by when they start.
    if (!details.costs.beside.empty() || transfers_keep_devices_busy(details)) continue;
    const Timeline timeline =
        simulate_in_order(details.tasks, details.costs, tasks_by_start(details.tasks, details.timeline));
    CHECK(timeline.start == details.timeline.start);
    CHECK(timeline.ready == details.timeline.ready);
    CHECK(timeline.makespan == details.timeline.makespan);
    ++compared;
  }
  CHECK(compared > 20);
}

// Forwards as ready, the output's gradients are put off by those of the recurrent layers, and all are sent at once.
TEST_CASE("by latest start recurrent networks send gradients while they compute others") {
  for (const char* name : {"rnntc", "rnnlm"}) {
    CAPTURE(name);
    SearchProblem problem(load_graph(FF_SOURCE_DIR "/graphs/" + std::string(name) + ".json", 1024),
                          load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json"));
    const Strategy strategy = data_parallel(problem.graph, problem.topology);
    const Evaluator::Details details = problem.evaluator.details(strategy, TaskOrder::latest_start);
    CHECK_FALSE(details.as_ready);
    CHECK(static_cast<double>(details.timeline.makespan) < 0.9 * static_cast<double>(details.makespan_as_ready));
    CHECK(details.timeline.makespan == problem.evaluator.details(strategy, TaskOrder::best).timeline.makespan);
  }
}

TEST_CASE("a plan in an order of its own is read back with its times") {
  SearchProblem problem("inception_v3", "p100-4x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const Evaluator::Details ready = problem.evaluator.details(strategy);
  const Evaluator::Details best = problem.evaluator.details(strategy, TaskOrder::best);
  CHECK(ready.as_ready);
  REQUIRE_FALSE(best.as_ready);  // branches, of which one has more behind it
  CHECK(best.makespan_as_ready == ready.timeline.makespan);
  CHECK(static_cast<double>(best.timeline.makespan) < 0.995 * static_cast<double>(ready.timeline.makespan));
  for (const auto& [details, name] : {std::pair(&ready, "ready"), {&best, "best"}}) {
    CAPTURE(name);
    const StrategyFile file{problem.graph, problem.topology, strategy,
                            issue_order_names(problem.evaluator.builder(), details->tasks, details->order),
                            Json::object()};
    const Evaluator::Details again = problem.evaluator.details_of_file(file);
    CHECK(again.as_ready == details->as_ready);
    CHECK(again.timeline.start == details->timeline.start);
    CHECK(again.memory_bytes == details->memory_bytes);
  }
}

TEST_CASE("an order that needs more memory than there is gives way to that of readiness") {
  SearchProblem roomy("inception_v3", "p100-4x4");
  const Strategy strategy = data_parallel(roomy.graph, roomy.topology);
  const Evaluator::Details best = roomy.evaluator.details(strategy, TaskOrder::best);
  REQUIRE_FALSE(best.as_ready);
  Topology tight = roomy.topology;
  for (DeviceModel& model : tight.models)
    model.memory_bytes = *std::max_element(best.memory_bytes.begin(), best.memory_bytes.end()) / 2;
  Evaluator evaluator({roomy.graph, tight, roomy.kernels});
  CHECK(evaluator.details(strategy, TaskOrder::best).as_ready);
  CHECK_FALSE(evaluator.details(strategy, TaskOrder::critical_path).as_ready);
}
