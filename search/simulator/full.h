// Full simulation (paper section 5.2): the judge of every faster algorithm.
#pragma once

#include "common/task_graph/task_graph.h"
#include "search/simulator/timeline.h"

namespace ff {

class RepetitionWatch;  // repetition.h

// What follows what: as a task graph says it, or with more dependencies between the same tasks. Must not outlive what
// it is made from.
struct Dependencies {
  const Vector<int32_t>&successor_begin, &successors, &predecessor_count;

  template <class Graph>
  explicit Dependencies(const Graph& graph)
      : successor_begin(graph.successor_begin), successors(graph.successors),
        predecessor_count(graph.predecessor_count) {}
};

// Dependencies that a task graph does not have itself.
struct OwnDependencies {
  Vector<int32_t> successor_begin, successors, predecessor_count;
};

// Those of a task graph and further ones: `for_each_further(task, visit)` visits further successors of a task.
template <class ForEachFurther>
OwnDependencies with_further(const TaskGraph& tasks, const ForEachFurther& for_each_further) {
  OwnDependencies result{{0}, {}, tasks.predecessor_count};
  result.successor_begin.reserve(tasks.successor_begin.size());
  result.successors.reserve(tasks.successors.size() + tasks.tasks.size());
  for (const int task : tasks.tasks.indices()) {
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      result.successors.push_back(tasks.successors[s]);
    for_each_further(task, [&](int successor) {
      result.successors.push_back(successor);
      ++result.predecessor_count[successor];
    });
    result.successor_begin.push_back(static_cast<int32_t>(result.successors.size()));
  }
  return result;
}

// First in, first out by ready time (the paper's assumption A3): tasks are taken in order of (ready time, key); a task
// starts when it is ready and every resource that it uses is free, and occupies each for its own time.
Timeline simulate_full(const TaskGraph& tasks, const TaskCosts& costs);
Timeline simulate_full(const TaskGraph& tasks, const Dependencies& dependencies, const TaskCosts& costs,
                       RepetitionWatch* watch = nullptr);

// All tasks in order of (start, ready, key): the issue order that the executor follows.
Vector<int> tasks_by_start(const TaskGraph& tasks, const Timeline& timeline);

}  // namespace ff
