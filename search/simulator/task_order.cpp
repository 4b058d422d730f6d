#include "search/simulator/task_order.h"

#include <algorithm>
#include <queue>
#include <tuple>

namespace ff {
namespace {

// From each task's start to the end of all, along the longest path.
Vector<Nanoseconds> paths_behind(const TaskGraph& graph, const TaskCosts& costs, const Timeline& timeline) {
  Vector<int> order = tasks_by_start(graph, timeline);
  Vector<Nanoseconds> paths(graph.tasks.size(), 0);
  for (auto task = order.rbegin(); task != order.rend(); ++task) {
    Nanoseconds longest = 0;
    for (int32_t s = graph.successor_begin[*task]; s < graph.successor_begin[*task + 1]; ++s)
      longest = std::max(longest, paths[graph.successors[s]]);
    paths[*task] = costs.duration[*task] + longest;
  }
  return paths;
}

// Of a task graph, or of that graph backwards, which must outlive them.
struct Dependencies {
  const Vector<int32_t>&successor_begin, &successors, &predecessor_count;

  template <class Graph>
  explicit Dependencies(const Graph& graph)
      : successor_begin(graph.successor_begin), successors(graph.successors),
        predecessor_count(graph.predecessor_count) {}
};

// The same tasks, each a predecessor of those that it waited for.
struct ReversedGraph {
  Vector<int32_t> successor_begin, successors, predecessor_count;
};

ReversedGraph reversed(const TaskGraph& graph) {
  ReversedGraph result{{0}, Vector<int32_t>(graph.successors.size()), {}};
  for (const int32_t count : graph.predecessor_count)
    result.successor_begin.push_back(result.successor_begin.back() + count);
  Vector<int32_t> next = result.successor_begin;
  for (const int task : graph.tasks.indices()) {
    result.predecessor_count.push_back(graph.successor_begin[task + 1] - graph.successor_begin[task]);
    for (int32_t s = graph.successor_begin[task]; s < graph.successor_begin[task + 1]; ++s)
      result.successors[next[graph.successors[s]]++] = task;
  }
  return result;
}

// Tasks in the order of their events, as in simulate_full, but for those of a device, which wait for the device in a
// queue of its own.
class ListScheduling {
 public:
  // Of a device's tasks that are ready the one with the largest urgency is first. All must outlive the scheduling.
  ListScheduling(const TaskGraph& graph, Dependencies dependencies, const TaskCosts& costs,
                 const Vector<Nanoseconds>& urgency)
      : graph_(graph), dependencies_(dependencies), costs_(costs), urgency_(urgency), free_at_(costs.resource_count, 0),
        waiting_(dependencies.predecessor_count), ready_on_(costs.resource_count),
        is_looked_at_(costs.resource_count, false) {
    const size_t count = graph.tasks.size();
    timeline_.ready.assign(count, 0);
    timeline_.start.resize(count);
    timeline_.end.resize(count);
  }

  Timeline run() {
    for (const int task : graph_.tasks.indices())
      if (waiting_[task] == 0) events_.push({0, false, graph_.tasks[task].key, task});
    while (!events_.empty()) {
      const auto [time, of_device, key, number] = events_.top();
      events_.pop();
      if (of_device) start_next(number, time);
      else if (occupies_device(graph_.tasks[number].kind)) wait_for_device(number, time);
      else start(number, time);
    }
    return std::move(timeline_);
  }

 private:
  // At a time first all tasks that become ready, by key, then devices, by number.
  using Event = std::tuple<Nanoseconds, bool, TaskKey, int>;
  // Of a device's tasks that are ready: the most urgent, then the first that was ready, then the key.
  struct Waiting {
    Nanoseconds urgency, ready;
    TaskKey key;
    int task;
    bool operator<(const Waiting& other) const {
      return std::tie(urgency, other.ready, other.key) < std::tie(other.urgency, ready, key);
    }
  };

  void wait_for_device(int task, Nanoseconds time) {
    const DeviceId device = graph_.tasks[task].device;
    ready_on_[device].push({urgency_[task], time, graph_.tasks[task].key, task});
    if (!is_looked_at_[device]) look_at(device, std::max(time, free_at_[device]));
  }

  void look_at(DeviceId device, Nanoseconds time) {
    is_looked_at_[device] = true;
    events_.push({time, true, static_cast<TaskKey>(device), device});
  }

  // The device has tasks that are ready.
  void start_next(DeviceId device, Nanoseconds time) {
    is_looked_at_[device] = false;
    if (free_at_[device] > time) return look_at(device, free_at_[device]);  // a transfer has kept it busy
    auto& waiting = ready_on_[device];
    const int task = waiting.top().task;
    waiting.pop();
    start(task, time);
    if (!waiting.empty()) look_at(device, free_at_[device]);
  }

