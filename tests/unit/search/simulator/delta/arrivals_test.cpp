// Slots and what has arrived in them.
#include "search/simulator/delta/arrivals.h"

#include <catch2/catch.hpp>
#include <set>

#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

TEST_CASE("slots: one for everything that can wait, and each says what it is for") {
  for (uint32_t number = 0; number < 50; ++number) {
    RandomSource random(number);
    SimulationProblem problem(random);
    StrategyState state(problem.judge.builder(), problem.topology, problem.costs);
    state.reset(problem.strategy(random));
    SlotLayout layout;
    layout.lay_out(state);
    std::set<int32_t> taken;
    const auto check = [&](TaskKind kind, int subject, int part) {
      const int32_t slot = layout.slot(kind, subject, part);
      REQUIRE((slot >= 0 && slot < layout.count()));
      CHECK(taken.insert(slot).second);
      const Waiting& waiting = layout.waiting(slot);
      CHECK((waiting.kind == kind && waiting.subject == subject && waiting.part == part));
    };
    for (OperatorId op = 0; op < state.count(); ++op) {
      CHECK(layout.fits(state, op));
      for (Direction direction : directions) {
        for (int part = 0; part < state.operators[op].parts(); ++part) check(compute_kind(direction), op, part);
        for (size_t group = 0; group < state.operators[op].reductions[direction].size(); ++group)
          check(reduction_kind(direction), op, static_cast<int>(group));
      }
    }
    for (size_t g = 0; g < state.groups.size(); ++g)
      for (size_t unit = 0; unit < state.groups[g].units.size(); ++unit)
        check(TaskKind::synchronization, static_cast<int>(g), static_cast<int>(unit));
  }
}

TEST_CASE("slots: of a task's key, for tasks at which a simulation may restart") {
  SimulationProblem problem = two_layers();
  StrategyState state(problem.judge.builder(), problem.topology, problem.costs);
  state.reset({{{1, 1, 1}, {0}}, {{2, 1, 1}, {0, 1}}, {{1, 1}, {0}}});
  SlotLayout layout;
  layout.lay_out(state);
  CHECK(layout.slot(make_task_key(TaskKind::backward, 1, 1, 0)) == layout.slot(TaskKind::backward, 1, 1));
  CHECK(layout.slot(make_task_key(TaskKind::activation, 1, 0, 0)) == -1);
  CHECK(layout.slot(make_task_key(TaskKind::synchronization, 1, 0, 0)) == -1);
  CHECK(layout.slot(make_task_key(TaskKind::update, 1, 0, 0)) == -1);
}

TEST_CASE("arrivals: counted, saved, and loaded where a change has altered for how many a task waits") {
  SimulationProblem problem = two_layers();
  StrategyState state(problem.judge.builder(), problem.topology, problem.costs);
  // fc2 reads all channels of each of its samples: of both parts of fc1, which is split by channel.
  state.reset({{{1, 2, 1}, {0, 1}}, {{1, 1, 1}, {0}}, {{1, 1}, {0}}});
  REQUIRE(state.tasks[1].parts[0].waits[Direction::forward] == 2);
  SlotLayout layout;
  layout.lay_out(state);
  Arrivals arrivals(state, layout);
  arrivals.lay_out();
  const int32_t slot = layout.slot(TaskKind::forward, 1, 0);
  const int32_t other = layout.slot(TaskKind::forward, 0, 0);
  const int32_t two = 2, three = 3;

  CHECK_FALSE(arrivals.arrive(other, three, 1));
  CHECK_FALSE(arrivals.arrive(slot, two, 70));
  CHECK(arrivals.partial_count() == 2);
  CHECK_FALSE(arrivals.arrive(other, three, 9));
  CHECK(arrivals.arrive(other, three, 5));
  CHECK(arrivals.ready(other) == 9);  // the latest end
  CHECK(arrivals.partial_count() == 1);

  Vector<Arrivals::Partial> saved;
  arrivals.save(saved);
  REQUIRE(saved.size() == 1);
  CHECK((saved[0].slot == slot && saved[0].arrived == 1 && saved[0].ready == 70));
  CHECK(arrivals.equal(saved[0], 0, 0));
  CHECK_FALSE(arrivals.equal(saved[0], 0, 1));
  CHECK(arrivals.equal(saved[0], 71, 1));  // both before what is ready next
  CHECK(arrivals.arrive(slot, two, 60));
  CHECK(arrivals.ready(slot) == 70);
  CHECK_FALSE(arrivals.equal(saved[0], 0, 0));

  // fc1 in four parts, one of which has ended.
  state.change({{0, {{1, 4, 1}, {0, 1, 0, 1}}}});
  REQUIRE(state.tasks[1].parts[0].waits[Direction::forward] == 4);
  arrivals.load(saved, 1000);
  CHECK(arrivals.equal(saved[0], 0, 1000));
  const int32_t four = 4;
  CHECK_FALSE(arrivals.arrive(slot, four, 500));
  CHECK_FALSE(arrivals.arrive(slot, four, 600));
  CHECK(arrivals.arrive(slot, four, 700));
  CHECK(arrivals.ready(slot) == 1070);

  arrivals.load(saved, 0);
  arrivals.clear();
  CHECK(arrivals.partial_count() == 0);
  CHECK_FALSE(arrivals.arrive(slot, two, 3));
  CHECK(arrivals.arrive(slot, two, 2));
  CHECK(arrivals.ready(slot) == 3);  // what came before clear() counts no more
}
