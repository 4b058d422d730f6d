// Which parts of an operator share a kernel on a device.
//
// A kernel keeps from forward to backward what backward needs beyond its arguments (Kernel::workspace_bytes): queries,
// keys and values of attention, the mask of dropout. Two parts of one operator that have blocks of the same size, and
// the same place but for the samples, share a kernel where the first has run backward before the second runs forward,
// as the slices and micro-batches of a schedule with few in flight do. So a device has as many kernels of an operator
// as parts of it are ever in flight. A recomputed part keeps nothing between forward and recompute, so that layers that
// are alike have one kernel together.
#pragma once

#include "common/task_graph/task_graph.h"

namespace ff {

struct SharedKernels {
  struct Kernel {
    OperatorId op;
    int32_t part;  // the first that uses it
  };
  Vector<Kernel> kernels;
  // Of the device's parts, in the order in which their first tasks run: the index of their kernel.
  struct Use {
    OperatorId op;
    int32_t part;
    int kernel;
  };
  Vector<Use> uses;
};

// `steps`: the device's tasks in the order in which it runs them (MemoryPlan::steps).
SharedKernels shared_kernels(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                             const Vector<int>& steps);

}  // namespace ff
