// What each waiting task still waits for.
#pragma once

#include "common/vector.h"
#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {

// Something that waits for several predecessors: the first task of a part in a direction (compute_kind), a reduction
// of statistics, a collective of an edge, or a unit of a parameter group (synchronization, also where one holder needs
// but an update). Where parameters have owners, a unit is what its owner's update waits for, and there are barriers.
struct Waiting {
  TaskKind kind;
  int32_t subject;  // operator; of a unit: group; of a collective: edge; of a barrier: 0
  // part; of a reduction: statistics group; of a collective: exchange; of a unit: its index; of a barrier: device
  int32_t part;
};

// A place, its slot, for everything that can wait under the current strategy and the proposed one. Slots do not depend
// on the strategy as long as it fits, so what is kept by slot stays valid from proposal to proposal.
class SlotLayout {
 public:
  // For the state, and for all that fitted before.
  void lay_out(const StrategyState& state);
  bool fits(const StrategyState& state, OperatorId op) const;

  int32_t count() const { return static_cast<int32_t>(waiting_.size()); }
  const Waiting& waiting(int32_t slot) const { return waiting_[slot]; }
  int32_t slot(TaskKind kind, int subject, int part) const { return first_[static_cast<size_t>(kind)][subject] + part; }
  // Of a forward or backward task or a reduction, else -1.
  int32_t slot(TaskKey key) const {
    const TaskKind kind = kind_of(key);
    const bool has_slot = kind == TaskKind::forward || kind == TaskKind::backward || is_reduction(kind);
    return has_slot ? slot(kind, subject_of(key), part_of(key)) : -1;
  }

 private:
  void add(TaskKind kind, int subject, int32_t capacity);

  Array<Vector<int32_t>, task_kind_count> first_;  // [kind][operator, group or edge]: slot of part 0
  Vector<int32_t> part_capacity_, unit_capacity_;  // [operator], [group]
  Vector<Waiting> waiting_;                        // [slot]
};

// A simulation's arrivals. To forget them all takes no time: what has been written before counts no more.
class Arrivals {
 public:
  Arrivals(const StrategyState& state, const SlotLayout& layout) : state_(state), layout_(layout) {}

  void lay_out();
  void clear();

  // A predecessor has ended; true when it was the last one.
  bool arrive(int32_t slot, const int32_t& predecessors, Nanoseconds end) {
    Slot& its = slots_[slot];
    if (its.epoch != epoch_) {
      its = {end, predecessors - 1, epoch_, 0, predecessors};
      if (its.left > 0) begin(its, slot);
      return its.left == 0;
    }
    its.ready = std::max(its.ready, end);
    if (--its.left > 0) return false;
    slots_[partial_.back()].place = its.place;
    partial_[its.place] = partial_.back();
    partial_.pop_back();
    return true;
  }
  // Of what waits no longer: the latest end of a predecessor.
  Nanoseconds ready(int32_t slot) const { return slots_[slot].ready; }

  // What has begun to arrive and is not complete. By how many have arrived, since a change may alter for how many a
  // task waits.
  struct Partial {
    int32_t slot;
    int32_t arrived;
    Nanoseconds ready;  // latest end of these
  };
  size_t partial_count() const { return partial_.size(); }
  void save(Vector<Partial>& partial) const;
  void load(const Vector<Partial>& partial, Nanoseconds later);
  // Has the same begun to arrive, so much later? Of times before `ready` it makes no difference which they are.
  bool equal(const Partial& known, Nanoseconds ready, Nanoseconds later) const {
    const Slot& its = slots_[known.slot];
    return its.epoch == epoch_ && its.left > 0 && its.predecessors - its.left == known.arrived &&
           std::max(its.ready - later, ready) == std::max(known.ready, ready);
  }

 private:
  struct Slot {
    Nanoseconds ready = 0;  // latest end of a predecessor so far
    int32_t left = 0;       // predecessors that have not ended
    uint32_t epoch = 0;     // of another epoch: nothing has arrived
    int32_t place = 0;      // in partial_
    int32_t predecessors = 0;
  };
  void begin(Slot& its, int32_t slot) {
    its.place = static_cast<int32_t>(partial_.size());
    partial_.push_back(slot);
  }
  int32_t predecessors_of(int32_t slot) const;

  const StrategyState& state_;
  const SlotLayout& layout_;
  Vector<Slot> slots_;
  uint32_t epoch_ = 1;
  Vector<int32_t> partial_;  // slots
};

}  // namespace ff::delta
