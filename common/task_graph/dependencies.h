// Dependencies between the tasks of a task graph, its own and further ones.
#pragma once

#include <map>
#include <set>
#include <utility>

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

// Those of a task graph and further ones: `for_each_further(task, visit)` visits further successors of a task. Where
// `is_free(task)`, it waits for these alone.
template <class ForEachFurther, class IsFree>
OwnDependencies with_further(const TaskGraph& tasks, const ForEachFurther& for_each_further, const IsFree& is_free) {
  OwnDependencies result{{0}, {}, tasks.predecessor_count};
  result.successor_begin.reserve(tasks.successor_begin.size());
  result.successors.reserve(tasks.successors.size() + tasks.tasks.size());
  for (const int task : tasks.tasks.indices()) {
    for (int32_t s = tasks.successor_begin[task]; s < tasks.successor_begin[task + 1]; ++s)
      if (is_free(tasks.successors[s])) --result.predecessor_count[tasks.successors[s]];
      else result.successors.push_back(tasks.successors[s]);
    for_each_further(task, [&](int successor) {
      result.successors.push_back(successor);
      ++result.predecessor_count[successor];
    });
    result.successor_begin.push_back(static_cast<int32_t>(result.successors.size()));
  }
  return result;
}
template <class ForEachFurther>
OwnDependencies with_further(const TaskGraph& tasks, const ForEachFurther& for_each_further) {
  return with_further(tasks, for_each_further, [](int) { return false; });
}

// Further successors, by task.
using FurtherSuccessors = std::map<int, Vector<int>>;

// The task graph has these dependencies too, and `free` tasks wait for these alone.
inline void add_dependencies(TaskGraph& tasks, const FurtherSuccessors& further, const std::set<int>& free = {}) {
  const auto for_each_further = [&](int task, const auto& visit) {
    if (const auto found = further.find(task); found != further.end())
      for (const int successor : found->second) visit(successor);
  };
  OwnDependencies all = with_further(tasks, for_each_further, [&](int task) { return free.contains(task); });
  tasks.successor_begin = std::move(all.successor_begin);
  tasks.successors = std::move(all.successors);
  tasks.predecessor_count = std::move(all.predecessor_count);
}

}  // namespace ff
