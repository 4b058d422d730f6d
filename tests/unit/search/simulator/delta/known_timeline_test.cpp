// The known timeline: its snapshots, and what it knows of places.
#include "search/simulator/delta/known_timeline.h"

#include <catch2/catch.hpp>

#include "tests/support/simulation_problem.h"

using namespace ff;
using namespace ff::delta;

namespace {

constexpr Nanoseconds no_limit = std::numeric_limits<Nanoseconds>::max();

struct Recorded {
  Recorded(SimulationProblem& problem, const Strategy& strategy)
      : state(problem.judge.builder(), problem.topology, problem.costs), bounds(state), loop(state, bounds, layout),
        timeline(state, layout) {
    state.reset(strategy);
    bounds.reset();
    layout.lay_out(state);
    loop.lay_out();
    timeline.clear();
    loop.start();
    timeline.begin_recording(0);
    for (const Event& event : EventLoop::initial_events(state)) take(event);
    while (!loop.queue().empty()) {
      timeline.before(loop.queue().front(), loop);
      take(loop.queue().pop(), false);
    }
    timeline.adopt();
  }
  void take(const Event& event, bool may_snapshot = true) {
    if (may_snapshot) timeline.before(event, loop);
    const TaskTime time = loop.take(event, no_limit);
    loop.end_at_least(time.end);
    timeline.record({event.key, event.ready, time.start, time.end});
  }

  StrategyState state;
  Bounds bounds;
  SlotLayout layout;
  EventLoop loop;
  KnownTimeline timeline;
};

}  // namespace

TEST_CASE("snapshots: from each of them the rest of the timeline follows") {
  size_t snapshots = 0;
  for (uint32_t number = 0; number < 60; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    Recorded recorded(problem, problem.strategy(random));
    const auto& records = recorded.timeline.records();
    const auto& taken = recorded.timeline.snapshots();
    REQUIRE(taken.size() > 0);
    CHECK(taken[0].position == 0);
    for (size_t i = 0; i < taken.size(); ++i) {
      const Snapshot& snapshot = taken[i];
      if (i > 0) CHECK(snapshot.position >= taken[i - 1].position + 32);
      CHECK((snapshot.next == records[snapshot.position].key && snapshot.ready == records[snapshot.position].ready));
      CHECK(recorded.timeline.snapshots_until(snapshot.position) == i + 1);
      if (snapshot.position > 0) CHECK(recorded.timeline.snapshots_until(snapshot.position - 1) == i);
      Nanoseconds before = 0, until_next = 0, behind = 0;
      for (size_t r = 0; r < records.size(); ++r) {
        if (r < snapshot.position) before = std::max(before, records[r].end);
        else behind = std::max(behind, records[r].end);
        if (r >= snapshot.position && (i + 1 == taken.size() || r < taken[i + 1].position))
          until_next = std::max(until_next, records[r].end);
      }
      CHECK(snapshot.latest_end == before);
      CHECK(snapshot.latest_until_next == until_next);
      CHECK(snapshot.latest_behind == behind);
      if (recorded.state.tasks[0].parts.empty() || snapshot.queue.empty()) continue;  // initial events are not queued
      ++snapshots;
      recorded.loop.resume(snapshot);
      for (size_t r = snapshot.position; r < records.size(); ++r) {
        const Event event = recorded.loop.queue().pop();
        const TaskTime time = recorded.loop.take(event, no_limit);
        REQUIRE((event.key == records[r].key && event.ready == records[r].ready && time.start == records[r].start &&
                 time.end == records[r].end));
      }
      CHECK(recorded.loop.queue().empty());
    }
  }
  CHECK(snapshots > 60);
}

TEST_CASE("places: where forward and backward tasks stand, and each operator's first") {
  RandomSource random(3);
  SimulationProblem problem(random);
  Recorded recorded(problem, problem.strategy(random));
  const auto& records = recorded.timeline.records();
  Vector<size_t> first(recorded.state.count(), KnownTimeline::never);
  for (size_t r = 0; r < records.size(); ++r) {
    const TaskKind kind = kind_of(records[r].key);
    const OperatorId op = subject_of(records[r].key);
    if (kind != TaskKind::forward && kind != TaskKind::backward) continue;
    const KnownTimeline::Recorded known = recorded.timeline.recorded(kind, op, part_of(records[r].key));
    CHECK((known.position == r && known.end == records[r].end));
    if (kind == TaskKind::forward) first[op] = std::min(first[op], r);
  }
  for (OperatorId op = 0; op < recorded.state.count(); ++op) CHECK(recorded.timeline.first_forward(op) == first[op]);
}

TEST_CASE("progress: counted anew from the records, it is what the simulation counted") {
  for (uint32_t number = 0; number < 60; ++number) {
    INFO("case " << number);
    RandomSource random(number);
    SimulationProblem problem(random);
    Recorded recorded(problem, problem.strategy(random));
    Vector<Progress> counted;
    for (const Snapshot& snapshot : recorded.timeline.snapshots()) counted.push_back(snapshot.progress);
    recorded.timeline.recount_progress(recorded.bounds);
    for (size_t i = 0; i < counted.size(); ++i) {
      const Progress& anew = recorded.timeline.snapshots()[i].progress;
      CHECK(anew.synchronized == counted[i].synchronized);
      REQUIRE(anew.done.size() == counted[i].done.size());
      for (size_t device = 0; device < anew.done.size(); ++device) {
        CHECK(anew.done[device].all == counted[i].done[device].all);
        CHECK(anew.done[device].before_tail == counted[i].done[device].before_tail);
      }
    }
  }
}
