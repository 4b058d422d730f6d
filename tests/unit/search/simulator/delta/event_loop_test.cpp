// A simulation alone: the same times as the judge's, and going on from where it was saved.
#include "search/simulator/delta/event_loop.h"

#include <catch2/catch.hpp>
#include <map>

#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

namespace {

constexpr Nanoseconds unlimited = std::numeric_limits<Nanoseconds>::max();

struct Taken {
  TaskKey key;
  Nanoseconds ready, start, end;
  bool operator==(const Taken&) const = default;
};

// Takes what is queued, up to so many tasks.
Vector<Taken> take(EventLoop& loop, size_t most = ~size_t{0}) {
  Vector<Taken> taken;
  while (!loop.queue().empty() && taken.size() < most) {
    const Event event = loop.queue().pop();
    const TaskTime time = loop.take(event, unlimited);
    REQUIRE(time);
    taken.push_back({event.key, event.ready, time.start, time.end});
  }
  return taken;
}

}  // namespace

TEST_CASE("the event loop takes every task when the judge does, and goes on from where it was saved") {
  for (uint32_t number = 0; number < 60; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    const Strategy strategy = problem.strategy(random);
    StrategyState state(problem.judge.builder(), problem.topology, problem.costs);
    Bounds bounds(state);
    SlotLayout layout;
    EventLoop loop(state, bounds, layout);
    state.reset(strategy);
    bounds.reset();
    layout.lay_out(state);
    loop.lay_out();
    loop.start();
    Vector<Taken> all;
    for (const Event& event : EventLoop::initial_events(state)) {
      const TaskTime time = loop.take(event, unlimited);
      all.push_back({event.key, event.ready, time.start, time.end});
    }
    const Vector<Taken> first = take(loop, static_cast<size_t>(random.between(0, 60)));
    LoopState saved;
    loop.save(saved);
    const Vector<Taken> rest = take(loop);
    all.insert(all.end(), first.begin(), first.end());
    all.insert(all.end(), rest.begin(), rest.end());

    const Evaluator::Details details = problem.judge.details(strategy);
    std::map<TaskKey, Taken> judged;
    for (size_t t = 0; t < details.tasks.tasks.size(); ++t)
      judged[details.tasks.tasks[t].key] = {details.tasks.tasks[t].key, details.timeline.ready[t],
                                            details.timeline.start[t], details.timeline.end[t]};
    REQUIRE(all.size() == judged.size());
    for (const Taken& taken : all) CHECK(judged[taken.key] == taken);

    loop.resume(saved);
    CHECK(take(loop) == rest);

    // The same, 1 ms later: as if nothing were known but that all times are shifted.
    loop.resume(saved);
    loop.skip(saved, saved, 1'000'000);
    Vector<Taken> later = rest;
    for (Taken& taken : later)
      for (Nanoseconds* time : {&taken.ready, &taken.start, &taken.end}) *time += 1'000'000;
    CHECK(take(loop) == later);

    LoopState shifted = saved;
    shifted.shift(1'000'000);
    loop.resume(shifted);
    CHECK(take(loop) == later);
  }
}

TEST_CASE("the event loop stops at the limit and not before") {
  int stopped = 0;
  for (uint32_t number = 0; number < 60; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    StrategyState state(problem.judge.builder(), problem.topology, problem.costs);
    Bounds bounds(state);
    SlotLayout layout;
    EventLoop loop(state, bounds, layout);
    const Strategy strategy = problem.strategy(random);
    state.reset(strategy);
    bounds.reset();
    layout.lay_out(state);
    loop.lay_out();
    const Nanoseconds makespan = problem.judge.evaluate(strategy).makespan;
    // Number of tasks that are taken until the limit is certain to be passed.
    const auto taken_within = [&](Nanoseconds limit) {
      int count = 0;
      loop.start();
      for (const Event& event : EventLoop::initial_events(state)) {
        if (!loop.take(event, limit)) return count;
        ++count;
      }
      for (; !loop.queue().empty(); ++count)
        if (!loop.take(loop.queue().pop(), limit)) return count;
      return count;
    };
    const int all = taken_within(unlimited);
    CHECK(taken_within(makespan) == all);
    const int before_limit = taken_within(makespan - 1);
    CHECK(before_limit < all);
    if (before_limit < all - 1) ++stopped;
  }
  CHECK(stopped > 30);  // mostly long before the last task
}
