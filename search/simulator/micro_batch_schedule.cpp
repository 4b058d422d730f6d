#include "search/simulator/micro_batch_schedule.h"

#include <algorithm>
#include <numeric>

#include "common/micro_batches.h"

namespace ff {
namespace {

// By device: a number that devices of one stage have in common.
Vector<int> stages_of(const Strategy& strategy, int device_count) {
  Vector<int> stage(device_count);
  std::iota(stage.begin(), stage.end(), 0);
  const auto first_of = [&](int device) {
    while (stage[device] != device) device = stage[device] = stage[stage[device]];
    return device;
  };
  for (const Configuration& configuration : strategy)
    for (const DeviceId device : configuration.devices) stage[first_of(device)] = first_of(configuration.devices[0]);
  for (int device = 0; device < device_count; ++device) stage[device] = first_of(device);
  return stage;
}

}  // namespace

MicroBatchSchedule micro_batch_schedule(const Graph& graph, const Strategy& strategy, const TaskGraph& tasks,
                                        int micro_batches, int device_count) {
  MicroBatchSchedule schedule;
  for (const Task& task : tasks.tasks)
    schedule.micro_batch.push_back(
        is_compute(task.kind)
            ? micro_batch_of(*graph.operators[task.op].definition, strategy[task.op].parts(), task.part, micro_batches)
            : -1);
  const Vector<int> stage = stages_of(strategy, device_count);
  schedule.in_flight.assign(device_count, 1);
  Vector<int> depth(graph.operators.size(), 1);  // stages from an operator to the end
  for (OperatorId op = graph.operators.count() - 1; op >= 0; --op) {
    for (const DeviceId device : strategy[op].devices)
      schedule.in_flight[device] = std::max(schedule.in_flight[device], std::min(depth[op], micro_batches));
    for (const TensorId input : graph.operators[op].inputs)
      if (const OperatorId producer = graph.tensors[input].producer; producer >= 0) {
        const bool changes = stage[strategy[producer].devices[0]] != stage[strategy[op].devices[0]];
        depth[producer] = std::max(depth[producer], depth[op] + (changes ? 1 : 0));
      }
  }
  const int stages = *std::max_element(depth.begin(), depth.end());
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const int direction = is_compute(task.kind) && is_forward(task.kind) ? 0 : 1;
    const int32_t k = schedule.micro_batch[t];
    schedule.pass.push_back(k < 0 ? -1 : (2 * k + direction) * stages + depth[task.op] - 1);
  }
  return schedule;
}

}  // namespace ff
