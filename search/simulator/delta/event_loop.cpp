#include "search/simulator/delta/event_loop.h"

#include <algorithm>

namespace ff::delta {

void LoopState::shift(Nanoseconds later) {
  for (Arrivals::Partial& its : partial) its.ready += later;
  for (Event& event : queue) event.ready += later;
  for (Nanoseconds& time : free_at) time += later;
}

// ---- where the simulation stands ----

Vector<Event> EventLoop::initial_events(const StrategyState& state) {
  Vector<Event> initial;
  for (OperatorId op = 0; op < state.count(); ++op)
    for (int part = 0; part < state.operators[op].parts(); ++part)
      if (state.tasks[op].parts[part].waits[Direction::forward] == 0)
        initial.push_back({0, make_task_key(state.first_kind(Direction::forward, op), op, part, 0), 0, 0});
  std::sort(initial.begin(), initial.end(), earlier);
  return initial;
}

void EventLoop::start() {
  arrivals_.clear();
  queue_.clear();
  free_at_.assign(state_.resource_count(), 0);
  progress_.done.assign(state_.topology.devices.size(), {});
  progress_.synchronized = {};
  latest_end_ = 0;
}

void EventLoop::resume(const LoopState& from) {
  load(from, 0);
  progress_ = from.progress;
  latest_end_ = from.latest_end;
}

void EventLoop::skip(const LoopState& from, const LoopState& to, Nanoseconds later) {
  load(to, later);
  progress_.add(from.progress, to.progress);
}

void EventLoop::load(const LoopState& from, Nanoseconds later) {
  arrivals_.load(from.partial, later);
  queue_.load(from.queue, later);
  free_at_ = from.free_at;
  if (later != 0)
    for (Nanoseconds& free_at : free_at_) free_at += later;
}

void EventLoop::save(LoopState& to) {
  arrivals_.save(to.partial);
  queue_.save(to.queue);
  to.free_at = free_at_;
  to.progress = progress_;
  to.latest_end = latest_end_;
}

// ---- taking tasks ----

TaskTime EventLoop::take(const Event& event, Nanoseconds limit) {
  switch (kind_of(event.key)) {
    case TaskKind::forward:
    case TaskKind::forward_statistics: return take_compute<Direction::forward>(event, limit);
    case TaskKind::backward:
    case TaskKind::backward_statistics: return take_compute<Direction::backward>(event, limit);
    case TaskKind::forward_reduction: return take_reduction<Direction::forward>(event, limit);
    case TaskKind::backward_reduction: return take_reduction<Direction::backward>(event, limit);
    case TaskKind::activation: return take_transfer<Direction::forward>(event, limit);
    case TaskKind::gradient: return take_transfer<Direction::backward>(event, limit);
    case TaskKind::activation_collective: return take_collective<Direction::forward>(event, limit);
    case TaskKind::gradient_collective: return take_collective<Direction::backward>(event, limit);
    case TaskKind::synchronization: return take_synchronization(event, limit);
    case TaskKind::update: return take_update(event, limit);
    case TaskKind::barrier: return take_barrier(event, limit);
    case TaskKind::parameter_gradient: return take_parameter_gradient(event, limit);
    case TaskKind::parameter_values: return take_parameter_values(event, limit);
    case TaskKind::recompute:
    case TaskKind::parameter_all_gather:
    case TaskKind::parameter_copy: break;  // make_chain_oracle: simulated in full
  }
  return {};
}

template <Direction direction>
TaskTime EventLoop::take_compute(const Event& event, Nanoseconds limit) {
  const TaskKind kind = kind_of(event.key);
  const OperatorId op = subject_of(event.key);
  const int part = part_of(event.key);
  const PartTasks& tasks = state_.tasks[op].parts[part];
  DeviceTask task{tasks.device, tasks.duration[direction], bounds_.paths().tail[direction][op],
                  bounds_.tails_behind(direction, op)};
  if (is_statistics(kind)) {
    const OperatorState& state = state_.operators[op];
    task.duration = state_.tasks[op].statistics[direction][part];
    task.path_behind += state.kernel[direction][part] - state.statistics_kernel[direction][part];
    task.path_behind = std::max(task.path_behind, bounds_.paths().behind_reduction(direction, op)) +
                       state.reductions[direction][state.reduction_of[part]].collective.duration;
  }
  const TaskTime time = take_on_device(event, task, limit);
  if (!time) return time;
  if (is_statistics(kind)) arrive_reduction(direction, op, part, time.end);
  else follow<direction>(op, part, time.end);
  return time;
}

template <Direction direction>
TaskTime EventLoop::take_reduction(const Event& event, Nanoseconds limit) {
  const OperatorId op = subject_of(event.key);
  const ReductionState& reduction = state_.operators[op].reductions[direction][part_of(event.key)];
  const TaskTime time = occupy(event.ready, reduction.collective);
  if (Bounds::exceed_at(time, bounds_.paths().behind_reduction(direction, op), limit)) return {};
  const PartTasksAt released = reduction_join(direction, op, reduction.parts).released;
  for (const int32_t part : released.parts)
    queue_.push({time.end, make_task_key(compute_kind(direction), released.op, part, 0), 0, 0});
  return time;
}

template <Direction direction>
TaskTime EventLoop::take_transfer(const Event& event, Nanoseconds limit) {
  const int e = subject_of(event.key);
  const Edge& edge = state_.edge(e);
  const BlockPair& pair = (*state_.edges[e].plan->pairs)[event.index];
  const OperatorId from = sender_of(edge, direction), to = receiver_of(edge, direction);
  const int32_t to_part = receiver_of(pair, direction);
  state_.costs.communication().transfer(state_.operators[from].devices[sender_of(pair, direction)],
                                        state_.operators[to].devices[to_part], pair.bytes, transfer_cost_);
  const TaskTime time = occupy(event.ready, transfer_cost_);
  if (Bounds::exceed_at(time, bounds_.paths().behind_arrival(direction, to), limit)) return {};
  arrive<direction>(to, to_part, time.end);
  return time;
}

template <Direction direction>
TaskTime EventLoop::take_collective(const Event& event, Nanoseconds limit) {
  const int e = subject_of(event.key), number = part_of(event.key);
  const EdgeState& edge = state_.edges[e];
  const PartTasksAt released = exchange_join(direction, state_.edge(e), edge.exchanges->exchanges[number]).released;
  const TaskTime time = occupy(event.ready, edge.collectives[number][direction]);
  if (Bounds::exceed_at(time, bounds_.paths().behind_arrival(direction, released.op), limit)) return {};
  for (const int32_t part : released.parts) arrive<direction>(released.op, part, time.end);
  return time;
}

TaskTime EventLoop::take_synchronization(const Event& event, Nanoseconds limit) {
  const int g = subject_of(event.key);
  const UnitState& unit = state_.groups[g].units[event.index];
  const TaskTime time = occupy(event.ready, unit.collective);
  if (bounds_.exceed_at(g, unit, event.ready, time, limit, progress_)) return {};
  release_successors<TaskKind::synchronization>(unit, event, time.end);
  return time;
}

TaskTime EventLoop::take_update(const Event& event, Nanoseconds limit) {
  const int g = subject_of(event.key);
  const UnitState& unit = state_.groups[g].units[event.index];
  const DeviceId device = unit.holders[event.holder];
  const bool owns = device == unit.owner;
  const TaskTime time = take_on_device(event, {device, unit.update[event.holder], owns ? unit.behind_owner : 0}, limit);
  if (time) release_successors<TaskKind::update>(unit, event, time.end);
  return time;
}

// Not counted in the bounds' work of a device.
TaskTime EventLoop::take_barrier(const Event& event, Nanoseconds limit) {
  const DeviceId device = part_of(event.key);
  int64_t packed = 0;  // bytes
  held_.clear();
  for (int g : state_.groups.indices()) {
    const Vector<UnitState>& units = state_.groups[g].units;
    for (int32_t u : units.indices())
      if (const int32_t place = place_of(units[u], device); place >= 0) {
        packed += units[u].packed_bytes[place];
        held_.push_back({g, u, place});
      }
  }
  const Nanoseconds start = std::max(event.ready, free_at_[device]);
  const TaskTime time{start, start + state_.costs.barrier_ns(packed, state_.model_of(device))};
  free_at_[device] = time.end;
  if (time.end > limit) return {};
  for (const auto& [g, u, place] : held_) {
    const UnitState& unit = state_.groups[g].units[u];
    for_each_successor<TaskKind::barrier>(unit, AfterUpdate::owner_sends, place, [&, g = g, u = u](UnitTask next) {
      release<TaskKind::barrier>(g, u, unit, next, time.end);
    });
  }
  return time;
}

TaskTime EventLoop::take_parameter_gradient(const Event& event, Nanoseconds limit) {
  const int g = subject_of(event.key);
  const UnitState& unit = state_.groups[g].units[event.index];
  state_.costs.communication().transfer(unit.holders[event.holder], unit.owner, unit.bytes, transfer_cost_);
  const TaskTime time = occupy(event.ready, transfer_cost_);
  if (Bounds::exceed_at(time, unit.update[place_of(unit, unit.owner)] + unit.behind_owner, limit)) return {};
  release_successors<TaskKind::parameter_gradient>(unit, event, time.end);
  return time;
}

TaskTime EventLoop::take_parameter_values(const Event& event, Nanoseconds limit) {
  const int g = subject_of(event.key);
  const UnitState& unit = state_.groups[g].units[event.index];
  state_.costs.communication().transfer(unit.owner, unit.holders[event.holder], unit.bytes, transfer_cost_);
  const TaskTime time = occupy(event.ready, transfer_cost_);
  if (Bounds::exceed_at(time, unit.update[event.holder], limit)) return {};
  release_successors<TaskKind::parameter_values>(unit, event, time.end);
  return time;
}

TaskTime EventLoop::take_on_device(const Event& event, const DeviceTask& task, Nanoseconds limit) {
  const Nanoseconds start = std::max(event.ready, free_at_[task.device]);
  const TaskTime time{start, start + task.duration};
  free_at_[task.device] = time.end;
  if (bounds_.exceed_at(task, time, limit, progress_)) return {};
  return time;
}

TaskTime EventLoop::occupy(Nanoseconds ready, const CommunicationCost& cost) {
  Nanoseconds start = ready;
  for (const ResourceUse& use : cost.uses) start = std::max(start, free_at_[use.resource]);
  for (const ResourceUse& use : cost.uses) free_at_[use.resource] = start + use.occupancy;
  for (const auto& [device, work] : cost.beside)
    free_at_[device] = free_behind(free_at_[device], start, cost.duration, work);
  return {start, start + cost.duration};
}

// ---- what follows a task (wiring.h) ----

template <Direction direction>
void EventLoop::follow(OperatorId op, int part, Nanoseconds end) {
  const PartTasks& tasks = state_.tasks[op].parts[part];
  for (const auto& [e, next] : state_.successors[direction][op]) {
    if (state_.edges[e].has_collectives()) {
      arrive_collective<direction>(e, part, end);
      continue;
    }
    const EdgePlan& plan = *state_.edges[e].plan;
    const Vector<PartTasks>& next_parts = state_.tasks[next].parts;
    if (plan.one_to_one) {
      if (next_parts[part].device == tasks.device) arrive<direction>(next, part, end);
      else queue_.push({end, make_task_key(transfer_kind(direction), e, part, part), part, 0});
      continue;
    }
    plan.for_each_pair_of_sender<direction>(part, [&, e = e, next = next](const BlockPair& pair, int32_t index) {
      const int32_t next_part = receiver_of(pair, direction);
      if (next_parts[next_part].device == tasks.device) arrive<direction>(next, next_part, end);
      else
        queue_.push(
            {end, make_task_key(transfer_kind(direction), e, pair.consumer_part, pair.producer_part), index, 0});
    });
  }
  const bool has_backward = direction == Direction::backward || state_.has_backward(op);
  if (direction == last_direction(has_backward)) {
    if (state_.has_owners()) arrive_barrier(tasks.device, end);
    else arrive_units(op, part, end);
  } else if (tasks.waits[Direction::backward] == 0) {
    queue_.push({end, make_task_key(state_.first_kind(Direction::backward, op), op, part, 0), 0, 0});
  }
}

template <TaskKind kind>
void EventLoop::release_successors(const UnitState& unit, const Event& event, Nanoseconds end) {
  for_each_successor<kind>(unit, unit.owner == no_owner ? AfterUpdate::nothing : AfterUpdate::owner_sends, event.holder,
                           [&](UnitTask next) { release<kind>(subject_of(event.key), event.index, unit, next, end); });
}

// An owner's update waits for barrier and gradients, all others wait for one task.
template <TaskKind before>
void EventLoop::release(int g, int32_t u, const UnitState& unit, UnitTask next, Nanoseconds end) {
  constexpr bool may_wait = before == TaskKind::barrier || before == TaskKind::parameter_gradient;
  if (!may_wait || next.kind != TaskKind::update) return push(g, u, unit, next, end);
  const int32_t slot = layout_.slot(TaskKind::synchronization, g, u);
  if (arrivals_.arrive(slot, unit.waits, end)) push(g, u, unit, next, arrivals_.ready(slot));
}

inline void EventLoop::push(int g, int32_t u, const UnitState& unit, UnitTask task, Nanoseconds ready) {
  const DeviceId device = task.kind == TaskKind::synchronization ? 0 : unit.holders[task.place];
  queue_.push({ready, make_task_key(task.kind, g, unit.number, device), u, task.place});
}

template <Direction direction>
void EventLoop::arrive(OperatorId op, int part, Nanoseconds end) {
  const int32_t slot = layout_.slot(compute_kind(direction), op, part);
  if (arrivals_.arrive(slot, state_.tasks[op].parts[part].waits[direction], end))
    queue_.push({arrivals_.ready(slot), make_task_key(state_.first_kind(direction, op), op, part, 0), 0, 0});
}

template <Direction direction>
void EventLoop::arrive_collective(int e, int part, Nanoseconds end) {
  const EdgeExchanges& edge = *state_.edges[e].exchanges;
  const int32_t number = exchange_of_sender(edge, direction, part);
  if (number < 0) return;
  const int32_t slot = layout_.slot(collective_kind(direction), e, number);
  if (arrivals_.arrive(slot, senders_of(edge.exchanges[number], direction).count(), end))
    queue_.push({arrivals_.ready(slot), make_task_key(collective_kind(direction), e, number, 0), 0, 0});
}

void EventLoop::arrive_reduction(Direction direction, OperatorId op, int part, Nanoseconds end) {
  const OperatorState& state = state_.operators[op];
  const int group = state.reduction_of[part];
  const int32_t slot = layout_.slot(reduction_kind(direction), op, group);
  if (arrivals_.arrive(slot, static_cast<int32_t>(state.reductions[direction][group].parts.size()), end))
    queue_.push({arrivals_.ready(slot), make_task_key(reduction_kind(direction), op, group, 0), 0, 0});
}

void EventLoop::arrive_barrier(DeviceId device, Nanoseconds end) {
  const int32_t slot = layout_.slot(TaskKind::barrier, 0, device);
  if (arrivals_.arrive(slot, state_.parts_on[device], end))
    queue_.push({arrivals_.ready(slot), make_task_key(TaskKind::barrier, 0, device, 0), 0, 0});
}

void EventLoop::arrive_units(OperatorId op, int part, Nanoseconds end) {
  for (const auto& [g, position] : state_.groups_of[op]) {
    const GroupState& group = state_.groups[g];
    if (group.one_unit) {
      arrive_unit(g, 0, group.units[0], end);
      continue;
    }
    for (int32_t u : group.units_of_shard[group.lists[position]->shard_of_part[part]])
      arrive_unit(g, u, group.units[u], end);
  }
}

void EventLoop::arrive_unit(int g, int32_t u, const UnitState& unit, Nanoseconds end) {
  const int32_t slot = layout_.slot(TaskKind::synchronization, g, u);
  if (arrivals_.arrive(slot, unit.waits, end)) push(g, u, unit, after_contributors(unit), arrivals_.ready(slot));
}

}  // namespace ff::delta
