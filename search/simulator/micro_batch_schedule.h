// What a schedule of micro-batches needs to know: which micro-batch each task belongs to, and how many of them a device
// may have in flight.
#pragma once

#include "common/strategy.h"
#include "common/task_graph/task_graph.h"

namespace ff {

struct MicroBatchSchedule {
  Vector<int32_t> micro_batch;  // [task]; -1: no compute task, or of an operator that is computed once for all
  // [task]: equal for tasks of the same micro-batch, in the same direction, as many stages from the end; -1 as above.
  Vector<int32_t> pass;
  Vector<int32_t> in_flight;  // [device]: at most so many micro-batches
  // [device]: its passes in the interleaved order, where there is one; else empty.
  Vector<Vector<int32_t>> interleaved;
};

// The interleaved order (Narayanan et al. 2021, SC, section 2.2; Megatron-LM's schedules.py): p devices in a row have v
// chunks of layers each, of m micro-batches, a multiple of p. Forward and backward, a device takes p micro-batches
// through a chunk before it takes them through its next one. Device r of 0 .. p-1 begins with 2 (p-1-r) + (v-1) p
// forward passes, with all of them where m = p; then it takes forward and backward passes in turn, then those that are
// left. Not where v is 1, or stages are not in such a row.
//
// As many as there are stages from a device to the end of the network: on the way of one micro-batch from there to the
// loss and back, that many others pass. Stages follow from the strategy: devices that compute parts of one operator are
// one stage, and on a path through the graph each change of stages counts, of devices with several chunks of layers
// too. `strategy` has the parts of all micro-batches (common/micro_batches.h).
MicroBatchSchedule micro_batch_schedule(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                                        int micro_batches, int device_count);

}  // namespace ff
