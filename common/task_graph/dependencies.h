// Dependencies between the tasks of a task graph, its own and further ones.
#pragma once

#include "common/task_graph/task_graph.h"

namespace ff {

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

}  // namespace ff
