// Which tasks come before a group's synchronization, whatever the strategy: against the task graphs of random ones.
#include "search/simulator/delta/bounds/synchronization_order.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "common/task_graph/issue_order.h"
#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

namespace {

// All tasks that end before this one is ready.
Vector<uint8_t> ancestors(const Vector<Vector<int>>& predecessors, int task) {
  Vector<uint8_t> found(predecessors.size(), 0);
  Vector<int> left{task};
  while (!left.empty()) {
    const int t = left.back();
    left.pop_back();
    for (int predecessor : predecessors[t])
      if (!found[predecessor]) {
        found[predecessor] = 1;
        left.push_back(predecessor);
      }
  }
  return found;
}

}  // namespace

TEST_CASE("synchronization order: two layers and a loss") {
  // The loss reads whole samples, or its parts by class wait for each other's statistics, so each of them waits for all
  // parts of fc2 that have one of its samples; the parts of fc2 may share the features of a sample: the loss, which
  // reads their sum, waits for what they do between them. A piece of a parameter waits for its layer's backward tasks
  // of every sample. So the layers' forward tasks come before both synchronizations. Not so backward tasks: a part of
  // fc2 waits for the loss's parts with its classes, a part of fc1 for those of fc2 that read its features. (Of the
  // loss's forward tasks it says nothing, which is safe.)
  const SimulationProblem problem = two_layers();
  TaskGraphBuilder builder(problem.graph);
  const SynchronizationOrder order(builder);
  REQUIRE(builder.groups().size() == 2);
  const int fc1 = builder.groups()[0].operators[0] == 0 ? 0 : 1, fc2 = 1 - fc1;
  CHECK(members(order.before(Direction::forward, fc2)) == Vector<OperatorId>{0, 1});
  CHECK(members(order.before(Direction::forward, fc1)) == Vector<OperatorId>{0, 1});
  CHECK(members(order.before(Direction::backward, fc2)).empty());
  CHECK(members(order.before(Direction::backward, fc1)).empty());
}

TEST_CASE("synchronization order: what it says holds in the task graph of any strategy") {
  int relations = 0;
  for (uint32_t number = 0; number < 150; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    TaskGraphBuilder builder(problem.graph);
    const SynchronizationOrder order(builder);
    for (int repetition = 0; repetition < 3; ++repetition) {
      const TaskGraph tasks = builder.build(problem.strategy(random));
      const int count = static_cast<int>(tasks.tasks.size());
      Vector<Vector<int>> predecessors(count);
      for (int t = 0; t < count; ++t)
        for (int32_t s = tasks.successor_begin[t]; s < tasks.successor_begin[t + 1]; ++s)
          predecessors[tasks.successors[s]].push_back(t);
      for (int t = 0; t < count; ++t) {
        // The first task of a unit: its collective, or its only update.
        const TaskKind kind = tasks.tasks[t].kind;
        if (kind != TaskKind::synchronization && kind != TaskKind::update) continue;
        const SynchronizationUnit& unit = tasks.units[tasks.tasks[t].unit];
        if ((kind == TaskKind::synchronization) != (unit.holders.size() > 1)) continue;
        const Vector<uint8_t> before = ancestors(predecessors, t);
        for (int other = 0; other < count; ++other) {
          const Task& task = tasks.tasks[other];
          if (!is_compute(task.kind) || !contains(order.before(direction_of(task.kind), unit.group), task.op)) continue;
          INFO(task_name(builder, tasks, other) << " before " << task_name(builder, tasks, t));
          REQUIRE(before[other]);
          ++relations;
        }
      }
    }
  }
  CHECK(relations > 10000);
}
