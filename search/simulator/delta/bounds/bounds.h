// Lower bounds on a proposal's makespan: as soon as one passes the largest makespan that would be accepted, the
// proposal is certain to be rejected. They are looked at in three moments: before the changed state is built, before
// the first event, and at every event.
//
// What each of them says, and what its argument assumes:
//   work             A device's compute tasks and updates run one after the other. Assumes that durations only add up;
//                    before building kernels alone count, since copies depend on neighbours.
//   spans (paths)    From the start, or from the end of a joint reduction, some device must do all of its work of a set
//                    of stages, and the shortest path after a last stage follows (spans.h). Assumes that every part of
//                    a stage of the set waits for the reduction, and that a stage which is not last comes before
//                    another of the set with each of its parts.
//   paths            After a task lies the longest chain of operators, each with its fastest part (paths.h). Assumes
//                    edges over which every part exchanges data whatever the degrees (every_part_reads,
//                    every_part_is_read). Of the changed operator its kernels count, and nothing of its
//                    synchronization; of the others what the current strategy says.
//   held up (paths)  A unit that is ready before a joint reduction is taken before it and delays it on the channels
//                    that both use (paths.cpp). Assumes FIFO order and that every task takes 1 ns at least.
//   tails            Groups that are synchronized last pass one after the other through one resource, after all tasks
//                    that end before the first of them (synchronization_order.h). Assumes what that file says of
//                    samples, and that a transfer or collective ends no sooner than it releases its last resource.
//   volumes          What a device or node must receive passes through its incoming channels, after the first part of
//                    a producer ends. Assumes transfers, not collectives, and takes a nanosecond off for each rounding.
//   transfers        A part waits for the ends of its producers' parts and for transfers from them, which share
//                    channels. Ends are the known timeline's where no change can affect them, else bounds themselves.
//
// All of them are of the current or the proposed strategy alone: whatever is kept from one to the next is set by reset
// and followed by change, undo and accept. tests/support/chain_comparison.h and --simulator checked hold each rejection
// against simulations without bounds.
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

  // At a compute or update task, which is added to the progress: by the path after its end, and by what its device
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

  // At a transfer or reduction: by the path after its end.
  static bool exceed_at(const TaskTime& time, Nanoseconds path_behind, Nanoseconds limit) {
    return time.end + path_behind > limit;
  }

  // At the synchronization of a unit, which is added to the progress. Of a tail, what has not been synchronized follows
  // on its busiest resource: after this unit if it occupies that too, else not before what is ready now.
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
