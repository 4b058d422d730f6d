// What the bounds know of a strategy: each device's work, the longest paths, the synchronization tails. Follows the
// strategy state's changes.
#pragma once

#include "common/vector.h"
#include "search/simulator/delta/bounds/paths.h"
#include "search/simulator/delta/bounds/synchronization_tail.h"

namespace ff::delta {

// What a device has to do, or has done: compute tasks and updates.
struct DeviceWork {
  Nanoseconds all = 0;
  Array<Nanoseconds, tail_count> before_tail{};  // compute tasks that come before the tail
};

class StrategyTotals {
 public:
  explicit StrategyTotals(const StrategyState& state);

  void reset();   // the state has been reset
  void change();  // the state has changed
  void undo();
  // The change is the state now. True if tails have been chosen that come after other tasks than before.
  bool accept();
  // Chooses tails for the state as it is now. True if they come after other tasks than before.
  bool choose_tails();

  const OperatorPaths& paths() const { return current_.paths; }
  uint64_t version() const { return version_; }  // another one where the state is
  Spans& spans() { return spans_; }
  const DeviceWork& work(DeviceId device) const { return current_.work[device]; }
  const Vector<DeviceWork>& work() const { return current_.work; }
  const Vector<Nanoseconds>& kernel_work() const { return current_.kernel_work; }  // without copies and updates
  const Array<SynchronizationTail, tail_count>& tails() const { return tails_; }
  // Bit i: the operator's tasks in this direction come before tail i.
  uint8_t tails_behind(Direction direction, OperatorId op) const { return tails_behind_[direction][op]; }

 private:
  struct Totals {
    OperatorPaths paths;
    Vector<DeviceWork> work;          // [device]
    Vector<Nanoseconds> kernel_work;  // [device]
  };

  void choose_spans();
  void add(DeviceWork& work, Direction direction, OperatorId op, Nanoseconds duration);
  void add_tasks(OperatorId op, const OperatorTasks& tasks, Nanoseconds sign);
  void add_to_spans(OperatorId op, const OperatorTasks& tasks, Nanoseconds sign);
  void add_kernels(const OperatorState& state, Nanoseconds sign);
  void add_updates(const GroupState& group, Nanoseconds sign);
  void add_synchronization(int g, const GroupState& group, Nanoseconds sign);

  const StrategyState& state_;
  const SynchronizationOrder order_;
  Totals current_, before_change_;
  Spans spans_;
  uint64_t version_ = 0;
  int changes_ = 0, accepted_ = 0;  // since the spans were chosen
  int accepted_with_tails_ = 0;     // since the tails were
  Array<SynchronizationTail, tail_count> tails_;
  Array<SynchronizationTail::Load, tail_count> loads_before_change_;
  PerDirection<Vector<uint8_t>> tails_behind_;  // [direction][operator]
};

}  // namespace ff::delta
