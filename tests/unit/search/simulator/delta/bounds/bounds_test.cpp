// Bounds: what they know follows the strategy's changes, and none exceeds what full simulation gives.
#include "search/simulator/delta/bounds/bounds.h"

#include <catch2/catch.hpp>

#include "search/simulator/delta/known_timeline.h"
#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

namespace {

// A strategy's state with its bounds; of the timeline nothing is known.
struct Bounded {
  explicit Bounded(SimulationProblem& problem)
      : state(problem.judge.builder(), problem.topology, problem.costs), bounds(state), timeline(state, layout) {}
  void reset(const Strategy& strategy) {
    state.reset(strategy);
    bounds.reset();
    layout.lay_out(state);
    timeline.clear();
  }
  bool exceed_before_building(const Change& change, Nanoseconds limit) {
    return bounds.exceed_before_building(change, {timeline}, limit) != Bound::none;
  }

  bool exceed_before_events(Nanoseconds limit) const { return bounds.exceed_before_events(limit) != Bound::none; }

  StrategyState state;
  Bounds bounds;
  SlotLayout layout;
  KnownTimeline timeline;
};

// The largest limit that the bound exceeds, plus 1: the bound.
template <typename Exceeds>
Nanoseconds bound_of(Nanoseconds makespan, const Exceeds& exceeds) {
  Nanoseconds low = 0, high = 2 * makespan;
  while (low < high) {
    const Nanoseconds middle = low + (high - low) / 2;
    if (exceeds(middle)) low = middle + 1;
    else high = middle;
  }
  return low;
}

bool equal(const Vector<DeviceWork>& a, const Vector<DeviceWork>& b) {
  for (size_t device = 0; device < a.size(); ++device)
    if (a[device].all != b[device].all) return false;
  return a.size() == b.size();
}

Nanoseconds longest_work(const StrategyState& state, const Spans::Span& span) {
  Vector<Nanoseconds> work(state.topology.devices.size(), 0);
  for (OperatorId op = 0; op < state.count(); ++op)
    for (Direction direction : directions)
      for (const bool statistics : {false, true}) {
        if (std::find(span.stages.begin(), span.stages.end(), stage_of(direction, op, statistics)) == span.stages.end())
          continue;
        const OperatorTasks& tasks = state.tasks[op];
        for (int part : tasks.parts.indices()) {
          if (!statistics) work[tasks.parts[part].device] += tasks.parts[part].duration[direction];
          else if (!tasks.statistics[direction].empty())
            work[tasks.parts[part].device] += tasks.statistics[direction][part];
        }
      }
  return *std::max_element(work.begin(), work.end());
}

}  // namespace

