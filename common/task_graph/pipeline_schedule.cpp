#include "common/task_graph/pipeline_schedule.h"

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

StagesToTheEnd stages_to_the_end(const Graph& graph, const Strategy& strategy, const Vector<int>& stage) {
  StagesToTheEnd result{1, Vector<int>(graph.operators.size(), 1), Vector<bool>(graph.operators.size(), false)};
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
  result.count = *std::max_element(depth.begin(), depth.end());
  return result;
}

namespace {

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

// `passes`: [rank].
Vector<int64_t> starts_of(const Vector<Vector<int32_t>>& passes, int stages, int micro_batches) {
  constexpr int64_t durations[] = {1, 2}, unknown = -1;
  const int none = -1, count = 2 * micro_batches * stages;
  Vector<int64_t> starts(count, 0), ends(count, unknown), free(passes.size(), 0);
  Vector<int> next(passes.size(), 0);
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const int rank : passes.indices())
      for (; next[rank] < passes[rank].count(); ++next[rank], goes_on = true) {
        const int pass = passes[rank][next[rank]], direction = pass / stages % 2, to_the_end = pass % stages;
        const bool is_first = direction == 0 && to_the_end == stages - 1;
        const int before = is_first ? none : direction == 0 ? pass + 1 : to_the_end > 0 ? pass - 1 : pass - stages;
        if (before != none && ends[before] == unknown) break;
        starts[pass] = std::max(free[rank], before == none ? 0 : ends[before]);
        free[rank] = ends[pass] = starts[pass] + durations[direction];
      }
  }
  return starts;
}

// All that is computed for each micro-batch.
bool all_on_same_devices(const Graph& graph, const Strategy& strategy) {
  std::optional<std::set<DeviceId>> devices;
  for (const OperatorId op : graph.operator_ids()) {
    if (!has_micro_batches(*graph.operators[op].definition)) continue;
    std::set<DeviceId> own(strategy[op].devices.begin(), strategy[op].devices.end());
    if (devices && own != *devices) return false;
    devices = std::move(own);
  }
  return true;
}

bool mixes_micro_batches(const Graph& graph) {
  return std::any_of(graph.operators.begin(), graph.operators.end(), [](const Operator& op) {
    return has_micro_batches(*op.definition) && op.definition->may_have_statistics() &&
           op.definition->statistics_span(0);
  });
}

}  // namespace

std::optional<PipelineSchedule> PipelineSchedule::of(const Graph& graph, const Strategy& strategy, int micro_batches,
                                                     int device_count) {
  if (micro_batches < 2 || mixes_micro_batches(graph)) return std::nullopt;
  PipelineSchedule schedule;
  schedule.stages_ = stages_to_the_end(graph, strategy, stages_of(strategy, device_count));
  Vector<std::set<int>> stages(device_count);
  for (const OperatorId op : graph.operator_ids())
    if (has_micro_batches(*graph.operators[op].definition))
      for (const DeviceId device : strategy[op].devices) stages[device].insert(schedule.stages_.depth[op]);
  const Chunks chunks = chunks_of(stages);
  if (chunks.row == 0 || chunks.row * chunks.each != schedule.stages()) return std::nullopt;
  if (chunks.row == 1 && !all_on_same_devices(graph, strategy)) return std::nullopt;
  if (chunks.each > 1 && micro_batches % chunks.row != 0) return std::nullopt;
  schedule.chunks_ = chunks.each;
  Vector<Vector<int32_t>> of_rank;
  for (int rank = 0; rank < chunks.row; ++rank) of_rank.push_back(passes_in_order(chunks, rank, micro_batches));
  schedule.starts_ = starts_of(of_rank, schedule.stages(), micro_batches);
  for (const int rank : chunks.rank) schedule.passes_.push_back(rank < 0 ? Vector<int32_t>() : of_rank[rank]);
  return schedule;
}

std::optional<PipelineSchedule> PipelineSchedule::of(const StrategyFile& file) {
  return of(file.graph, file.strategy, file.settings.micro_batches, file.topology.devices.count());
}

int64_t PipelineSchedule::start_of(OperatorId op, Direction direction, int micro_batch) const {
  const bool forward = direction == Direction::forward;
  if (micro_batch < 0) return forward ? before_all : after_all;
  // Backward of what is beside the path has its inputs long before the pass that it would begin.
  return starts_[stages_.pass_of(op, stages_.beside[op] ? Direction::forward : direction, micro_batch)];
}

}  // namespace ff