  // As soon as its resources are free.
  void start(int task, Nanoseconds time) {
    for (int32_t u = costs_.use_begin[task]; u < costs_.use_begin[task + 1]; ++u)
      time = std::max(time, free_at_[costs_.uses[u].resource]);
    for (int32_t u = costs_.use_begin[task]; u < costs_.use_begin[task + 1]; ++u)
      free_at_[costs_.uses[u].resource] = time + costs_.uses[u].occupancy;
    for (const auto& [device, work] : costs_.beside_of(task))
      free_at_[device] = free_behind(free_at_[device], time, costs_.duration[task], work);
    const Nanoseconds end = time + costs_.duration[task];
    timeline_.start[task] = time;
    timeline_.end[task] = end;
    timeline_.makespan = std::max(timeline_.makespan, end);
    for (int32_t s = dependencies_.successor_begin[task]; s < dependencies_.successor_begin[task + 1]; ++s) {
      const int32_t next = dependencies_.successors[s];
      timeline_.ready[next] = std::max(timeline_.ready[next], end);
      if (--waiting_[next] == 0) events_.push({timeline_.ready[next], false, graph_.tasks[next].key, next});
    }
  }

  const TaskGraph& graph_;
  const Dependencies dependencies_;
  const TaskCosts& costs_;
  const Vector<Nanoseconds>& urgency_;
  Vector<Nanoseconds> free_at_;                    // [resource]
  Vector<int32_t> waiting_;                        // [task]: for so many predecessors
  Vector<std::priority_queue<Waiting>> ready_on_;  // [device]
  Vector<uint8_t> is_looked_at_;                   // [device]: an event to come does
  std::priority_queue<Event, Vector<Event>, std::greater<>> events_;
  Timeline timeline_;
};

// Each device's own tasks.
Vector<Vector<int>> by_device(const TaskGraph& tasks, const Vector<int>& order) {
  Vector<Vector<int>> result;
  for (const int task : order) {
    if (!occupies_device(tasks.tasks[task].kind)) continue;
    const DeviceId device = tasks.tasks[task].device;
    if (device >= result.count()) result.resize(device + 1);
    result[device].push_back(task);
  }
  return result;
}

// The same tasks, each of a device's own a successor of the one before it.
TaskGraph with_chains(const TaskGraph& tasks, const Vector<Vector<int>>& chains) {
  Vector<int> next(tasks.tasks.count(), -1);
  for (const Vector<int>& chain : chains)
    for (size_t i = 1; i < chain.size(); ++i) next[chain[i - 1]] = chain[i];
  TaskGraph chained = tasks;
  chained.successors.clear();
  chained.successor_begin.assign(1, 0);
  for (const int task : tasks.tasks.indices()) {
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      chained.successors.push_back(tasks.successors[s]);
    if (next[task] >= 0) {
      chained.successors.push_back(next[task]);
      ++chained.predecessor_count[next[task]];
    }
    chained.successor_begin.push_back(static_cast<int32_t>(chained.successors.size()));
  }
  return chained;
}

}  // namespace

Timeline schedule_by_critical_path(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline) {
  const Vector<Nanoseconds> paths = paths_behind(tasks, costs, timeline);
  return ListScheduling(tasks, Dependencies(tasks), costs, paths).run();
}

Timeline schedule_by_latest_start(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline) {
  // From the end backwards a task's end is so long before the end of all.
  const ReversedGraph from_end = reversed(tasks);
  const Timeline backward = ListScheduling(tasks, Dependencies(from_end), costs, timeline.end).run();
  return ListScheduling(tasks, Dependencies(tasks), costs, backward.end).run();
}

Timeline simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs, const Vector<int>& order) {
  Timeline timeline = simulate_full(with_chains(tasks, by_device(tasks, order)), costs);
  // A task is ready when its data is, whatever its device does.
  std::fill(timeline.ready.begin(), timeline.ready.end(), 0);
  for (const int task : tasks.tasks.indices())
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      timeline.ready[tasks.successors[s]] = std::max(timeline.ready[tasks.successors[s]], timeline.end[task]);
  return timeline;
}

bool transfers_keep_devices_busy(const TaskGraph& tasks, const TaskCosts& costs) {
  if (!costs.beside.empty()) return true;
  DeviceId devices = 0;  // resources before the channels
  for (const Task& task : tasks.tasks)
    if (occupies_device(task.kind)) devices = std::max(devices, task.device + 1);
  for (const int task : tasks.tasks.indices()) {
    if (occupies_device(tasks.tasks[task].kind)) continue;
    for (int32_t u = costs.use_begin[task]; u < costs.use_begin[task + 1]; ++u)
      if (costs.uses[u].resource < devices) return true;
  }
  return false;
}

bool runs_in_order(const TaskGraph& tasks, const Timeline& timeline, const Vector<int>& order) {
  return by_device(tasks, order) == by_device(tasks, tasks_by_start(tasks, timeline));
}

}  // namespace ff
