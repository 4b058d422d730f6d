#include "search/simulator/micro_batch_schedule.h"

#include <algorithm>

#include "common/micro_batches.h"
#include "common/task_graph/pipeline_schedule.h"

namespace ff {

MicroBatchSchedule micro_batch_schedule(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                                        int micro_batches, int device_count) {
  MicroBatchSchedule schedule;
  for (const Task& task : tasks.tasks)
    schedule.micro_batch.push_back(
        is_compute(task.kind)
            ? micro_batch_of(*graph.operators[task.op].definition, strategy[task.op].parts(), task.part, micro_batches)
            : -1);
  const StagesToTheEnd stages = stages_to_the_end(graph, strategy, stages_of(strategy, device_count));
  schedule.in_flight.assign(device_count, 1);
  for (const OperatorId op : graph.operator_ids())
    for (const DeviceId device : strategy[op].devices)
      schedule.in_flight[device] = std::max(schedule.in_flight[device], std::min(stages.depth[op], micro_batches));
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const Direction direction =
        is_compute(task.kind) && is_forward(task.kind) ? Direction::forward : Direction::backward;
    const int32_t k = schedule.micro_batch[t];
    // Backward of what is beside the path has its inputs long before the pass that it would begin: in none.
    const bool in_pass = k >= 0 && !(direction == Direction::backward && stages.beside[task.op]);
    schedule.pass.push_back(in_pass ? stages.pass_of(task.op, direction, k) : -1);
  }
  return schedule;
}

}  // namespace ff
