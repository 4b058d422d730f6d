#include "search/simulator/micro_batch_schedule.h"

#include <algorithm>
#include <climits>
#include <numeric>
#include <set>

#include "common/micro_batches.h"

namespace ff {

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

namespace {

struct StagesToTheEnd {
  Vector<int> depth;  // [operator]: of its longest path to the end, its own stage included
  // [operator]: not on a path through the last stage, as losses of layers. It belongs where its inputs are made.
  Vector<bool> beside;
};

StagesToTheEnd stages_to_the_end(const Graph& graph, const Strategy& strategy, const Vector<int>& stage) {
  StagesToTheEnd result{Vector<int>(graph.operators.size(), 1), Vector<bool>(graph.operators.size(), false)};
  Vector<int>& depth = result.depth;
  const auto change = [&](OperatorId a, OperatorId b) {
    return stage[strategy[a].devices[0]] != stage[strategy[b].devices[0]] ? 1 : 0;
  };
  for (OperatorId op = graph.operators.count() - 1; op >= 0; --op)
    for (const TensorId input : graph.operators[op].inputs)
      if (const OperatorId producer = graph.tensors[input].producer; producer >= 0)
        depth[producer] = std::max(depth[producer], depth[op] + change(producer, op));
  for (const OperatorId op : graph.operator_ids()) {
    int latest = INT_MAX;
    for (const TensorId input : graph.operators[op].inputs)
      if (const OperatorId producer = graph.tensors[input].producer; producer >= 0)
        latest = std::min(latest, depth[producer] - change(producer, op));
    if (latest == INT_MAX || latest <= depth[op]) continue;
    depth[op] = latest;
    result.beside[op] = true;
  }
  return result;
}

// The stages of a pipeline whose devices have equally many chunks of layers, in turn.
struct Chunks {
  int row = 0, each = 0;  // devices in a row, chunks of each; 0: it is not one
  Vector<int> rank;       // [device]; -1: no passes
};

// `stages`: [device], those whose passes it has, by number of stages to the end.
Chunks chunks_of(const Vector<std::set<int>>& stages) {
  Chunks chunks;
  chunks.rank.assign(stages.size(), -1);
  int all = 0;
  for (const std::set<int>& of_device : stages)
    if (!of_device.empty()) all = std::max(all, *of_device.rbegin());
  for (const int device : stages.indices()) {
    const std::set<int>& own = stages[device];
    if (own.empty()) continue;
    if (chunks.each == 0) {
      chunks.each = static_cast<int>(own.size());
      chunks.row = all / chunks.each;
    }
    const int rank = all - *own.rbegin();
    if (rank >= chunks.row || std::ssize(own) != chunks.each || chunks.row * chunks.each != all) return {};
    int expected = all - rank;  // of chunk after chunk
    for (auto stage = own.rbegin(); stage != own.rend(); ++stage, expected -= chunks.row)
      if (*stage != expected) return {};
    chunks.rank[device] = rank;
  }
  return chunks;
}

// Of the device with this rank.
Vector<int32_t> passes_in_order(const Chunks& chunks, int rank, int micro_batches) {
  const int row = chunks.row, stages = row * chunks.each, all = micro_batches * chunks.each;
  const auto pass = [&](int number, int direction) {
    const int in_group = number % stages, micro_batch = number / stages * row + in_group % row;
    const int chunk = direction == 0 ? in_group / row : chunks.each - 1 - in_group / row;
    return (2 * micro_batch + direction) * stages + stages - (chunk * row + rank) - 1;
  };
  const int behind = row - 1 - rank;
  const int first = chunks.each == 1       ? std::min(all, behind)
                    : micro_batches == row ? all
                                           : std::min(all, 2 * behind + (chunks.each - 1) * row);
  Vector<int32_t> passes;
  for (int forward = 0; forward < first; ++forward) passes.push_back(pass(forward, 0));
  for (int backward = 0; backward < all; ++backward) {
    if (first + backward < all) passes.push_back(pass(first + backward, 0));
    passes.push_back(pass(backward, 1));
  }
  return passes;
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
  const auto [depth, beside] = stages_to_the_end(graph, strategy, stages_of(strategy, device_count));
  schedule.in_flight.assign(device_count, 1);
  for (const OperatorId op : graph.operator_ids())
    for (const DeviceId device : strategy[op].devices)
      schedule.in_flight[device] = std::max(schedule.in_flight[device], std::min(depth[op], micro_batches));
  const int stages = *std::max_element(depth.begin(), depth.end());
  Vector<std::set<int>> of_devices(device_count);  // stages
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const int direction = is_compute(task.kind) && is_forward(task.kind) ? 0 : 1;
    const int32_t k = schedule.micro_batch[t];
    // Backward of what is beside the path has its inputs long before the pass that it would begin: in none.
    const bool in_pass = k >= 0 && !(direction == 1 && beside[task.op]);
    schedule.pass.push_back(in_pass ? (2 * k + direction) * stages + depth[task.op] - 1 : -1);
    if (k >= 0) of_devices[task.device].insert(depth[task.op]);
  }
  const Chunks chunks = chunks_of(of_devices);
  if (chunks.row < 2 || (chunks.each > 1 && micro_batches % chunks.row != 0)) return schedule;
  schedule.chunks = chunks.each;
  for (const int rank : chunks.rank)
    schedule.order.push_back(rank < 0 ? Vector<int32_t>() : passes_in_order(chunks, rank, micro_batches));
  return schedule;
}

}  // namespace ff
