// The order in which each device runs its tasks, as a choice.
//
// The paper's simulation takes tasks as they become ready (A3). But a device that has two tasks ready may do better to
// begin with the one that more depends on: backward through the branch whose gradients have the longest way to go. The
// executor follows any issue order, so a plan may have another one than by readiness, and is predicted with it.
#pragma once

#include "search/simulator/full.h"

namespace ff {

enum class TaskOrder {
  ready,          // as tasks become ready (paper, A3)
  critical_path,  // of the tasks that are ready, the one with the longest path behind it
  best            // by critical path where that is predicted to be faster by half a per cent, else ready
};

// A total order of all tasks by list scheduling: whenever a device is free it starts, of its tasks that are ready, the
// one from whose start the longest path of durations leads to the end (Hu 1961, Oper. Res. 9:6). Everything else is
// taken as it becomes ready. The timeline is any of these tasks.
Vector<int> critical_path_order(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline);

// Full simulation where every device runs its own tasks (compute, updates, barriers) in this order, which respects the
// task graph. All else is taken as it becomes ready.
Timeline simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs, const Vector<int>& order);

// Does every device run its own tasks in this order?
bool runs_in_order(const TaskGraph& tasks, const Timeline& timeline, const Vector<int>& order);

}  // namespace ff
