// What a schedule of micro-batches needs to know that is no fixed order (common/task_graph/pipeline_schedule.h): which
// micro-batch each task belongs to, and how many of them a device may have in flight.
#pragma once

#include "common/strategy.h"
#include "common/task_graph/task_graph.h"

namespace ff {

struct MicroBatchSchedule {
  Vector<int32_t> micro_batch;  // [task]; -1: no compute task, or of an operator that is computed once for all
  // [task]: equal for tasks of the same micro-batch, in the same direction, as many stages from the end; -1 as above,
  // and backward of losses of layers, which wait for no other stage.
  Vector<int32_t> pass;
  Vector<int32_t> in_flight;  // [device]: at most so many micro-batches
};

// As many as there are stages from a device to the end of the network: on the way of one micro-batch from there to the
// loss and back, that many others pass. Stages follow from the strategy: devices that compute parts of one operator are
// one stage, and on a path through the graph each change of stages counts, of devices with several chunks of layers
// too. `strategy` has the parts of all micro-batches (common/micro_batches.h).
MicroBatchSchedule micro_batch_schedule(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                                        int micro_batches, int device_count);

}  // namespace ff
