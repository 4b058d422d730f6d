#include "search/simulator/delta/bounds/paths.h"

#include <algorithm>

namespace ff::delta {
namespace {

// From the last gradient to the end of the first update, or where an owner updates to that of the last.
Nanoseconds unit_time(const UnitState& unit) {
  if (unit.owner != no_owner) return unit.update[unit.owner_place()] + unit.behind_owner;
  return (unit.holders.size() > 1 ? unit.collective.duration : 0) +
         *std::min_element(unit.update.begin(), unit.update.end());
}

Nanoseconds least_reduction(const Vector<ReductionState>& reductions) {
  return std::min_element(reductions.begin(), reductions.end(),
                          [](const auto& a, const auto& b) { return a.collective.duration < b.collective.duration; })
      ->collective.duration;
}

}  // namespace

void OperatorPaths::resize(OperatorId operators) {
  for (auto* path : {&head, &middle, &tail_producers, &least_synchronization}) path->resize(operators);
  for (Direction direction : directions) {
    tail[direction].resize(operators);
    least[direction].resize(operators);
  }
}

void OperatorPaths::set_least(const StrategyState& state, OperatorId op) {
  const OperatorState& operator_state = state.operators[op];
  for (Direction direction : directions) {
    const Vector<Nanoseconds>& kernel = operator_state.kernel[direction];
    least[direction][op] = *std::min_element(kernel.begin(), kernel.end());
    if (operator_state.has_statistics(direction))
      least[direction][op] += least_reduction(operator_state.reductions[direction]);
  }
  least_synchronization[op] = 0;
  for (const auto& [g, position] : state.groups_of[op]) {
    const Vector<UnitState>& units = state.groups[g].units;
    if (state.builder.groups()[g].operators.size() > 1 || units.empty()) continue;
    Nanoseconds least_of_group = unit_time(units[0]);
    for (const UnitState& unit : units) least_of_group = std::min(least_of_group, unit_time(unit));
    least_synchronization[op] = std::max(least_synchronization[op], least_of_group);
  }
}

void OperatorPaths::connect(const NetworkStructure& network) {
  Vector<Nanoseconds>&tail_forward = tail[Direction::forward], &tail_backward = tail[Direction::backward];
  const Vector<Nanoseconds>&least_forward = least[Direction::forward], &least_backward = least[Direction::backward];
  for (OperatorId op = 0; op < network.count(); ++op) {
    head[op] = tail_producers[op] = 0;
    for (int e : network.in_edges[op]) {
      if (!network.every_part_reads[e]) continue;
      const OperatorId producer = network.edge(e).producer;
      head[op] = std::max(head[op], head[producer] + least_forward[producer]);
      if (network.edge_has_gradient[e])
        tail_producers[op] = std::max(tail_producers[op], least_backward[producer] + tail_backward[producer]);
    }
    tail_backward[op] = std::max(tail_producers[op], least_synchronization[op]);
  }
  for (OperatorId op = network.count(); op-- > 0;) {
    middle[op] = tail_forward[op] = 0;
    for (int e : network.out_edges[op]) {
      if (!network.every_part_is_read[e]) continue;
      const OperatorId consumer = network.edge(e).consumer;
      tail_forward[op] = std::max(tail_forward[op], least_forward[consumer] + tail_forward[consumer]);
      if (network.edge_has_gradient[e])
        middle[op] = std::max(middle[op], least_forward[consumer] + middle[consumer] + least_backward[consumer]);
    }
    if (network.has_backward(op))
      tail_forward[op] = std::max(tail_forward[op], middle[op] + least_backward[op] + tail_backward[op]);
  }
}

}  // namespace ff::delta