TEST_CASE("bounds: the example of docs/simulator.md") {
  // fc1, fc2 and the loss on d0, where every task takes 10 us. Before building: six kernels on d0, and an update after
  // the last of them: 70 us. Before events, by d0's work, six kernels and two updates: 80 us, the makespan.
  SimulationProblem problem = two_layers();
  Bounded bounded(problem);
  bounded.reset({{{1, 1, 1}, {0}}, {{1, 1, 1}, {1}}, {{1, 1}, {0}}});
  const Change change{1, {{1, 1, 1}, {0}}};
  CHECK(bounded.exceed_before_building(change, 69'999));
  CHECK_FALSE(bounded.exceed_before_building(change, 70'000));
  bounded.state.change({change});
  bounded.bounds.change();
  CHECK(bounded.exceed_before_events(79'999));
  CHECK_FALSE(bounded.exceed_before_events(80'000));
  CHECK(problem.judge.evaluate(bounded.state.strategy).makespan == 80'000);
  // Back on d1: 50 us on d0.
  bounded.bounds.undo();
  bounded.state.undo();
  CHECK(bounded.exceed_before_events(49'999));
  CHECK_FALSE(bounded.exceed_before_events(50'000));
}

TEST_CASE("bounds: at an event, by the path after it and by what its device has left") {
  SimulationProblem problem = two_layers();
  Bounded bounded(problem);
  bounded.reset({{{1, 1, 1}, {0}}, {{1, 1, 1}, {0}}, {{1, 1}, {0}}});  // 80 us on d0
  Progress progress;
  progress.done.resize(2);
  // 10 of 80 us done at 15 us: 70 are left.
  CHECK_FALSE(bounded.bounds.exceed_at({0, 10'000, 60'000, 0}, {5'000, 15'000}, 85'000, progress));
  CHECK(progress.done[0].all == 10'000);
  progress.done[0].all = 0;
  CHECK(bounded.bounds.exceed_at({0, 10'000, 60'000, 0}, {5'000, 15'000}, 84'999, progress));
  progress.done[0].all = 0;
  // The path after it is longer.
  CHECK(bounded.bounds.exceed_at({0, 10'000, 71'000, 0}, {5'000, 15'000}, 85'000, progress));
  CHECK_FALSE(Bounds::exceed_at({0, 10}, 20, 30));
  CHECK(Bounds::exceed_at({0, 10}, 20, 29));
}

TEST_CASE("bounds: synchronization comes after the tasks before it") {
  // Both layers on both devices, split by sample: 256 bytes of parameters each. An all-reduce of two holders takes two
  // latencies and 256 bytes either way: 10.256 us, of which it occupies the channel 256 ns.
  SimulationProblem problem = two_layers();
  Bounded bounded(problem);
  bounded.reset({{{2, 1, 1}, {0, 1}}, {{2, 1, 1}, {0, 1}}, {{2, 1}, {0, 1}}});
  Progress progress;
  progress.done.resize(2);
  const UnitState& unit = bounded.state.groups[1].units.at(0);
  CHECK(unit.collective.duration == 10'256);
  // It ends at 20.256 us, and an update follows.
  const TaskTime time{10'000, 20'256};
  CHECK(bounded.bounds.exceed_at(1, unit, 10'000, time, 30'255, progress));
  CHECK_FALSE(bounded.bounds.exceed_at(1, unit, 10'000, time, 30'256, progress));
}

TEST_CASE("bounds: none exceeds the makespan, and what they are made of follows changes") {
  int64_t proposals = 0, close_before_building = 0, close_before_events = 0, with_tails = 0;
  for (uint32_t number = 0; number < 200; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    Bounded bounded(problem);
    Strategy strategy = problem.strategy(random);
    bounded.reset(strategy);
    StrategyState anew(problem.judge.builder(), problem.topology, problem.costs);
    StrategyTotals followed(bounded.state), total(anew);
    followed.reset();
    for (int change_number = 0; change_number < 15; ++change_number) {
      const OperatorId op = static_cast<OperatorId>(random.between(0, bounded.state.count() - 1));
      const Change change{op, problem.strategy(random)[op]};
      Strategy changed = strategy;
      changed[op] = change.configuration;
      const Nanoseconds makespan = problem.judge.evaluate(changed).makespan;
      const Nanoseconds before_building =
          bound_of(makespan, [&](Nanoseconds limit) { return bounded.exceed_before_building(change, limit); });
      CHECK(before_building <= makespan);
      bounded.state.change({change});
      bounded.bounds.change();
      followed.change();
      const Nanoseconds before_events =
          bound_of(makespan, [&](Nanoseconds limit) { return bounded.exceed_before_events(limit); });
      CHECK(before_events <= makespan);
      ++proposals;
      close_before_building += 2 * before_building > makespan;
      close_before_events += 2 * before_events > makespan;

      anew.reset(changed);
      total.reset();
      CHECK(equal(followed.work(), total.work()));
      CHECK(followed.kernel_work() == total.kernel_work());
      for (Direction direction : directions) {
        CHECK(followed.paths().least[direction] == total.paths().least[direction]);
        CHECK(followed.paths().has_joint_reduction[direction] == total.paths().has_joint_reduction[direction]);
      }
      CHECK(followed.paths().held_up == total.paths().held_up);
      for (const Spans::Span& span : followed.spans().all()) CHECK(span.longest == longest_work(bounded.state, span));
      if (random.between(0, 1)) {
        strategy = changed;
        bounded.bounds.accept();
        followed.accept();
        followed.choose_tails();
        for (size_t i = 0; i < tail_count; ++i) {
          CHECK(followed.tails()[i].same_tasks(total.tails()[i]));
          with_tails += followed.tails()[i].load.holds;
          for (size_t device = 0; device < followed.work().size(); ++device)
            CHECK(followed.work()[device].before_tail[i] == total.work()[device].before_tail[i]);
        }
      } else {
        bounded.bounds.undo();
        followed.undo();
        bounded.state.undo();
      }
    }
  }
  // They say something.
  CHECK(close_before_building > proposals / 4);
  CHECK(close_before_events > proposals / 4);
  CHECK(with_tails > 100);
}
