// A lower bound from synchronization: a device must do all of its share of the tasks that come before the parameter
// groups that are synchronized last, and then these groups' all-reduces must pass one after the other through the
// resource that they occupy longest.
#pragma once

#include <algorithm>

#include "common/vector.h"
#include "search/simulator/delta/bounds/synchronization_order.h"
#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {

constexpr size_t tail_count = 2;  // the two with the largest bounds are looked at

// The parameter groups that are synchronized last, and the tasks certain to end before the first of them is, under the
// current strategy.
struct SynchronizationTail {
  Vector<uint8_t> contains;     // [group]
  PerDirection<BitSet> before;  // [direction]: operators of which all tasks come before
  // [group]: its own backward tasks are counted among these, which holds as long as it is one unit
  Vector<uint8_t> relies_on_one_unit;
  size_t busiest = 0;  // the resource that the groups occupy longest

  // What a change of the strategy alters. A tail that does not hold says nothing of the makespan.
  struct Load {
    Vector<Nanoseconds> occupied;  // [resource]: by the groups' synchronization
    Nanoseconds length = 0;        // of the resource that is occupied longest
    bool holds = false;
  } load;

  bool has_groups() const { return std::find(contains.begin(), contains.end(), 1) != contains.end(); }
  // The same tasks before the same groups, and the same resource.
  bool same_tasks(const SynchronizationTail& other) const {
    return load.holds == other.load.holds && busiest == other.busiest && contains == other.contains &&
           before[Direction::forward] == other.before[Direction::forward] &&
           before[Direction::backward] == other.before[Direction::backward];
  }
  // Have the direction's tasks of the operator all ended before?
  bool is_before(Direction direction, OperatorId op) const { return load.holds && ff::contains(before[direction], op); }
};

// How long the synchronization occupies the resource.
Nanoseconds occupancy(const UnitState& unit, size_t resource);

// Those with the largest bounds, of the tails that consist of the groups from one position of the order on.
Array<SynchronizationTail, tail_count> choose_tails(const StrategyState& state, const SynchronizationOrder& order);

}  // namespace ff::delta
