// A task graph under construction: its tasks, and the order among them.
#pragma once

#include <utility>

#include "common/task_graph/task_graph.h"
#include "common/task_graph/wiring.h"
#include "common/vector.h"

namespace ff::assembly {

class Draft {
 public:
  // `devices`: whose tasks are to be there, ascending; empty: all.
  Draft(TaskGraphBuilder& builder, const Strategy& strategy, const Vector<DeviceId>& devices);

  TaskGraphBuilder& builder;
  const Graph& graph;
  const Strategy& strategy;
  TaskGraph result;

  bool whole() const { return result.devices.empty(); }
  bool is_here(DeviceId device) const { return whole() || (device < here_.count() && here_[device]); }
  bool any_here(const Vector<DeviceId>& devices) const {
    return std::any_of(devices.begin(), devices.end(), [&](DeviceId device) { return is_here(device); });
  }

  int32_t add(const Task& task) {
    result.tasks.push_back(task);
    return static_cast<int32_t>(result.tasks.size()) - 1;
  }
  // A task for each part; the index of the first.
  int32_t add_parts(OperatorId op, TaskKind kind);
  Task& task(int32_t index) { return result.tasks[index]; }

  // -1 stands for a task that is not here.
  void add_order(int32_t before, int32_t after) {
    if (before >= 0 && after >= 0) order_.emplace_back(before, after);
  }
  void connect(const Join& join, int32_t task);
  const Vector<std::pair<int32_t, int32_t>>& order() const { return order_; }

  // Of a part: its first or last task of the direction; -1 where the part is not here.
  int32_t first(Direction direction, OperatorId op, int32_t part) const { return task_of(first_, direction, op, part); }
  int32_t last(Direction direction, OperatorId op, int32_t part) const { return task_of(last_, direction, op, part); }
  // Behind it the part's gradients are there.
  int32_t very_last(OperatorId op, int32_t part) const {
    return last(last_direction(graph.operators[op].has_backward), op, part);
  }
  // Of the next operator, in this order: what add_parts said; -1: it has none.
  void set_parts(Direction direction, int32_t first, int32_t last) {
    first_[direction].push_back(first);
    last_[direction].push_back(last);
  }

  // Links the tasks.
  TaskGraph finish();

 private:
  int32_t task_of(const PerDirection<Vector<int32_t>>& begins, Direction direction, OperatorId op, int32_t part) const {
    const int place = result.place_of(op, part);
    const int32_t begin = begins[direction][op];
    return place < 0 || begin < 0 ? -1 : begin + place;
  }

  Vector<bool> here_;  // [device]; empty: all
  // [operator]: index of the first part's first and last task of the direction, which are one but for operators with
  // statistics; -1 where there is none.
  PerDirection<Vector<int32_t>> first_, last_;
  Vector<std::pair<int32_t, int32_t>> order_;  // (before, after)
};

}  // namespace ff::assembly
