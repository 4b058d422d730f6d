#include "common/task_graph/issue_order.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>

#include "common/number_ranges.h"

namespace ff {
namespace {

// The name of a task that is no transfer: PREFIX/NUMBER, of updates PREFIX/NUMBER@DEVICE.
struct NameParts {
  uint64_t prefix;  // which one, by kind and operator or group
  int number;       // part, group of parts, or the number of a unit's first piece
  DeviceId device;  // of updates; else -1
};

NameParts name_parts(const Task& task) {
  return {task.key >> 40, part_of(task.key), task.kind == TaskKind::update ? task.device : -1};
}

// "conv1->pool1:0/activation"
std::string name_of_way(const TaskGraphBuilder& builder, const Task& task) {
  const Edge& edge = builder.edges()[task.edge];
  const std::string input = builder.graph().operators[edge.consumer].name + ":" + std::to_string(edge.input);
  const std::string& tensor = builder.graph().tensors[edge.tensor].name;
  const bool forward = direction_of(task.kind) == Direction::forward;
  return (forward ? tensor + "->" + input : input + "->" + tensor) + "/" + std::string(to_string(task.kind));
}

std::string name_prefix(const TaskGraphBuilder& builder, const TaskGraph& tasks, const Task& task) {
  if (is_edge_collective(task.kind)) return name_of_way(builder, task);
  const bool of_operator = is_compute(task.kind) || is_reduction(task.kind);
  return (of_operator ? builder.graph().operators[task.op].name : builder.groups()[tasks.units[task.unit].group].name) +
         "/" + std::string(to_string(task.kind));
}

// The tasks that are no transfers, by name.
class NamedTasks {
 public:
  NamedTasks(const TaskGraphBuilder& builder, const TaskGraph& tasks) {
    std::unordered_map<uint64_t, size_t> known;
    for (const int t : tasks.tasks.indices()) {
      const Task& task = tasks.tasks[t];
      if (is_transfer(task.kind)) continue;
      const NameParts parts = name_parts(task);
      const auto [at, added] = known.emplace(parts.prefix, by_number_.size());
      if (added) {
        by_prefix_.emplace(name_prefix(builder, tasks, task), by_number_.size());
        by_number_.emplace_back();
      }
      by_number_[at->second].emplace(number_and_device(parts.number, parts.device), t);
      ++count_;
    }
  }

  size_t count() const { return count_; }

  // Appends the tasks of an entry of the issue order. False when the entry is not of the notation, or names a task that
  // is not there, or more than all.
  bool append(const std::string& entry, Vector<int>& tasks) const {
    const size_t slash = entry.rfind('/');
    if (slash == std::string::npos) return false;
    const auto prefix = by_prefix_.find(entry.substr(0, slash));
    if (prefix == by_prefix_.end()) return false;
    const size_t at = std::min(entry.find('@', slash), entry.size());
    const auto numbers = NumberRanges::parse(std::string_view(entry).substr(slash + 1, at - slash - 1));
    auto devices = std::optional<NumberRanges>();
    if (at < entry.size()) devices = NumberRanges::parse(std::string_view(entry).substr(at + 1));
    if (!numbers || (at < entry.size() && !devices)) return false;
    // One number with many devices is that of all of them; else they go in pairs.
    const int64_t count = devices ? devices->count() : numbers->count();
    if (count > static_cast<int64_t>(count_) || (numbers->count() != count && numbers->count() != 1)) return false;
    const Vector<int64_t> all_numbers = numbers->numbers();
    const Vector<int64_t> all_devices = devices ? devices->numbers() : Vector<int64_t>();
    for (int64_t i = 0; i < count; ++i) {
      const auto& tasks_of_prefix = by_number_[prefix->second];
      const auto task = tasks_of_prefix.find(
          number_and_device(all_numbers[all_numbers.size() == 1 ? 0 : i], devices ? all_devices[i] : -1));
      if (task == tasks_of_prefix.end()) return false;
      tasks.push_back(task->second);
    }
    return true;
  }

 private:
  // Both are below 2^20, as in task keys, or in no task's name.
  static int64_t number_and_device(int64_t number, int64_t device) {
    return number >> 20 || (device + 1) >> 21 ? -1 : number << 21 | (device + 1);
  }

