#include "search/simulator/delta/bounds/paths.h"

#include <algorithm>
#include <limits>

namespace ff::delta {
namespace {

// From the last gradient to the end of the first update, or where an owner updates to that of the last.
Nanoseconds unit_time(const UnitState& unit) {
  if (unit.owner != no_owner) return unit.update[place_of(unit, unit.owner)] + unit.behind_owner;
  return (unit.holders.size() > 1 ? unit.collective.duration : 0) +
         *std::min_element(unit.update.begin(), unit.update.end());
}

// How long the first occupies a resource that the second occupies too.
Nanoseconds longest_on_shared(const CommunicationCost& first, const CommunicationCost& second) {
  Nanoseconds longest = 0;
  for (const ResourceUse& use : first.uses)
    if (use.occupancy > longest && std::any_of(second.uses.begin(), second.uses.end(), [&](const ResourceUse& other) {
          return other.resource == use.resource;
        }))
      longest = use.occupancy;
  return longest;
}

// Does each part have a unit that waits for it, and these units for no other operator's parts?
bool each_part_has_its_own_unit(const StrategyState& state, int group) {
  const GroupState& its = state.groups[group];
  return state.builder.groups()[group].operators.size() == 1 && !its.units.empty() && its.each_part_has_a_unit;
}

Nanoseconds least_reduction(const Vector<ReductionState>& reductions) {
  return std::min_element(reductions.begin(), reductions.end(),
                          [](const auto& a, const auto& b) { return a.collective.duration < b.collective.duration; })
      ->collective.duration;
}

}  // namespace

void OperatorPaths::resize(const NetworkStructure& network) {
  const OperatorId operators = network.count();
  held_up.assign(network.next_statistics.size(), 0);
  for (auto* path : {&middle, &tail_producers, &least_synchronization}) path->resize(operators);
  behind.resize(4 * operators);
  for (Direction direction : directions) {
    tail[direction].resize(operators);
    least[direction].resize(operators);
    has_joint_reduction[direction].resize(operators);
  }
}

void OperatorPaths::set_least(const StrategyState& state, OperatorId op) {
  const OperatorState& operator_state = state.operators[op];
  for (Direction direction : directions) {
    const Vector<Nanoseconds>& kernel = operator_state.kernel[direction];
    Least& its = least[direction][op];
    its = {};
    its.kernel = its.rest = *std::min_element(kernel.begin(), kernel.end());
    has_joint_reduction[direction][op] = operator_state.reductions[direction].size() == 1;
    if (!operator_state.has_statistics(direction)) continue;
    const Vector<Nanoseconds>& statistics = operator_state.statistics_kernel[direction];
    its.statistics = *std::min_element(statistics.begin(), statistics.end());
    for (size_t part = 0; part < kernel.size(); ++part) its.rest = std::min(its.rest, kernel[part] - statistics[part]);
    its.reduction = least_reduction(operator_state.reductions[direction]);
  }
  least_synchronization[op] = 0;
  for (const auto& [g, position] : state.groups_of[op]) {
    if (!each_part_has_its_own_unit(state, g)) continue;
    const Vector<UnitState>& units = state.groups[g].units;
    Nanoseconds least_of_group = unit_time(units[0]);
    for (const UnitState& unit : units) least_of_group = std::min(least_of_group, unit_time(unit));
    least_synchronization[op] = std::max(least_synchronization[op], least_of_group);
  }
}

// A unit is ready before the reduction, for each of its tasks comes before one that the reduction waits for. So it is
// taken before, and the reduction waits for the channels that both occupy. The update of each holder, if ready when the
// reduction ends, comes before what is after the reduction.
void OperatorPaths::set_held_up(const StrategyState& state, int number) {
  const auto& [op, next] = state.next_statistics[number];
  held_up[number] = 0;
  if (!has_joint_reduction[Direction::backward][next] || state.has_owners()) return;
  const CommunicationCost& reduction = state.operators[next].reductions[Direction::backward][0].collective;
  for (const auto& [g, position] : state.groups_of[op]) {
    if (!each_part_has_its_own_unit(state, g)) continue;
    const Vector<UnitState>& units = state.groups[g].units;
    if (!std::all_of(units.begin(), units.end(), [](const UnitState& unit) { return unit.holders.size() > 1; }))
      continue;
    Nanoseconds least_of_group = std::numeric_limits<Nanoseconds>::max();
    for (const UnitState& unit : units) {
      Nanoseconds until = longest_on_shared(unit.collective, reduction) + reduction.duration;
      if (until > unit.collective.duration && unit.holders.size() == state.topology.devices.size())
        until = std::max(until, unit.collective.duration + *std::min_element(unit.update.begin(), unit.update.end()));
      least_of_group = std::min(least_of_group, until);
    }
    held_up[number] = std::max(held_up[number], least_of_group);
  }
}

void OperatorPaths::connect_backward(const NetworkStructure& network, OperatorId op, const Spans& spans) {
  tail_producers[op] = 0;
  for (const auto& [e, producer] : network.successors[Direction::backward][op])
    if (network.every_part_reads[e])
      tail_producers[op] = std::max(tail_producers[op], behind_arrival(Direction::backward, producer));
  Nanoseconds& its_tail = tail[Direction::backward][op];
  its_tail = std::max(tail_producers[op], least_synchronization[op]);
  for (int number : network.next_statistics_of[op])
    if (held_up[number] > 0)
      its_tail = std::max(
          its_tail, held_up[number] + behind_reduction(Direction::backward, network.next_statistics[number].next));
  set_behind(Direction::backward, op, spans);
}

void OperatorPaths::connect_forward(const NetworkStructure& network, OperatorId op, const Spans& spans) {
  middle[op] = 0;
  Nanoseconds& its_tail = tail[Direction::forward][op];
  its_tail = 0;
  for (const auto& [e, consumer] : network.successors[Direction::forward][op]) {
    if (!network.every_part_is_read[e]) continue;
    its_tail = std::max(its_tail, behind_arrival(Direction::forward, consumer));
    if (network.edge_has_gradient[e])
      middle[op] = std::max(middle[op], least[Direction::forward][consumer].all() + middle[consumer] +
                                            least[Direction::backward][consumer].all());
  }
  if (network.has_backward(op)) its_tail = std::max(its_tail, middle[op] + behind_arrival(Direction::backward, op));
  set_behind(Direction::forward, op, spans);
}

void OperatorPaths::set_behind(Direction direction, OperatorId op, const Spans& spans) {
  const Least& its = least[direction][op];
  behind[stage_of(direction, op, false)] = tail[direction][op];
  Nanoseconds& behind_statistics = behind[stage_of(direction, op, true)];
  behind_statistics = its.rest + tail[direction][op];
  if (has_joint_reduction[direction][op])
    behind_statistics = std::max(behind_statistics, spans.behind_reduction(direction, op, *this));
  behind_statistics += its.reduction;
}

}  // namespace ff::delta
