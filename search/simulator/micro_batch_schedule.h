// What a schedule of micro-batches needs to know: which micro-batch each task belongs to, and how many of them a device
// may have in flight.
#pragma once

#include "common/strategy.h"
#include "common/task_graph/task_graph.h"

namespace ff {

// [device]: a number that devices of one stage have in common, as they compute parts of one operator.
Vector<int> stages_of(const Strategy& strategy, int device_count);

struct MicroBatchSchedule {
  Vector<int32_t> micro_batch;  // [task]; -1: no compute task, or of an operator that is computed once for all
  // [task]: equal for tasks of the same micro-batch, in the same direction, as many stages from the end; -1 as above,
  // and backward of losses of layers, which wait for no other stage.
  Vector<int32_t> pass;
  Vector<int32_t> in_flight;  // [device]: at most so many micro-batches
  // [device]: its passes in the fixed order of its stage, where stages are in a row; else empty.
  Vector<Vector<int32_t>> order;
  int chunks = 0;  // of layers, for each device of the row
};

// The fixed order (Narayanan et al. 2021, SC, section 2.2; Megatron-LM's schedules.py): p > 1 stages in a row have v
// chunks of layers each. Device r of 0 .. p-1 begins with some forward passes, then takes forward and backward passes
// in turn, then those that are left. With v = 1 it begins with p-1-r of them. With more, interleaved, the micro-batches
// are a multiple of p; forward and backward, a device takes p micro-batches through a chunk before it takes them
// through its next one, and begins with 2 (p-1-r) + (v-1) p passes, with all of them where there are p micro-batches.
//
// As many as there are stages from a device to the end of the network: on the way of one micro-batch from there to the
// loss and back, that many others pass. Stages follow from the strategy: devices that compute parts of one operator are
// one stage, and on a path through the graph each change of stages counts, of devices with several chunks of layers
// too. `strategy` has the parts of all micro-batches (common/micro_batches.h).
MicroBatchSchedule micro_batch_schedule(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                                        int micro_batches, int device_count);

}  // namespace ff
