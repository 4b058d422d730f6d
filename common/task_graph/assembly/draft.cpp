#include "common/task_graph/assembly/draft.h"

namespace ff::assembly {

Draft::Draft(TaskGraphBuilder& builder_, const Strategy& strategy_, const Vector<DeviceId>& devices)
    : builder(builder_), graph(builder_.graph()), strategy(strategy_) {
  result.devices = devices;
  if (!devices.empty()) here_.assign(devices.back() + 1, false);
  for (const DeviceId device : devices) here_[device] = true;
  result.synchronization = builder.synchronization();
  result.synchronization_of_group = builder.synchronization_by_group();
  result.pairs.resize(builder.edges().size());
  DeviceId most = -1;
  for (OperatorId op : graph.operator_ids()) {
    Vector<int32_t>& parts = result.parts.emplace_back();
    const Vector<DeviceId>& of_parts = strategy[op].devices;
    check_parts_in_keys(graph.operators[op].name, of_parts.count());
    for (int32_t part = 0; part < of_parts.count(); ++part) {
      if (is_here(of_parts[part])) parts.push_back(part);
      most = std::max(most, of_parts[part]);
    }
  }
  check_room_in_keys("strategy", "devices", int64_t{most} + 1, most_key_parts);
  size_t parts = 0;
  for (const Vector<int32_t>& of_operator : result.parts) parts += of_operator.size();
  const size_t tasks = parts * (builder.recomputes() ? 3 : 2);  // of parts; transfers and collectives come on top
  result.tasks.reserve(tasks + tasks / 4);
  order_.reserve(2 * tasks);
}

int32_t Draft::add_parts(OperatorId op, TaskKind kind) {
  const int32_t begin = static_cast<int32_t>(result.tasks.size());
  for (const int32_t part : result.parts[op]) {
    Task task{make_task_key(kind, op, part, 0), kind};
    task.op = op;
    task.part = part;
    task.device = strategy[op].devices[part];
    add(task);
  }
  return begin;
}

void Draft::connect(const Join& join, int32_t task) {
  const auto end_of = [&](const PartTasksAt& ends, int32_t part) {
    return ends.end == PartTasksAt::End::first ? first(ends.direction, ends.op, part)
                                               : last(ends.direction, ends.op, part);
  };
  for (const int32_t part : join.awaited.parts) add_order(end_of(join.awaited, part), task);
  for (const int32_t part : join.released.parts) add_order(task, end_of(join.released, part));
}

TaskGraph Draft::finish() {
  const size_t count = result.tasks.size();
  result.successor_begin.assign(count + 1, 0);
  result.predecessor_count.assign(count, 0);
  for (const auto& [before, after] : order_) {
    ++result.successor_begin[before + 1];
    ++result.predecessor_count[after];
  }
  for (size_t t = 0; t < count; ++t) result.successor_begin[t + 1] += result.successor_begin[t];
  result.successors.resize(order_.size());
  Vector<int32_t> next(result.successor_begin.begin(), result.successor_begin.end() - 1);
  for (const auto& [before, after] : order_) result.successors[next[before]++] = after;
  return std::move(result);
}

}  // namespace ff::assembly
