#include "search/simulator/delta/bounds/strategy_totals.h"

#include <algorithm>

namespace ff::delta {

StrategyTotals::StrategyTotals(const StrategyState& state) : state_(state), order_(state.builder), spans_(state) {
  current_.paths.resize(state);
}

void StrategyTotals::reset() {
  for (OperatorId op = 0; op < state_.count(); ++op) current_.paths.set_least(state_, op);
  for (int number : state_.next_statistics.indices()) current_.paths.set_held_up(state_, number);
  choose_spans();
  tails_ = {};
  current_.work.clear();
  choose_tails();
}

void StrategyTotals::change() {
  ++changes_;
  before_change_ = current_;
  for (size_t i = 0; i < tail_count; ++i) loads_before_change_[i] = tails_[i].load;
  const StrategyState::Replaced& replaced = state_.replaced();
  spans_.begin_change();
  for (const auto& [op, tasks] : replaced.tasks) {
    add_tasks(op, tasks, -1);
    add_tasks(op, state_.tasks[op], 1);
    add_to_spans(op, tasks, -1);
    add_to_spans(op, state_.tasks[op], 1);
  }
  spans_.end_change();
  for (const auto& [op, configuration, operator_state] : replaced.operators) {
    add_kernels(operator_state, -1);
    add_kernels(state_.operators[op], 1);
    current_.paths.set_least(state_, op);
  }
  for (const auto& [op, configuration, operator_state] : replaced.operators)
    for (const auto* numbers : {&state_.next_statistics_of[op], &state_.next_statistics_for[op]})
      for (int number : *numbers) current_.paths.set_held_up(state_, number);
  for (const auto& [g, group] : replaced.groups) {
    add_updates(group, -1);
    add_updates(state_.groups[g], 1);
    add_synchronization(g, group, -1);
    add_synchronization(g, state_.groups[g], 1);
    for (SynchronizationTail& tail : tails_)
      if (tail.contains[g] && tail.relies_on_one_unit[g] && !state_.groups[g].one_unit) tail.load.holds = false;
  }
  if (!replaced.groups.empty())
    for (SynchronizationTail& tail : tails_)
      tail.load.length = *std::max_element(tail.load.occupied.begin(), tail.load.occupied.end());
  const OperatorId first = replaced.tasks[0].op;
  current_.paths.connect_behind(state_, spans_, first, 0);
}

void StrategyTotals::undo() {
  std::swap(current_, before_change_);
  spans_.undo();
  for (size_t i = 0; i < tail_count; ++i) std::swap(tails_[i].load, loads_before_change_[i]);
}

// To choose spans or tails takes as long as some twenty changes. Those that were chosen before remain bounds, but for
// tails that no longer hold.
bool StrategyTotals::accept() {
  constexpr int least_accepted = 32, least_changes = 2048, tails_kept = 16;
  spans_.apply();
  ++version_;
  if (++accepted_ >= least_accepted && changes_ >= least_changes) choose_spans();
  const auto was_lost = [](const SynchronizationTail& tail) { return tail.has_groups() && !tail.load.holds; };
  if (++accepted_with_tails_ < tails_kept && std::none_of(tails_.begin(), tails_.end(), was_lost)) return false;
  return choose_tails();
}

void StrategyTotals::choose_spans() {
  spans_.choose(current_.paths);
  ++version_;
  accepted_ = changes_ = 0;
}

bool StrategyTotals::choose_tails() {
  accepted_with_tails_ = 0;
  Array<SynchronizationTail, tail_count> chosen = delta::choose_tails(state_, order_);
  bool same = !current_.work.empty();
  for (size_t i = 0; i < tail_count; ++i) same = same && chosen[i].same_tasks(tails_[i]);
  tails_ = std::move(chosen);
  if (same) return false;
  for (Direction direction : directions) {
    tails_behind_[direction].assign(state_.count(), 0);
    for (OperatorId op = 0; op < state_.count(); ++op)
      for (size_t i = 0; i < tail_count; ++i)
        if (tails_[i].is_before(direction, op))
          tails_behind_[direction][op] = static_cast<uint8_t>(tails_behind_[direction][op] | 1 << i);
  }
  current_.work.assign(state_.topology.devices.size(), {});
  current_.kernel_work.assign(state_.topology.devices.size(), 0);
  for (OperatorId op = 0; op < state_.count(); ++op) {
    add_tasks(op, state_.tasks[op], 1);
    add_kernels(state_.operators[op], 1);
  }
  for (const GroupState& group : state_.groups) add_updates(group, 1);
  return true;
}

void StrategyTotals::add(DeviceWork& work, Direction direction, OperatorId op, Nanoseconds duration) {
  work.all += duration;
  for (size_t i = 0; i < tail_count; ++i)
    if ((tails_behind_[direction][op] >> i & 1) != 0) work.before_tail[i] += duration;
}

void StrategyTotals::add_tasks(OperatorId op, const OperatorTasks& tasks, Nanoseconds sign) {
  for (Direction direction : directions)
    for (size_t part = 0; part < tasks.parts.size(); ++part)
      add(current_.work[tasks.parts[part].device], direction, op, sign * tasks.duration(direction, part));
}

void StrategyTotals::add_to_spans(OperatorId op, const OperatorTasks& tasks, Nanoseconds sign) {
  for (Direction direction : directions) {
    if (Nanoseconds* more = spans_.change_of(stage_of(direction, op, false)))
      for (const PartTasks& part : tasks.parts) more[part.device] += sign * part.duration[direction];
    if (tasks.statistics[direction].empty()) continue;
    if (Nanoseconds* more = spans_.change_of(stage_of(direction, op, true)))
      for (int part : tasks.parts.indices()) more[tasks.parts[part].device] += sign * tasks.statistics[direction][part];
  }
}

void StrategyTotals::add_kernels(const OperatorState& state, Nanoseconds sign) {
  for (Direction direction : directions)
    for (size_t part = 0; part < state.devices.size(); ++part)
      current_.kernel_work[state.devices[part]] += sign * state.kernel[direction][part];
}

void StrategyTotals::add_updates(const GroupState& group, Nanoseconds sign) {
  for (const UnitState& unit : group.units)
    for (size_t h = 0; h < unit.holders.size(); ++h) current_.work[unit.holders[h]].all += sign * unit.update[h];
}

void StrategyTotals::add_synchronization(int g, const GroupState& group, Nanoseconds sign) {
  for (SynchronizationTail& tail : tails_)
    if (tail.contains[g])
      for (const UnitState& unit : group.units)
        if (unit.holders.size() > 1)
          for (const ResourceUse& use : unit.collective.uses) tail.load.occupied[use.resource] += sign * use.occupancy;
}

}  // namespace ff::delta
