#include "search/simulator/delta/touched.h"

namespace ff::delta {

void Touched::find(const KnownTimeline& timeline) {
  for (OperatorId op : changed_) is_changed_[op] = 0;
  for (OperatorId op : touched_) is_touched_[op] = 0;
  for (int g : touched_groups_) is_touched_group_[g] = 0;
  changed_.clear();
  touched_.clear();
  touched_groups_.clear();
  for (const auto& before : state_.replaced().operators) {
    changed_.push_back(before.op);
    is_changed_[before.op] = 1;
  }
  for (const auto& before : state_.replaced().tasks) {
    touched_.push_back(before.op);
    is_touched_[before.op] = 1;
  }
  for (const auto& [g, before] : state_.replaced().groups) {
    touched_groups_.push_back(g);
    is_touched_group_[g] = 1;
  }
  find_first_forward(timeline);
  find_first_contribution(timeline);
  find_places(timeline);
}

// A changed operator first matters when a producer ends a forward task.
void Touched::find_first_forward(const KnownTimeline& timeline) {
  first_forward_ = KnownTimeline::never;
  for (OperatorId op : changed_)
    for (int e : state_.in_edges[op])
      first_forward_ = std::min(first_forward_, timeline.first_forward(state_.edge(e).producer));
  // A part that reads graph inputs alone is ready from the start, so it is in every snapshot's past.
  const auto reads_inputs_alone = [](const OperatorTasks& tasks) {
    return std::any_of(tasks.parts.begin(), tasks.parts.end(),
                       [](const PartTasks& part) { return part.waits[Direction::forward] == 0; });
  };
  for (const auto& [op, before] : state_.replaced().tasks)
    if (is_changed_[op] && (reads_inputs_alone(before) || reads_inputs_alone(state_.tasks[op]))) first_forward_ = 0;
}

// The first task of an unchanged operator whose gradient is for a touched group.
void Touched::find_first_contribution(const KnownTimeline& timeline) {
  first_contribution_ = state_.has_owners() ? timeline.first_before_barrier() : KnownTimeline::never;
  for (int g : touched_groups_)
    for (OperatorId op : state_.builder.groups()[g].operators) {
      if (is_changed_[op]) continue;
      const TaskKind kind = compute_kind(last_direction(state_.has_backward(op)));
      for (int part = 0; part < state_.operators[op].parts(); ++part)
        first_contribution_ = std::min(first_contribution_, timeline.recorded(kind, op, part).position);
    }
}

void Touched::find_places(const KnownTimeline& timeline) {
  last_forward_ = last_backward_ = 0;
  first_backward_ = KnownTimeline::never;
  for (const auto& [op, before] : state_.replaced().tasks)
    for (int part = 0; part < static_cast<int>(before.parts.size()); ++part) {
      last_forward_ = std::max(last_forward_, timeline.recorded(TaskKind::forward, op, part).position);
      if (!state_.has_backward(op)) continue;
      const size_t position = timeline.recorded(TaskKind::backward, op, part).position;
      last_backward_ = std::max(last_backward_, position);
      first_backward_ = std::min(first_backward_, position);
    }
  last_backward_ = state_.has_owners() ? KnownTimeline::never : std::max(last_backward_, last_forward_);
  // A producer's part that the operator no longer reads (a strided window may leave gaps) waits for fewer gradients,
  // and may begin before any of the events that were touched: nothing may be skipped then.
  for (OperatorId op : changed_)
    for (int e : state_.in_edges[op])
      if (state_.edge_has_gradient[e] && !state_.every_part_is_read[e]) first_backward_ = 0;
}

bool Touched::contains(TaskKey task) const {
  const int subject = subject_of(task);
  const TaskKind kind = kind_of(task);
  if (is_transfer(kind) || is_edge_collective(kind)) return is_changed_edge(subject);
  if (kind == TaskKind::synchronization || kind == TaskKind::update) return is_touched_group_[subject];
  if (kind == TaskKind::barrier || is_parameter_transfer(kind)) return true;
  return is_touched_[subject];
}

bool Touched::contains(const Waiting& waiting) const {
  if (is_edge_collective(waiting.kind)) return is_changed_edge(waiting.subject);
  if (waiting.kind == TaskKind::barrier) return true;
  return waiting.kind == TaskKind::synchronization ? is_touched_group_[waiting.subject] : is_touched_[waiting.subject];
}

}  // namespace ff::delta
