#include "common/task_graph/assembly/recomputation.h"

#include "common/task_graph/recomputed_edges.h"

namespace ff::assembly {

void Recomputation::add() {
  const int32_t begin = static_cast<int32_t>(draft_.result.tasks.size());
  recomputed_.assign(draft_.graph.operators.size(), -1);
  for (OperatorId op : draft_.graph.operator_ids())
    if (draft_.builder.recomputed(op)) {
      recomputed_[op] = draft_.add_parts(op, TaskKind::recompute);
      for (int32_t task = recomputed_[op]; task < static_cast<int32_t>(draft_.result.tasks.size()); ++task)
        draft_.task(task).computed = draft_.builder.computed_again(op);
    }
  Segments segments(begin, static_cast<int32_t>(draft_.result.tasks.size()));
  for (int e : draft_.builder.edges().indices()) {
    const Edge& edge = draft_.builder.edges()[e];
    if (recomputed_[edge.producer] < 0 || recomputed_[edge.consumer] < 0 || !draft_.result.pairs[e]) continue;
    for (const BlockPair& pair : *draft_.result.pairs[e]) {
      const int32_t producer = task_of(edge.producer, pair.producer_part),
                    consumer = task_of(edge.consumer, pair.consumer_part);
      if (producer < 0 || consumer < 0 || !recomputed_in_place(draft_.builder, draft_.strategy, e, pair)) continue;
      draft_.add_order(producer, consumer);
      segments.join(producer, consumer);
    }
  }
  start_segments(begin, segments);
}

// The tasks of each segment's last operator.
Recomputation::TasksOfSegment Recomputation::last_of_segments(int32_t begin, int32_t end, Segments& segments) {
  TasksOfSegment last;
  for (int32_t task = begin; task < end; ++task) {  // ascending by operator and part
    Vector<int32_t>& tasks = last[segments.first_of(task)];
    if (!tasks.empty() && draft_.task(tasks[0]).op != draft_.task(task).op) tasks.clear();
    tasks.push_back(task);
  }
  return last;
}

int32_t Recomputation::backward_of(int32_t task) {
  return draft_.first(Direction::backward, draft_.task(task).op, draft_.task(task).part);
}

// A segment begins when the gradient of its last operator's outputs is there. No operator after that one belongs to
// the segment, so that nothing waits in a circle.
void Recomputation::start_segments(int32_t begin, Segments& segments) {
  const int32_t end = static_cast<int32_t>(draft_.result.tasks.size());
  const TasksOfSegment last = last_of_segments(begin, end, segments);
  Vector<int> number(end, -1);           // [task]: of a backward task of the last operators
  Vector<Vector<int32_t>> gradients_of;  // by number: what it waits for
  for (const auto& [segment, tasks] : last)
    for (const int32_t task : tasks)
      if (int& known = number[backward_of(task)]; known < 0) known = gradients_of.count(), gradients_of.emplace_back();
  for (const auto& [before, after] : draft_.order())
    if (number[after] >= 0) gradients_of[number[after]].push_back(before);
  const auto forward_of = [&](int32_t task) {
    return draft_.last(Direction::forward, draft_.task(task).op, draft_.task(task).part);
  };
  for (int32_t task = begin; task < end; ++task) {
    const Vector<int32_t>& tasks = last.at(segments.first_of(task));
    draft_.task(task).before_op = draft_.task(tasks[0]).op;
    draft_.task(task).before_part = draft_.task(tasks[0]).part;
    draft_.add_order(forward_of(task), task);
    draft_.add_order(task, backward_of(task));
    if (segments.reads_recomputed(task)) continue;
    for (const int32_t end_of_segment : tasks)
      for (const int32_t gradient : gradients_of[number[backward_of(end_of_segment)]])
        if (gradient != forward_of(end_of_segment)) draft_.add_order(gradient, task);
  }
}

OperatorId Recomputation::last_with(OperatorId op) {
  if (!draft_.builder.recomputed(op)) return op;
  if (last_with_.empty()) {
    Segments segments(0, draft_.graph.operators.count());
    for (const Edge& edge : draft_.builder.edges())
      if (draft_.builder.recomputed(edge.producer) && draft_.builder.recomputed(edge.consumer))
        segments.join(edge.producer, edge.consumer);
    Vector<OperatorId> last(draft_.graph.operators.count(), 0);
    for (OperatorId one : draft_.graph.operator_ids()) last[segments.first_of(one)] = one;
    for (OperatorId one : draft_.graph.operator_ids()) last_with_.push_back(last[segments.first_of(one)]);
  }
  return last_with_[op];
}

}  // namespace ff::assembly