  std::unordered_map<std::string, size_t> by_prefix_;
  Vector<std::unordered_map<int64_t, int>> by_number_;
  size_t count_ = 0;
};

// Tasks of one prefix, one behind the other, as few entries.
void append_entries(const std::string& prefix, const Vector<NameParts>& tasks, Vector<std::string>& entries) {
  const auto entry = [&](size_t begin, size_t end) {
    Vector<int64_t> numbers, devices;
    for (size_t i = begin; i < end; ++i) {
      numbers.push_back(tasks[i].number);
      devices.push_back(tasks[i].device);
    }
    const bool one_number = std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n == numbers[0]; });
    if (tasks[begin].device < 0) entries.push_back(prefix + "/" + number_ranges(numbers));
    else if (one_number) entries.push_back(prefix + "/" + std::to_string(numbers[0]) + "@" + number_ranges(devices));
    else entries.push_back(prefix + "/" + number_ranges(numbers) + "@" + number_ranges(devices));
  };
  if (tasks[0].device < 0) return entry(0, tasks.size());
  // Updates of one unit on several devices are an entry, and so are those of successive units on one device each.
  size_t begin = 0;
  for (size_t at = 0; at < tasks.size();) {
    size_t end = at;
    while (end < tasks.size() && tasks[end].number == tasks[at].number) ++end;
    if (end - at > 1) {
      if (begin < at) entry(begin, at);
      entry(at, end);
      begin = end;
    }
    at = end;
  }
  if (begin < tasks.size()) entry(begin, tasks.size());
}

// An order of all tasks: the given ones, which are no transfers, as they come, and every transfer right behind the task
// that produces its data. Empty where these are not all, or contradict the task graph.
Vector<int> with_transfers(const TaskGraph& graph, const Vector<int>& tasks) {
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
  Vector<int> transfers;
  for (const int task : tasks) {
    if (!issue(task)) return {};
    transfers.clear();
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s)
      if (is_transfer(graph.tasks[graph.successors[s]].kind)) transfers.push_back(graph.successors[s]);
    std::sort(transfers.begin(), transfers.end(),
              [&](int a, int b) { return graph.tasks[a].key < graph.tasks[b].key; });
    for (int transfer : transfers) issue(transfer);
  }
  return order;
}

Vector<int> without_transfers(const TaskGraph& graph, const Vector<int>& order) {
  Vector<int> tasks;
  for (const int task : order)
    if (!is_transfer(graph.tasks[task].kind)) tasks.push_back(task);
  return tasks;
}

}  // namespace

std::string task_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int index) {
  const Task& task = tasks.tasks[index];
  if (is_transfer(task.kind)) {
    const std::string from = std::to_string(task.pair->producer_part), to = std::to_string(task.pair->consumer_part);
    return name_of_way(builder, task) + "/" + (task.kind == TaskKind::activation ? from + "-" + to : to + "-" + from);
  }
  const NameParts parts = name_parts(task);
  const std::string name = name_prefix(builder, tasks, task) + "/" + std::to_string(parts.number);
  return parts.device < 0 ? name : name + "@" + std::to_string(parts.device);
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
  if (names.empty()) return {};
  const NamedTasks named(builder, graph);
  Vector<int> tasks;
  for (const std::string& entry : names)
    if (!named.append(entry, tasks) || tasks.size() > named.count()) return {};
  if (tasks.size() != named.count()) return {};
  return with_transfers(graph, tasks);
}

Vector<std::string> issue_order_names(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                      const Vector<int>& order) {
  const Vector<int> tasks = without_transfers(graph, order);
  Vector<std::string> entries;
  Vector<NameParts> run;
  for (const int i : tasks.indices()) {
    const Task& task = graph.tasks[tasks[i]];
    run.push_back(name_parts(task));
    if (i + 1 < tasks.count() && name_parts(graph.tasks[tasks[i + 1]]).prefix == run[0].prefix) continue;
    append_entries(name_prefix(builder, graph, task), run, entries);
    run.clear();
  }
  return entries;
}

Vector<std::string> issue_order_to_save(const TaskGraphBuilder& builder, const TaskGraph& graph,
                                        const Vector<int>& order) {
  if (with_transfers(graph, without_transfers(graph, order)) == default_issue_order(graph)) return {};
  return issue_order_names(builder, graph, order);
}

}  // namespace ff
