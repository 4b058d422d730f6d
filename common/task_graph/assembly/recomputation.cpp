#include "common/task_graph/assembly/recomputation.h"

#include <tuple>

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
    if (!reads_recomputed(draft_.builder, edge) || !draft_.result.pairs[e]) continue;
    for (const BlockPair& pair : *draft_.result.pairs[e]) {
      const int32_t producer = task_of(edge.producer, pair.producer_part);
      if (producer < 0 || !reads_recomputed(draft_.builder, draft_.strategy, e, pair)) continue;
      if (const int32_t consumer = task_of(edge.consumer, pair.consumer_part); consumer >= 0) {
        draft_.add_order(producer, consumer);
        segments.join(producer, consumer);
      } else {
        readers_.push_back({producer, edge.consumer, pair.consumer_part});
      }
    }
  }
  start_segments(begin, segments);
}

// The parts of each segment's last operator, of those that are recomputed and those that read them; by first task of
// the segment.
std::map<int32_t, Recomputation::Parts> Recomputation::last_of_segments(int32_t begin, int32_t end,
                                                                        Segments& segments) const {
  std::map<int32_t, Parts> last;
  const auto add = [&](int32_t task, OperatorId op, int32_t part) {
    Parts& parts = last[segments.first_of(task)];
    if (!parts.empty() && parts[0].first > op) return;
    if (!parts.empty() && parts[0].first < op) parts.clear();
    parts.emplace_back(op, part);
  };
  for (int32_t task = begin; task < end; ++task)
    add(task, draft_.result.tasks[task].op, draft_.result.tasks[task].part);
  for (const Reader& reader : readers_) add(reader.recomputed, reader.op, reader.part);
  for (auto& [segment, parts] : last) sort_and_unique(parts);
  return last;
}

// A segment begins when the gradient of its last operator's outputs is there. No operator after that one belongs to
// the segment, or reads it, so that nothing waits in a circle.
void Recomputation::start_segments(int32_t begin, Segments& segments) {
  const int32_t end = static_cast<int32_t>(draft_.result.tasks.size());
  const std::map<int32_t, Parts> last = last_of_segments(begin, end, segments);
  Vector<int> number(end, -1);           // [task]: of a backward task of the last operators
  Vector<Vector<int32_t>> gradients_of;  // by number: what it waits for
  for (const auto& [segment, parts] : last)
    for (const auto& [op, part] : parts)
      if (int& known = number[backward_of(op, part)]; known < 0)
        known = gradients_of.count(), gradients_of.emplace_back();
  for (const auto& [before, after] : draft_.order())
    if (number[after] >= 0) gradients_of[number[after]].push_back(before);
  const auto forward_of = [&](OperatorId op, int32_t part) { return draft_.last(Direction::forward, op, part); };
  for (const Reader& reader : readers_) draft_.add_order(reader.recomputed, backward_of(reader.op, reader.part));
  for (int32_t task = begin; task < end; ++task) {
    const Parts& parts = last.at(segments.first_of(task));
    std::tie(draft_.task(task).before_op, draft_.task(task).before_part) = parts[0];
    const OperatorId op = draft_.task(task).op;
    const int32_t part = draft_.task(task).part;
    draft_.add_order(forward_of(op, part), task);
    draft_.add_order(task, backward_of(op, part));
    if (segments.reads_recomputed(task)) continue;
    for (const auto& [last_op, last_part] : parts)
      for (const int32_t gradient : gradients_of[number[backward_of(last_op, last_part)]])
        if (gradient != forward_of(last_op, last_part)) draft_.add_order(gradient, task);
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
    for (const Edge& edge : draft_.builder.edges())
      if (reads_recomputed(draft_.builder, edge))
        last[segments.first_of(edge.producer)] = std::max(last[segments.first_of(edge.producer)], edge.consumer);
    for (OperatorId one : draft_.graph.operator_ids()) last_with_.push_back(last[segments.first_of(one)]);
  }
  return last_with_[op];
}

}  // namespace ff::assembly
