// The order in which each device runs its tasks, as a choice.
//
// The paper's simulation takes tasks as they become ready (A3). But a device that has two tasks ready may do better to
// begin with the one that more depends on: backward through the branch whose gradients have the longest way to go. The
// executor follows any issue order, so a plan may have another one than by readiness, and is predicted with it.
#pragma once

#include "search/simulator/full.h"
#include "search/simulator/micro_batch_schedule.h"
#include "search/simulator/repetition.h"

namespace ff {

enum class TaskOrder {
  fifo,                      // first in, first out: as tasks become ready (paper, A3)
  critical_path,             // of the tasks that are ready, the one with the longest path after it
  latest_start,              // of the tasks that are ready, the one that could be put off least
  one_forward_one_backward,  // backward first, and few micro-batches in flight (micro_batch_schedule.h)
  best  // the fastest of these where it is predicted to be faster than ready by half a per cent, else ready
};

// Timelines by list scheduling: whenever a device is free it starts, of its tasks that are ready, the most urgent one.
// Everything else is taken as it becomes ready. Their order is tasks_by_start.

// Urgent is the task from whose start the longest path of durations leads to the end (Hu 1961, Oper. Res. 9:6). The
// timeline is any of these tasks.
Timeline schedule_by_critical_path(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline);

// Urgent is the task that would start first if all began as late as possible: scheduled from the end backwards, on
// devices and links that are as busy as they are forwards, those first that end last in the timeline. A path of
// durations does not know that parallel paths need the same links: so gradients that have far to go are not put
// off until all links are needed at once. (Forward-backward improvement, Li and Willis 1992, Eur. J. Oper. Res. 56:3,
// with list scheduling in both directions.)
Timeline schedule_by_latest_start(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline);

// Does a device go through with the pass of a micro-batch (MicroBatchSchedule::pass) before it begins with another one,
// unless nothing else could run? Or may it compute for another one while a pass waits, for a collective for example?
// Then others may have to wait for the pass.
enum class Passes { whole, mixed };

// Urgent is backward work, then the earlier micro-batch. A device begins with a micro-batch only when fewer than
// schedule.in_flight of them are on it: begun forward there and not done with backward. Where nothing could run because
// of that limit, the earliest micro-batch that waits is let in. (PipeDream-Flush: Narayanan et al. 2021, ICML, "1F1B";
// with one stage it is gradient accumulation.) Stages in a row have a fixed order instead (pipeline_issue_order).
Timeline schedule_one_forward_one_backward(const TaskGraph& tasks, const TaskCosts& costs,
                                           const MicroBatchSchedule& schedule, Passes passes,
                                           RepetitionWatch* watch = nullptr);

// Full simulation where every device runs its own tasks (compute, updates, barriers) in this order, which respects the
// task graph. All else is taken as it becomes ready.
//
// In the order in which tasks become ready this is simulate_full, unless transfers keep devices busy: a transfer that
// becomes ready while a device computes is taken here when the device is free, in front of the device's next task. In
// simulate_full it is taken after all of the device's tasks that were ready before it. The executor starts transfers
// as soon as their data is there, so this is nearer to what it does.
Timeline simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs, const Vector<int>& order);
// And whether it repeats, if it is watched.
std::pair<Timeline, std::optional<Repetition>> simulate_in_order(const TaskGraph& tasks, const TaskCosts& costs,
                                                                 const Vector<int>& order, RepetitionWatch* watch);

// Do transfers or collectives occupy devices, or delay what these compute?
bool transfers_keep_devices_busy(const TaskGraph& tasks, const TaskCosts& costs);

// Does every device run its own tasks in the same order in both?
bool same_on_devices(const TaskGraph& tasks, const Vector<int>& order, const Vector<int>& other);

}  // namespace ff
