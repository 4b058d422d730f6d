// A lower bound from synchronization: parameter groups that are synchronized late, the tasks that all end before the
// first of them is, and how long they then keep a channel busy.
#pragma once

#include "common/vector.h"
#include "search/simulator/delta/bounds/synchronization_order.h"
#include "search/simulator/timeline.h"

namespace ff::delta {

class StrategyState;

// What a change of the strategy alters of it.
struct LateLoad {
  Vector<Nanoseconds> work, kernel_work;  // [device]: of the tasks before; kernel_work without copies
  Vector<Nanoseconds> occupied;           // [resource]: by the groups' synchronization
  Nanoseconds length = 0;                 // of the resource that is occupied longest
  bool holds = false;
};

// Of one set of groups under the current strategy. The makespan is at least any device's work plus `length`.
struct LateGroups : LateLoad {
  SynchronizationOrder::OperatorSet forward_before, backward_before;  // operators of which all tasks come before
  Vector<uint8_t> contains;                                           // [group]
  Vector<uint8_t> relies_on;     // [group]: counts its own backward tasks, which holds as long as it is one unit
  size_t busiest = 0;            // the resource that the accepted strategy occupies longest
  Vector<Nanoseconds> of_group;  // [group]: its share of that

  // The same tasks before the same groups, and the same resource.
  bool same_tasks(const LateGroups& other) const {
    return holds == other.holds && busiest == other.busiest && contains == other.contains &&
           forward_before == other.forward_before && backward_before == other.backward_before;
  }
};

// The `count` sets with the largest bounds. Sets are the groups from one position of the order on.
Vector<LateGroups> choose_late_groups(const StrategyState& state, const SynchronizationOrder& order, size_t count);

}  // namespace ff::delta
