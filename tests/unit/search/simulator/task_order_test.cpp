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
    for (const ResourceUse& use : details.costs.uses_of(task))
      if (use.resource < devices && !occupies_device(details.tasks.tasks[task].kind)) return true;
  return false;
}

}  // namespace

TEST_CASE("devices run their tasks in any order that the task graph allows, and nothing is below the bound") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    RandomPlan plan(seed);
    const auto& [tasks, costs] = std::tie(plan.details.tasks, plan.details.costs);
    const auto bound = lower_bound(plan.problem.problem, plan.problem.space, plan.problem.evaluator.cost_model());
    const Timeline& fifo = plan.details.timeline;
    for (const Vector<int>& order :
         {random_task_order(tasks, plan.random), tasks_by_start(tasks, schedule_by_critical_path(tasks, costs, fifo)),
          tasks_by_start(tasks, schedule_by_latest_start(tasks, costs, fifo))}) {
      const Timeline timeline = simulate_in_order(tasks, costs, order);
      check_timeline(tasks, costs, timeline, order);
      CHECK(same_on_devices(tasks, tasks_by_start(tasks, timeline), order));
      CHECK(timeline.makespan >= bound);
    }
  }
}

TEST_CASE("the order in which tasks become ready gives the simulation of tasks as they become ready") {
  int compared = 0;
  for (uint64_t seed = 0; seed < 90; ++seed) {
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

// In FIFO order, the output's gradients are put off by those of the recurrent layers, and all are sent at once.
TEST_CASE("by latest start recurrent networks send gradients while they compute others") {
  for (const char* name : {"rnntc", "rnnlm"}) {
    CAPTURE(name);
    SearchProblem problem(load_graph(FF_SOURCE_DIR "/graphs/" + std::string(name) + ".json", 1024),
                          load_topology(FF_SOURCE_DIR "/topologies/p100-4x4.json"));
    const Strategy strategy = data_parallel(problem.graph, problem.topology);
    const Evaluator::Details details = problem.evaluator.details(strategy, TaskOrder::latest_start);
    CHECK_FALSE(details.fifo_order);
    CHECK(static_cast<double>(details.timeline.makespan) < 0.9 * static_cast<double>(details.makespan_fifo));
    CHECK(details.timeline.makespan == problem.evaluator.details(strategy, TaskOrder::best).timeline.makespan);
  }
}

TEST_CASE("a plan in an order of its own is read back with its times") {
  SearchProblem problem("inception_v3", "p100-4x4");
  const Strategy strategy = data_parallel(problem.graph, problem.topology);
  const Evaluator::Details ready = problem.evaluator.details(strategy);
  const Evaluator::Details best = problem.evaluator.details(strategy, TaskOrder::best);
  CHECK(ready.fifo_order);
  REQUIRE_FALSE(best.fifo_order);  // branches, of which one has more after it
  CHECK(best.makespan_fifo == ready.timeline.makespan);
  CHECK(static_cast<double>(best.timeline.makespan) < 0.995 * static_cast<double>(ready.timeline.makespan));
  for (const auto& [details, name] : {std::pair(&ready, "ready"), {&best, "best"}}) {
    CAPTURE(name);
    const StrategyFile file{problem.graph, problem.topology, strategy,
                            issue_order_names(problem.evaluator.builder(), details->tasks, details->order),
                            Json::object()};
    const Evaluator::Details again = problem.evaluator.details_of_file(file);
    CHECK(again.fifo_order == details->fifo_order);
    CHECK(again.timeline.start == details->timeline.start);
    CHECK(again.memory_bytes == details->memory_bytes);
  }
}

TEST_CASE("an order that needs more memory than there is gives way to that of readiness") {
  SearchProblem unlimited("inception_v3", "p100-4x4");
  const Strategy strategy = data_parallel(unlimited.graph, unlimited.topology);
  const Evaluator::Details best = unlimited.evaluator.details(strategy, TaskOrder::best);
  REQUIRE_FALSE(best.fifo_order);
  Topology tight = unlimited.topology;
  for (DeviceModel& model : tight.models)
    model.memory_bytes = *std::max_element(best.memory_bytes.begin(), best.memory_bytes.end()) / 2;
  Evaluator evaluator({unlimited.graph, tight, unlimited.kernels});
  CHECK(evaluator.details(strategy, TaskOrder::best).fifo_order);
  CHECK_FALSE(evaluator.details(strategy, TaskOrder::critical_path).fifo_order);
}

// p, q and r on device 0 take 10 us each; c on device 1 reads p, over a link that keeps both devices busy: 5 us + 128
// bytes at 1 byte a nanosecond. As tasks become ready the transfer is taken after q and r, which were ready at 0:
//   p 0 - 10, q 10 - 20, r 20 - 30, p->c 30 - 35.128, c 35.128 - 45.128, loss 45.128 - 55.128
// In the same order of tasks it is taken when its data is there and the device is free:
//   p 0 - 10, q 10 - 20, p->c 20 - 25.128, r and c 25.128 - 35.128, loss 35.128 - 45.128
TEST_CASE("a plan in the order of readiness is predicted in its order where transfers keep devices busy") {
  SearchProblem problem(parse_graph(parse_json(R"({"format":"ffgraph/1","name":"busy","batch_size":4,
    "inputs":[{"name":"x","shape":["batch",8],"dtype":"f32"},{"name":"label","shape":["batch"],"dtype":"i32"}],
    "operators":[
    {"name":"p","type":"relu","inputs":["x"]},{"name":"q","type":"relu","inputs":["x"]},
    {"name":"r","type":"relu","inputs":["x"]},{"name":"c","type":"relu","inputs":["p"]},
    {"name":"loss","type":"softmax_cross_entropy","inputs":["c","label"]}]})",
                                               "graph")),
                        parse_topology(parse_json(R"({"format":"fftopology/1","name":"t",
    "device_models":{"flat":{"peak_tflops":1e9,"memory_gb_per_s":1e9,"launch_us":10}},
    "devices":[{"name":"d0","kind":"gpu","model":"flat"},{"name":"d1","kind":"gpu","model":"flat"}],
    "links":[{"between":["d0","d1"],"bandwidth_gb_per_s":1,"latency_us":5,"blocks_devices":true}]})",
                                                  "topology")));
  Strategy strategy = single_device(problem.graph);
  strategy[3].devices = strategy[4].devices = {1};
  Evaluator::Details details = problem.evaluator.details(strategy);
  CHECK(details.timeline.makespan == 55128);
  CHECK(details.fifo_order);
  Evaluator::follow_order(details);
  CHECK(details.timeline.makespan == 45128);
  CHECK_FALSE(details.fifo_order);
  CHECK(details.makespan_fifo == 55128);
  const StrategyFile file{problem.graph, problem.topology, strategy,
                          issue_order_names(problem.evaluator.builder(), details.tasks, details.order), Json::object()};
  CHECK(problem.evaluator.details_of_file(file).timeline.start == details.timeline.start);
}
