// Delta simulation: the makespan after the configurations of one or several operators changed, by re-timing no more
// than needed.
//
// The same timeline as simulate_full, to the last nanosecond, for less work:
//   - No task graph is built. The tasks that follow a task are read off the block pairs of its edges, which depend on
//     degrees alone and are cached; a change touches the state of the operators that it is for, their edges and their
//     parameter groups.
//   - The events before the first one that a change can affect (the first forward task of a producer of the changed
//     operator) are not simulated again: the simulation restarts from a snapshot taken shortly before.
//   - A proposal comes with the largest makespan that would be accepted. As soon as a lower bound passes it the outcome
//     is certain (delta/bounds/bounds.h).
// docs/simulator.md works an example and argues why the two agree; tests/unit/search/simulator/delta_test.cpp compares
// them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "common/vector.h"
#include "search/cost/task_costs.h"

namespace ff {

// How long proposals took, from being proposed to being accepted or rejected, to a fifth: four ranges for each power of
// two nanoseconds.
class ProposalTimes {
 public:
  void add(int64_t nanoseconds);
  // So large a share of the proposals took no longer than this; 0 without any.
  double quantile_us(double share) const;
  ProposalTimes& operator+=(const ProposalTimes& other);

 private:
  Array<int64_t, 160> counts_{};  // [range]
};

// What a lower bound on the makespan may be a bound on.
enum class Bound : uint8_t { none, work, paths, synchronization, transfers };
constexpr size_t bound_count = 5;
const char* to_string(Bound bound);

// What --simulator checked has compared with slower simulations.
struct CheckStatistics {
  int64_t rejections = 0;   // simulated to their end
  int64_t predictions = 0;  // whose makespan full simulation gave too
  int64_t timelines = 0;    // compared task by task

  CheckStatistics& operator+=(const CheckStatistics& other) {
    rejections += other.rejections;
    predictions += other.predictions;
    timelines += other.timelines;
    return *this;
  }
};

struct DeltaStatistics {
  int64_t proposals = 0;
  // by a bound on devices' work, on paths through the network, on synchronization, or on what must be transferred
  int64_t rejected_before_simulation = 0;
  Array<int64_t, bound_count> rejected_by{};  // of these, by each
  int64_t rejected_during_simulation = 0;
  int64_t returned = 0;  // simulations that returned to the known timeline, in proposals and in accepted timelines
  int64_t events = 0;    // tasks taken, in proposals and in accepted timelines
  ProposalTimes times;
  CheckStatistics checks;

  DeltaStatistics& operator+=(const DeltaStatistics& other) {
    proposals += other.proposals;
    rejected_before_simulation += other.rejected_before_simulation;
    for (size_t bound = 0; bound < bound_count; ++bound) rejected_by[bound] += other.rejected_by[bound];
    rejected_during_simulation += other.rejected_during_simulation;
    returned += other.returned;
    events += other.events;
    times += other.times;
    checks += other.checks;
    return *this;
  }
};

// Delta simulation knows FIFO order alone, and neither recomputation nor shards, nor reductions after backward.
bool delta_simulates(const StrategySettings& settings);

class DeltaSimulator {
 public:
  // All must outlive the simulator. Not thread-safe: one a thread.
  DeltaSimulator(TaskGraphBuilder& builder, const Topology& topology, TaskCostModel& costs);
  ~DeltaSimulator();

  // Simulates a whole strategy.
  void reset(const Strategy& strategy);

  const Strategy& strategy() const;
  Nanoseconds makespan() const;  // of strategy()

  // The makespan with these changes, each of another operator, or nothing when it is certain to exceed `limit` or when
  // `in_vain`, which another thread may set, says that nobody asks any more. To be followed by accept or reject; only a
  // proposal that returned a makespan can be accepted.
  std::optional<Nanoseconds> propose(const Vector<Change>& changes, Nanoseconds limit,
                                     const std::atomic<bool>* in_vain = nullptr);
  void accept();
  void reject();
  // What rejected the last proposal: a bound before the simulation, by its name, or the simulation at an event.
  const char* rejected_by() const;

  // Every task of the current timeline, in the order in which tasks were taken.
  struct Record {
    TaskKey key;
    Nanoseconds ready, start, end;
  };
  const Vector<Record>& records() const;
  const DeltaStatistics& statistics() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace ff
