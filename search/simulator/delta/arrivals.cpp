#include "search/simulator/delta/arrivals.h"

#include <algorithm>

namespace ff::delta {

void SlotLayout::add(TaskKind kind, int subject, int32_t capacity) {
  Vector<int32_t>& first = first_[static_cast<size_t>(kind)];
  first.resize(static_cast<size_t>(subject) + 1);
  first[subject] = count();
  for (int32_t part = 0; part < capacity; ++part) waiting_.push_back({kind, subject, part});
}

void SlotLayout::lay_out(const StrategyState& state) {
  const int32_t devices = static_cast<int32_t>(state.topology.devices.size());
  part_capacity_.resize(state.operators.size());
  unit_capacity_.resize(state.groups.size());
  waiting_.clear();
  for (OperatorId op = 0; op < state.count(); ++op) {
    int32_t& capacity = part_capacity_[op];
    capacity = std::max({capacity, devices, state.operators[op].parts()});
    for (Direction direction : directions) add(compute_kind(direction), op, capacity);
    if (!state.may_have_statistics[op]) continue;
    for (Direction direction : directions) add(reduction_kind(direction), op, capacity);
  }
  for (int e : state.edges.indices()) {  // an exchange has two parts at one end at least
    const Edge& edge = state.edge(e);
    const int32_t capacity = std::max(part_capacity_[edge.producer], part_capacity_[edge.consumer]) / 2;
    for (Direction direction : directions) add(collective_kind(direction), e, capacity);
  }
  for (size_t g = 0; g < state.groups.size(); ++g) {
    int32_t& capacity = unit_capacity_[g];
    capacity = std::max({capacity, 2 * devices, 2 * static_cast<int32_t>(state.groups[g].units.size())});
    add(TaskKind::synchronization, static_cast<int>(g), capacity);
  }
  if (state.has_owners()) add(TaskKind::barrier, 0, devices);
}

bool SlotLayout::fits(const StrategyState& state, OperatorId op) const {
  if (state.operators[op].parts() > part_capacity_[op]) return false;
  for (const auto& [g, position] : state.groups_of[op])
    if (static_cast<int32_t>(state.groups[g].units.size()) > unit_capacity_[g]) return false;
  return true;
}

void Arrivals::lay_out() {
  slots_.assign(layout_.count(), {});
  epoch_ = 1;
  partial_.clear();
}

void Arrivals::clear() {
  if (++epoch_ == 0) {
    for (Slot& slot : slots_) slot.epoch = 0;
    epoch_ = 1;
  }
  partial_.clear();
}

void Arrivals::save(Vector<Partial>& partial) const {
  partial.clear();
  for (const int32_t slot : partial_)
    partial.push_back({slot, slots_[slot].predecessors - slots_[slot].left, slots_[slot].ready});
}

void Arrivals::load(const Vector<Partial>& partial, Nanoseconds later) {
  clear();
  for (const auto& [slot, arrived, ready] : partial) {
    const int32_t predecessors = predecessors_of(slot);
    slots_[slot] = {ready + later, predecessors - arrived, epoch_, 0, predecessors};
    begin(slots_[slot], slot);
  }
}

int32_t Arrivals::predecessors_of(int32_t slot) const {
  const Waiting& waiting = layout_.waiting(slot);
  switch (waiting.kind) {
    case TaskKind::forward:
    case TaskKind::backward: return state_.tasks[waiting.subject].parts[waiting.part].waits[direction_of(waiting.kind)];
    case TaskKind::synchronization: return state_.groups[waiting.subject].units[waiting.part].waits;
    case TaskKind::barrier: return state_.parts_on[waiting.part];
    case TaskKind::activation_collective:
    case TaskKind::gradient_collective: {
      const Exchange& exchange = state_.edges[waiting.subject].exchanges->exchanges[waiting.part];
      return senders_of(exchange, direction_of(waiting.kind)).count();
    }
    default:
      return static_cast<int32_t>(
          state_.operators[waiting.subject].reductions[direction_of(waiting.kind)][waiting.part].parts.size());
  }
}

}  // namespace ff::delta
