// Lower bounds on a proposal's makespan: as soon as one passes the largest makespan that would be accepted, the
// proposal is certain to be rejected. They are looked at in three moments: before the changed state is built, before
// the first event, and at every event.
#pragma once

#include <algorithm>

#include "common/vector.h"
#include "search/simulator/delta/bounds/configuration_bound.h"
#include "search/simulator/delta/bounds/strategy_totals.h"

namespace ff::delta {

// What a simulation has done so far of the strategy's totals.
struct Progress {
  Vector<DeviceWork> done;                        // [device]
  Array<Nanoseconds, tail_count> synchronized{};  // how long the tail's groups have occupied its busiest resource
  // Adds what was done from one state of a simulation to another.
  void add(const Progress& from, const Progress& to) {
    for (size_t device = 0; device < done.size(); ++device) {
      done[device].all += to.done[device].all - from.done[device].all;
      for (size_t i = 0; i < tail_count; ++i)
        done[device].before_tail[i] += to.done[device].before_tail[i] - from.done[device].before_tail[i];
    }
    for (size_t i = 0; i < tail_count; ++i) synchronized[i] += to.synchronized[i] - from.synchronized[i];
  }
};

// When a task that has been taken runs. A task takes 1 ns at least: 0 to 0 is no time.
struct TaskTime {
  Nanoseconds start = 0, end = 0;
  explicit operator bool() const { return end != 0; }
};

// A compute or update task.
struct DeviceTask {
  DeviceId device;
  Nanoseconds duration;
  Nanoseconds path_behind = 0;
  uint8_t tails_behind = 0;  // bit i: it comes before tail i
};

class Bounds {
 public:
  explicit Bounds(StrategyState& state) : state_(state), totals_(state), configuration_(state, totals_) {}

  // The state has been reset, has changed, is as before the change.
  void reset() { totals_.reset(); }
  void change() { totals_.change(); }
  void undo() { totals_.undo(); }
  // The change has been accepted. True if progress is counted in another way now.
  bool accept() { return totals_.accept(); }

  const OperatorPaths& paths() const { return totals_.paths(); }
  uint8_t tails_behind(Direction direction, OperatorId op) const { return totals_.tails_behind(direction, op); }

  // Adds a task that has been taken to the progress.
  void count(TaskKey key, Nanoseconds duration, Progress& progress) const;

  // Each of these: is the makespan certain to exceed the limit? Before events: by which bound?

  // Before the state is built: with this change of the current strategy.
  Bound exceed_before_building(const Change& change, const KnownPrefix& prefix, Nanoseconds limit) {
    return configuration_.exceeds(change, prefix, limit);
  }

  // Before the first event: by any device's work, and by its work before a tail and the tail.
  Bound exceed_before_events(Nanoseconds limit) const {
    for (const DeviceWork& work : totals_.work()) {
      if (work.all > limit) return Bound::work;
      for (size_t i = 0; i < tail_count; ++i)
        if (tail(i).load.holds && work.before_tail[i] + tail(i).load.length > limit) return Bound::synchronization;
    }
    return Bound::none;
  }

  // At a compute or update task, which is added to the progress: by the path behind its end, and by what its device
  // still has to do.
  bool exceed_at(const DeviceTask& task, const TaskTime& time, Nanoseconds limit, Progress& progress) const {
    const DeviceWork& work = totals_.work(task.device);
    DeviceWork& done = progress.done[task.device];
    done.all += task.duration;
    if (time.end + std::max(task.path_behind, work.all - done.all) > limit) return true;
    for (size_t i = 0; i < tail_count; ++i) {
      const bool is_before = (task.tails_behind >> i & 1) != 0;
      if (is_before) done.before_tail[i] += task.duration;
      if (!tail(i).load.holds) continue;
      const Nanoseconds left = work.before_tail[i] - done.before_tail[i];
      if ((is_before || left > 0) && time.end + left + tail(i).load.length > limit) return true;
    }
    return false;
  }

  // At a transfer or reduction: by the path behind its end.
  static bool exceed_at(const TaskTime& time, Nanoseconds path_behind, Nanoseconds limit) {
    return time.end + path_behind > limit;
  }

  // At the synchronization of a unit, which is added to the progress. Of a tail, what has not been synchronized follows
  // on its busiest resource: behind this unit if it occupies that too, else not before what is ready now.
  bool exceed_at(int group, const UnitState& unit, Nanoseconds ready, const TaskTime& time, Nanoseconds limit,
                 Progress& progress) const {
    if (time.end + *std::max_element(unit.update.begin(), unit.update.end()) > limit) return true;
    for (size_t i = 0; i < tail_count; ++i) {
      if (!tail(i).contains[group]) continue;
      const Nanoseconds own = occupancy(unit, tail(i).busiest);
      const Nanoseconds left = tail(i).load.occupied[tail(i).busiest] - progress.synchronized[i];
      if ((own > 0 ? time.start : ready) + left > limit) return true;
      progress.synchronized[i] += own;
    }
    return false;
  }

 private:
  const SynchronizationTail& tail(size_t i) const { return totals_.tails()[i]; }

  const StrategyState& state_;
  StrategyTotals totals_;
  ConfigurationBound configuration_;
};

}  // namespace ff::delta
