// A changed state is that of the changed strategy, and as before when the change is taken back.
#include "search/simulator/delta/strategy_state.h"

#include <catch2/catch.hpp>

#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

namespace {

// All numbers that a simulation reads.
Vector<int64_t> numbers_of(const StrategyState& state) {
  Vector<int64_t> numbers;
  const auto add = [&](const auto& values) { numbers.insert(numbers.end(), values.begin(), values.end()); };
  for (OperatorId op : state.operators.indices()) {
    add(state.operators[op].devices);
    for (Direction direction : directions) {
      add(state.operators[op].kernel[direction]);
      add(state.tasks[op].statistics[direction]);
      for (const PartTasks& part : state.tasks[op].parts)
        add(Vector<int64_t>{part.duration[direction], part.waits[direction], part.device});
    }
  }
  for (const EdgeState& edge : state.edges) {
    add(edge.copies.assembled);
    add(edge.copies.packed);
    numbers.push_back(edge.collectives.count());
    for (const auto& cost : edge.collectives) add(Vector<int64_t>{cost[Direction::forward].duration});
  }
  for (const GroupState& group : state.groups)
    for (const UnitState& unit : group.units) {
      add(Vector<int64_t>{unit.number, unit.owner, unit.bytes, unit.waits, unit.collective.duration});
      add(unit.holders);
      add(unit.update);
    }
  add(state.parts_on);
  return numbers;
}

}  // namespace

TEST_CASE("a changed state is that of the changed strategy, and as before when undone") {
  int different = 0;
  for (uint32_t number = 0; number < 200; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    const Strategy strategy = problem.strategy(random), other = problem.strategy(random);
    StrategyState state(problem.judge.builder(), problem.topology, problem.costs),
        fresh(problem.judge.builder(), problem.topology, problem.costs);
    state.reset(strategy);
    const Vector<int64_t> before = numbers_of(state);
    const OperatorId op = static_cast<OperatorId>(random.between(0, strategy.count() - 1));
    Strategy changed = strategy;
    changed[op] = other[op];
    state.change({{op, other[op]}});
    fresh.reset(changed);
    const Vector<int64_t> after = numbers_of(state);
    CHECK(after == numbers_of(fresh));
    different += after != before;
    state.undo();
    CHECK(numbers_of(state) == before);
  }
  CHECK(different > 100);
}
