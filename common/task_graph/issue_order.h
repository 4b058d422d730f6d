// Names of tasks, and total orders of them.
#pragma once

#include <string>

#include "common/task_graph/pipeline_schedule.h"
#include "common/task_graph/task_graph.h"

namespace ff {

// "conv1/forward/0", "conv1->pool1/activation/0-2", "conv1/synchronization/0", "conv1/update/0@3" (unit, device):
// unique in a task graph, and what a strategy file's issue order is written in.
std::string task_name(const TaskGraphBuilder& builder, const TaskGraph& tasks, int task);

// A total order of all tasks that respects the task graph, from what each task is alone, so that the order of one
// device's tasks is that of all devices': forward operator by operator, backward in reverse; of an operator statistics,
// their reductions, part by part the task and right after it the transfers of its data, then collectives; after the
// backward pass of the last operator of a parameter group its synchronization and updates, or all of these after
// backward (StrategySettings::overlaps_reductions); where parameters have owners instead after everything all barriers,
// then unit by unit the gradients' transfers to the owner, its update, the values' transfers, the other updates. What
// ffexec follows when a strategy file has no (fitting) issue order. With on-demand transfer buffers, what brings
// activations stands right in front of the first task that reads them, and a collective of gradients right after the
// last task that adds to it.
Vector<int> default_issue_order(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                TransferBuffers buffers = TransferBuffers::preallocated);
// Of a pipeline's micro-batches: pass by pass, as passes begin in the schedule, in each the default order. Reductions
// of gradients follow the last pass that they need; updates come after all passes, with sharded state the gathering of
// what was updated right behind; what is computed once for all micro-batches, in front of all passes and after them.
// `strategy` has the parts of all micro-batches. That each device does so is a part of the strategy (Schedule).
Vector<int> pipeline_issue_order(const TaskGraphBuilder& builder, const TaskGraph& tasks, const Strategy& strategy,
                                 const PipelineSchedule& schedule,
                                 TransferBuffers buffers = TransferBuffers::preallocated);
// Does each task come after those that it waits for? `order` has all of them.
bool is_allowed(const TaskGraph& tasks, const Vector<int>& order);
// [parameter group]: the operator whose backward task comes last; a group that is trained has one.
Vector<OperatorId> last_operators(const TaskGraphBuilder& builder);
// An order of all tasks, of all devices, changed to one for on-demand transfer buffers: what brings activations stands
// right in front of the first task that reads them, every transfer of a gradient right after the task that computes
// it.
Vector<int> on_demand_issue_order(const TaskGraph& tasks, const Vector<int>& order);

// A strategy file's issue order as an order of all tasks: compute, synchronization and update tasks as named, every
// transfer right after the task that produces its data, or for on-demand transfer buffers those of activations right
// in front of the task that reads them; those of gradients to an owner right in front of its update, so that they are
// after its barrier as well.
//
// An entry names one task or several that are issued one after the other, with numbers as in number_ranges.h:
// "conv1/forward/0-7", "conv1/update/2@0-14:2" (unit 2 on many devices), "conv1/update/0-7@0-7" (unit 0 on device 0,
// unit 1 on device 1, ...). Of a transformer of 24 layers on 1,024 devices that is some thousand entries instead of
// 700,000 names. They are not expanded: each task looks for its own name.
//
// The tasks are those of all devices, or of one. The names fit where every device finds an order and the tasks that it
// counts (a collective counts at the first of its devices) are together as many as are named: then each is named once
// and no other is.
struct NamedOrder {
  Vector<int> order;    // empty: a task is not named, or the names contradict the task graph
  int64_t counted = 0;  // tasks that are no transfers
  int64_t named = 0;    // by all entries; -1: one is not of the notation
};
NamedOrder order_by_names(const TaskGraphBuilder& builder, const TaskGraph& tasks, const Vector<std::string>& names,
                          TransferBuffers buffers = TransferBuffers::preallocated);
// Of all devices. Empty when the names are not exactly this task graph's or contradict it.
Vector<int> issue_order_from_names(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                   const Vector<std::string>& names,
                                   TransferBuffers buffers = TransferBuffers::preallocated);
// The entries to be written for tasks in the given order.
Vector<std::string> issue_order_names(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                      const Vector<int>& order);
// The same, or nothing where a file without issue order stands for it, because the default order is read back as this.
Vector<std::string> issue_order_to_save(const TaskGraphBuilder& builder, const TaskGraph& tasks,
                                        const Vector<int>& order,
                                        TransferBuffers buffers = TransferBuffers::preallocated);

}  // namespace ff
