// What certainly comes after a joint reduction is no more than what full simulation has after it.
#include "search/simulator/delta/bounds/spans.h"

#include <catch2/catch.hpp>

#include "search/simulator/delta/bounds/strategy_totals.h"
#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

namespace {

// All bounds of the spans: of all, and after each operator's reductions.
Vector<Nanoseconds> bounds_of(StrategyTotals& totals, const StrategyState& state) {
  Vector<Nanoseconds> bounds{totals.spans().of_all(totals.paths())};
  for (OperatorId op = 0; op < state.count(); ++op)
    for (Direction direction : directions)
      bounds.push_back(totals.spans().behind_reduction(direction, op, totals.paths()));
  return bounds;
}

// How many reductions there are, of which a span says something. None has less after it than it says.
int check_bounds(StrategyTotals& totals, SimulationProblem& problem, const Strategy& strategy) {
  const Evaluator::Details details = problem.judge.details(strategy);
  CHECK(totals.spans().of_all(totals.paths()) <= details.makespan_fifo);
  int said = 0;
  for (const int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    if (!is_reduction(task.kind) || !totals.paths().has_joint_reduction[direction_of(task.kind)][task.op]) continue;
    const Nanoseconds behind = totals.spans().behind_reduction(direction_of(task.kind), task.op, totals.paths());
    CHECK(details.timeline.end[t] + behind <= details.timeline.makespan);
    said += behind > 0;
  }
  return said;
}

}  // namespace

TEST_CASE("spans: after a joint reduction is no less work than they say, on random networks") {
  int said = 0, changed_bounds = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    INFO("seed " << seed);
    RandomSource random(seed);
    SimulationProblem problem(random);
    StrategyState state(problem.judge.builder(), problem.topology, problem.costs);
    StrategyTotals totals(state);
    Strategy strategy = problem.strategy(random);
    state.reset(strategy);
    totals.reset();
    said += check_bounds(totals, problem, strategy);
    for (int number = 0; number < 4; ++number) {
      const OperatorId op = static_cast<OperatorId>(random.between(0, state.count() - 1));
      const Change change{op, problem.strategy(random)[op]};
      const Vector<Nanoseconds> before = bounds_of(totals, state);
      state.change({change});
      totals.change();
      strategy[op] = change.configuration;
      said += check_bounds(totals, problem, strategy);
      changed_bounds += bounds_of(totals, state) != before;
      if (number % 2 == 0) {
        totals.accept();
        continue;
      }
      totals.undo();
      state.undo();
      strategy = state.strategy;
      CHECK(bounds_of(totals, state) == before);
    }
  }
  CHECK(said > 100);
  CHECK(changed_bounds > 100);
}
