#include "search/simulator/full.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "search/simulator/repetition.h"
#include "search/simulator/take_task.h"

namespace ff {
namespace {

struct Event {
  Nanoseconds ready;
  TaskKey key;
  int32_t task;
  bool operator>(const Event& other) const { return ready != other.ready ? ready > other.ready : key > other.key; }
};

}  // namespace

Timeline simulate_full(const TaskGraph& graph, const TaskCosts& costs) {
  return simulate_full(graph, Dependencies(graph), costs);
}

Timeline simulate_full(const TaskGraph& graph, const Dependencies& dependencies, const TaskCosts& costs,
                       RepetitionWatch* watch) {
  const size_t count = graph.tasks.size();
  Timeline timeline;
  timeline.ready.assign(count, 0);
  timeline.start.resize(count);
  timeline.end.resize(count);
  Vector<Nanoseconds> free_at(costs.resource_count, 0);
  Vector<int32_t> waiting = dependencies.predecessor_count;
  Vector<Event> storage;
  storage.reserve(count / 4 + 16);
  std::priority_queue<Event, Vector<Event>, std::greater<>> queue(std::greater<>(), std::move(storage));
  for (size_t t = 0; t < count; ++t)
    if (waiting[t] == 0) queue.push({0, graph.tasks[t].key, static_cast<int32_t>(t)});
  while (!queue.empty()) {
    const Event event = queue.top();
    queue.pop();
    if (watch) watch->take(event.task, event.ready, free_at);
    const Nanoseconds start = take_task(costs, event.task, event.ready, free_at);
    const Nanoseconds end = start + costs.duration[event.task];
    timeline.start[event.task] = start;
    timeline.end[event.task] = end;
    timeline.makespan = std::max(timeline.makespan, end);
    for (int32_t s = dependencies.successor_begin[event.task]; s < dependencies.successor_begin[event.task + 1]; ++s) {
      const int32_t successor = dependencies.successors[s];
      timeline.ready[successor] = std::max(timeline.ready[successor], end);
      if (--waiting[successor] == 0) queue.push({timeline.ready[successor], graph.tasks[successor].key, successor});
    }
  }
  return timeline;
}

Vector<int> tasks_by_start(const TaskGraph& graph, const Timeline& timeline) {
  struct Started {
    Nanoseconds start, ready;
    TaskKey key;
    int task;
  };
  Vector<Started> started;
  started.reserve(graph.tasks.size());
  for (const int task : graph.tasks.indices())
    started.push_back({timeline.start[task], timeline.ready[task], graph.tasks[task].key, task});
  std::sort(started.begin(), started.end(), [](const Started& a, const Started& b) {
    return std::tie(a.start, a.ready, a.key) < std::tie(b.start, b.ready, b.key);
  });
  Vector<int> order;
  order.reserve(started.size());
  for (const Started& one : started) order.push_back(one.task);
  return order;
}

}  // namespace ff
