#include "search/simulator/delta/bounds/synchronization_tail.h"

#include <algorithm>
#include <bit>

#include "search/simulator/delta/strategy_state.h"

namespace ff::delta {
namespace {

using OperatorSet = SynchronizationOrder::OperatorSet;

// Calls visit(operator) for each member.
template <typename Visit>
void for_each(const OperatorSet& set, const Visit& visit) {
  for (size_t word = 0; word < set.size(); ++word)
    for (uint64_t bits = set[word]; bits != 0; bits &= bits - 1)
      visit(static_cast<OperatorId>(word * 64 + static_cast<size_t>(std::countr_zero(bits))));
}

// Takes one group after the other into the set, from the last of the order on.
class Collector {
 public:
  Collector(const StrategyState& state, const SynchronizationOrder& order) : state_(state), order_(order) {
    const size_t groups = state.groups.size();
    set_.contains.assign(groups, 0);
    set_.relies_on.assign(groups, 0);
    set_.of_group.assign(groups, 0);
    set_.occupied.assign(state.topology.devices.size() + state.topology.channels.size(), 0);
    set_.work.assign(state.topology.devices.size(), 0);
    set_.kernel_work = set_.work;
    set_.holds = true;
    OperatorSet none((static_cast<size_t>(state.count()) + 63) / 64, 0);
    set_.forward_before = set_.backward_before = own_ = none;
    for (OperatorId op = 0; op < state.count(); ++op) {
      set_.forward_before[static_cast<size_t>(op) / 64] |= uint64_t{1} << op % 64;
      count(op, false, 1);
      if (!state.has_backward(op)) continue;
      set_.backward_before[static_cast<size_t>(op) / 64] |= uint64_t{1} << op % 64;
      count(op, true, 1);
    }
  }

  void add(int g) {
    const GroupState& group = state_.groups[g];
    set_.contains[g] = 1;
    keep_only(set_.forward_before, order_.forward_before(g), false);
    OperatorSet before = order_.backward_before(g);
    if (group.one_unit)
      for (OperatorId op : state_.builder.groups()[g].operators) {
        uint64_t& word = before[static_cast<size_t>(op) / 64];
        const uint64_t bit = uint64_t{1} << op % 64;
        if ((word & bit) == 0) set_.relies_on[g] = 1;
        word |= bit;
      }
    keep_only(set_.backward_before, before, true);
    for (const UnitState& unit : group.units) {
      if (unit.holders.size() < 2) continue;
      for (const ResourceUse& use : unit.collective.uses) {
        Nanoseconds& occupied = set_.occupied[use.resource];
        occupied += use.occupancy;
        if (occupied <= set_.length) continue;
        set_.length = occupied;
        set_.busiest = static_cast<size_t>(use.resource);
      }
    }
  }

  Nanoseconds bound() const { return *std::max_element(set_.work.begin(), set_.work.end()) + set_.length; }

  LateGroups set() const {
    LateGroups result = set_;
    for (size_t g = 0; g < state_.groups.size(); ++g)
      if (result.contains[g]) result.of_group[g] = occupancy(state_.groups[g], result.busiest);
    return result;
  }

 private:
  void keep_only(OperatorSet& set, const OperatorSet& others, bool backward) {
    for (size_t word = 0; word < set.size(); ++word) {
      own_[word] = set[word] & ~others[word];
      set[word] &= others[word];
    }
    for_each(own_, [&](OperatorId op) { count(op, backward, -1); });
  }

  void count(OperatorId op, bool backward, Nanoseconds sign) {
    const OperatorState& operator_state = state_.operators[op];
    const OperatorTasks& tasks = state_.tasks[op];
    const Vector<Nanoseconds>& kernels = backward ? operator_state.backward_kernel : operator_state.forward_kernel;
    for (size_t part = 0; part < kernels.size(); ++part) {
      const DeviceId device = operator_state.devices[part];
      set_.kernel_work[device] += sign * kernels[part];
      set_.work[device] += sign * tasks.duration(part, backward);
    }
  }

  const StrategyState& state_;
  const SynchronizationOrder& order_;
  LateGroups set_;
  OperatorSet own_;  // scratch
};

}  // namespace

Nanoseconds occupancy(const UnitState& unit, size_t resource) {
  Nanoseconds sum = 0;
  if (unit.holders.size() > 1)
    for (const ResourceUse& use : unit.collective.uses)
      if (static_cast<size_t>(use.resource) == resource) sum += use.occupancy;
  return sum;
}

Nanoseconds occupancy(const GroupState& group, size_t resource) {
  Nanoseconds sum = 0;
  for (const UnitState& unit : group.units) sum += occupancy(unit, resource);
  return sum;
}

Vector<LateGroups> choose_late_groups(const StrategyState& state, const SynchronizationOrder& order, size_t count) {
  const Vector<int>& groups = order.groups();
  Vector<std::pair<Nanoseconds, size_t>> bounds;  // of the sets from each position of the order on
  Collector measured(state, order);
  for (size_t position = groups.size(); position-- > 0;) {
    measured.add(groups[position]);
    bounds.emplace_back(measured.bound(), position);
  }
  Vector<size_t> chosen;
  std::sort(bounds.rbegin(), bounds.rend());
  for (size_t i = 0; i < std::min(count, bounds.size()); ++i) chosen.push_back(bounds[i].second);
  std::sort(chosen.rbegin(), chosen.rend());
  Vector<LateGroups> result;
  Collector collected(state, order);
  size_t position = groups.size();
  for (size_t first : chosen) {
    while (position > first) collected.add(groups[--position]);
    result.push_back(collected.set());
  }
  result.resize(count);  // those that are missing do not hold
  return result;
}

}  // namespace ff::delta
