#include "common/task_graph/issue_order.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

namespace ff {

std::string task_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int index) {
  const Task& task = tasks.tasks[index];
  const Graph& graph = builder.graph();
  const std::string kind(to_string(task.kind));
  if (is_compute(task.kind) || is_reduction(task.kind))
    return graph.operators[task.op].name + "/" + kind + "/" + std::to_string(task.part);
  if (task.edge >= 0) {
    const Edge& edge = builder.edges()[task.edge];
    const std::string input = graph.operators[edge.consumer].name + ":" + std::to_string(edge.input);
    const std::string& tensor = graph.tensors[edge.tensor].name;
    const bool forward = direction_of(task.kind) == Direction::forward;
    const std::string way = (forward ? tensor + "->" + input : input + "->" + tensor) + "/" + kind + "/";
    if (is_edge_collective(task.kind)) return way + std::to_string(task.part);
    const std::string from = std::to_string(task.pair->producer_part), to = std::to_string(task.pair->consumer_part);
    return way + (forward ? from + "-" + to : to + "-" + from);
  }
  const std::string unit = std::to_string(part_of(task.key));  // the number of the unit's first piece
  const std::string name = builder.groups()[tasks.units[task.unit].group].name + "/" + kind + "/" + unit;
  return task.kind == TaskKind::update ? name + "@" + std::to_string(task.device) : name;
}

Vector<int> default_issue_order(const TaskGraph& graph) {
  // Whatever moves data goes out as soon as it can; then forward in graph order, then backward in reverse.
  const auto rank = [&](int index) {
    const Task& task = graph.tasks[index];
    const bool backward = is_compute(task.kind) && !is_forward(task.kind);
    const int phase = !is_compute(task.kind) ? 0 : backward ? 2 : 1;
    return std::make_tuple(phase, backward ? -task.op : task.op, task.key);
  };
  using Entry = std::pair<decltype(rank(0)), int>;
  std::priority_queue<Entry, Vector<Entry>, std::greater<>> ready;
  Vector<int32_t> waiting = graph.predecessor_count;
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    if (waiting[t] == 0) ready.emplace(rank(static_cast<int>(t)), static_cast<int>(t));
  Vector<int> order;
  while (!ready.empty()) {
    const int task = ready.top().second;
    ready.pop();
    order.push_back(task);
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s)
      if (--waiting[graph.successors[s]] == 0) ready.emplace(rank(graph.successors[s]), graph.successors[s]);
  }
  return order;
}

Vector<int> issue_order_from_names(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                   const Vector<std::string>& names) {
  std::unordered_map<std::string, int> by_name;
  for (size_t t = 0; t < graph.tasks.size(); ++t)
    if (!is_transfer(graph.tasks[t].kind))
      by_name.emplace(task_name(builder, graph, static_cast<int>(t)), static_cast<int>(t));
  if (names.size() != by_name.size()) return {};
  Vector<int> order, waiting(graph.predecessor_count.begin(), graph.predecessor_count.end());
  Vector<bool> issued(graph.tasks.size(), false);
  const auto issue = [&](int task) {
    if (issued[task] || waiting[task] != 0) return false;
    issued[task] = true;
    order.push_back(task);
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s)
      --waiting[graph.successors[s]];
    return true;
  };
  for (const std::string& name : names) {
    const auto it = by_name.find(name);
    if (it == by_name.end() || !issue(it->second)) return {};
    Vector<int> transfers;
    for (int32_t s = graph.successor_begin[it->second]; s < graph.successor_begin[it->second + 1]; ++s)
      if (is_transfer(graph.tasks[graph.successors[s]].kind)) transfers.push_back(graph.successors[s]);
    std::sort(transfers.begin(), transfers.end(),
              [&](int a, int b) { return graph.tasks[a].key < graph.tasks[b].key; });
    for (int transfer : transfers) issue(transfer);
  }
  return order;
}

Vector<std::string> issue_order_names(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                      const Vector<int>& order) {
  Vector<std::string> names;
  for (int task : order)
    if (!is_transfer(graph.tasks[task].kind)) names.push_back(task_name(builder, graph, task));
  return names;
}

}  // namespace ff
