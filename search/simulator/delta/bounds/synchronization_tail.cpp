#include "search/simulator/delta/bounds/synchronization_tail.h"

#include <algorithm>

namespace ff::delta {
namespace {

// Takes one group after the other into the tail, from the last of the order on.
class Collector {
 public:
  Collector(const StrategyState& state, const SynchronizationOrder& order)
      : state_(state), order_(order), work_(state.topology.devices.size(), 0) {
    tail_.contains.assign(state.groups.size(), 0);
    tail_.relies_on_one_unit = tail_.contains;
    tail_.load.occupied.assign(state.resource_count(), 0);
    for (Direction direction : directions) {
      tail_.before[direction].assign(words_for(state.operators.size()), 0);
      for (OperatorId op = 0; op < state.count(); ++op) {
        if (direction == Direction::backward && !state.has_backward(op)) continue;
        insert(tail_.before[direction], op);
        count(direction, op, 1);
      }
    }
  }

  void add(int g) {
    const GroupState& group = state_.groups[g];
    tail_.contains[g] = 1;
    tail_.load.holds = true;
    keep_only(Direction::forward, order_.before(Direction::forward, g));
    BitSet before = order_.before(Direction::backward, g);
    if (group.one_unit)
      for (OperatorId op : state_.builder.groups()[g].operators) {
        if (!contains(before, op)) tail_.relies_on_one_unit[g] = 1;
        insert(before, op);
      }
    keep_only(Direction::backward, before);
    for (const UnitState& unit : group.units) {
      if (unit.holders.size() < 2) continue;
      for (const ResourceUse& use : unit.collective.uses) {
        Nanoseconds& occupied = tail_.load.occupied[use.resource];
        occupied += use.occupancy;
        if (occupied <= tail_.load.length) continue;
        tail_.load.length = occupied;
        tail_.busiest = static_cast<size_t>(use.resource);
      }
    }
  }

  Nanoseconds bound() const { return *std::max_element(work_.begin(), work_.end()) + tail_.load.length; }

  const SynchronizationTail& tail() const { return tail_; }

 private:
  void keep_only(Direction direction, const BitSet& others) {
    BitSet& set = tail_.before[direction];
    dropped_ = set;
    for (size_t word = 0; word < set.size(); ++word) {
      dropped_[word] &= ~others[word];
      set[word] &= others[word];
    }
    for_each_member(dropped_, [&](OperatorId op) { count(direction, op, -1); });
  }

  void count(Direction direction, OperatorId op, Nanoseconds sign) {
    const OperatorTasks& tasks = state_.tasks[op];
    for (size_t part = 0; part < tasks.parts.size(); ++part)
      work_[tasks.parts[part].device] += sign * tasks.duration(direction, part);
  }

  const StrategyState& state_;
  const SynchronizationOrder& order_;
  Vector<Nanoseconds> work_;  // [device]: of the tasks before the tail
  SynchronizationTail tail_;
  BitSet dropped_;  // scratch
};

}  // namespace

Nanoseconds occupancy(const UnitState& unit, size_t resource) {
  Nanoseconds sum = 0;
  if (unit.holders.size() > 1)
    for (const ResourceUse& use : unit.collective.uses)
      if (static_cast<size_t>(use.resource) == resource) sum += use.occupancy;
  return sum;
}

Array<SynchronizationTail, tail_count> choose_tails(const StrategyState& state, const SynchronizationOrder& order) {
  const Vector<int>& groups = order.groups();
  Vector<std::pair<Nanoseconds, size_t>> bounds;  // of the tails from each position of the order on
  Collector measured(state, order);
  for (size_t position = groups.size(); position-- > 0;) {
    measured.add(groups[position]);
    bounds.emplace_back(measured.bound(), position);
  }
  Vector<size_t> chosen;
  std::sort(bounds.rbegin(), bounds.rend());
  for (size_t i = 0; i < std::min(tail_count, bounds.size()); ++i) chosen.push_back(bounds[i].second);
  std::sort(chosen.rbegin(), chosen.rend());
  Collector collected(state, order);
  Array<SynchronizationTail, tail_count> tails;
  tails.fill(collected.tail());  // of no group: does not hold
  size_t position = groups.size();
  for (size_t i = 0; i < chosen.size(); ++i) {
    while (position > chosen[i]) collected.add(groups[--position]);
    tails[i] = collected.tail();
  }
  return tails;
}

}  // namespace ff::delta
