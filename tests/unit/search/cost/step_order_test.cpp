#include "search/cost/step_order.h"

#include <catch2/catch.hpp>

#include "search/cost/task_costs.h"
#include "search/simulator/full.h"
#include "tests/support/simulation_problem.h"

namespace ff {
namespace {

// fc1 and fc2 on half of the samples each, with sharded state.
class DataParallel {
 public:
  explicit DataParallel(const FrameworkConventions& conventions) {
    kernels.follow(conventions);
    TaskGraphBuilder builder(two.graph, {.synchronization = Synchronization::sharded_optimizer});
    const Strategy strategy = {{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}};
    tasks = builder.build(strategy);
    order_step(tasks, builder, strategy, conventions);
    timeline = simulate_full(tasks, TaskCostModel(two.graph, two.topology, kernels).costs(tasks, strategy));
  }

  Nanoseconds first_start(TaskKind kind) const {
    Nanoseconds first = timeline.makespan;
    for (const int t : tasks.tasks.indices())
      if (tasks.tasks[t].kind == kind) first = std::min(first, timeline.start[t]);
    return first;
  }
  Nanoseconds last_end(TaskKind kind) const {
    Nanoseconds last = 0;
    for (const int t : tasks.tasks.indices())
      if (tasks.tasks[t].kind == kind) last = std::max(last, timeline.end[t]);
    return last;
  }

  const SimulationProblem two = two_layers();
  KernelCosts kernels{two.topology, CostMode::analytic, {}};
  TaskGraph tasks;
  Timeline timeline;
};

}  // namespace

TEST_CASE("by itself each parameter is reduced, updated and gathered as early as it can be") {
  const DataParallel run({});
  CHECK(run.first_start(TaskKind::synchronization) < run.last_end(TaskKind::backward));
  CHECK(run.first_start(TaskKind::update) < run.last_end(TaskKind::synchronization));
  CHECK(run.first_start(TaskKind::parameter_all_gather) > run.last_end(TaskKind::forward));
}

TEST_CASE("a device that clips gradients updates when all of them are reduced") {
  const DataParallel run({.clips_gradients = true});
  CHECK(run.first_start(TaskKind::synchronization) < run.last_end(TaskKind::backward));
  CHECK(run.first_start(TaskKind::update) >= run.last_end(TaskKind::synchronization));
  CHECK(run.last_end(TaskKind::parameter_all_gather) > run.last_end(TaskKind::update));
}

TEST_CASE("weights that are gathered for forward come first, each in front of its operator") {
  const DataParallel run({.gathers_for_forward = true});
  CHECK(run.first_start(TaskKind::parameter_all_gather) == 0);
  CHECK(run.last_end(TaskKind::parameter_all_gather) < run.first_start(TaskKind::backward));
  Nanoseconds gathered[2] = {};
  for (const int t : run.tasks.tasks.indices())
    if (const Task& task = run.tasks.tasks[t]; task.kind == TaskKind::parameter_all_gather)
      gathered[run.tasks.units[task.unit].group] = run.timeline.end[t];
  for (const int t : run.tasks.tasks.indices())
    if (const Task& task = run.tasks.tasks[t]; task.kind == TaskKind::forward && task.op < 2)
      CHECK(run.timeline.start[t] >= gathered[task.op]);
  CHECK(gathered[0] < gathered[1]);
  CHECK(run.first_start(TaskKind::forward) < gathered[1]);  // fc1 computes while fc2's are gathered
}

TEST_CASE("gradients that more devices have alike than are data-parallel are reduced after backward, as one array") {
  for (const int beyond : {1, 2}) {
    CAPTURE(beyond);
    const DataParallel run({.late_reductions_beyond = beyond});
    const bool late = beyond == 1;
    CHECK(late == (run.first_start(TaskKind::synchronization) >= run.last_end(TaskKind::backward)));
    int with_another = 0;
    for (const int t : run.tasks.tasks.indices())
      if (run.tasks.tasks[t].kind == TaskKind::synchronization)
        with_another += run.timeline.end[t] - run.timeline.start[t] == 1;
    CHECK(with_another == (late ? 1 : 0));
  }
}

}  // namespace ff
