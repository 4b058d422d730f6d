// Names of tasks, and total orders of them.
#pragma once

#include <string>

#include "common/task_graph/task_graph.h"

namespace ff {

// "conv1/forward/0", "conv1->pool1/activation/0-2", "conv1/synchronization/0", "conv1/update/0@3" (unit, device):
// unique in a task graph, and what a strategy file's issue order is written in.
std::string task_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int task);

// A total order of all tasks that respects the task graph, from the keys alone: forward in graph order, backward in
// reverse, each collective as early as its gradients allow. What ffexec follows when a strategy file has no (fitting)
// issue order.
Vector<int> default_issue_order(const TaskGraph& tasks);

// The file's names as an order of all tasks: compute and synchronization tasks as named, every transfer right behind
// the task that produces its data, updates behind their collective. Empty when the names are not exactly this task
// graph's or contradict it.
Vector<int> issue_order_from_names(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                   const Vector<std::string>& names);
// The names to be written for tasks in the given order.
Vector<std::string> issue_order_names(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                      const Vector<int>& order);

}  // namespace ff
