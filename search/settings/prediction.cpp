#include "search/settings/prediction.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ff {
namespace {

// The device of the largest share, and the share.
std::pair<DeviceId, double> fullest(const Vector<int64_t>& bytes, const Topology& topology) {
  std::pair<DeviceId, double> result{0, -1};
  for (const DeviceId device : bytes.indices()) {
    const int64_t capacity = topology.model_of(device).memory_bytes;
    const double share = capacity > 0 ? static_cast<double>(bytes[device]) / static_cast<double>(capacity) : 0;
    if (share > result.second) result = {device, share};
  }
  return result;
}

// Exactly; where what lives at once exceeds memory, that.
void set_memory(SettingsPrediction& prediction, const Topology& topology, SimulatedMicroBatches& sample) {
  // Preallocated buffers become more with each micro-batch: what fits at first may not in the end.
  for (const TransferBuffers buffers : sample.evaluator().transfer_buffers()) {
    MemoryModel::Needs needs = sample.memory(buffers);
    Vector<int64_t> bytes = sample.bytes(needs);
    auto [device, share] = fullest(bytes, topology);
    if (share <= 1) {  // of all devices: gaps between buffers may be a tenth of what lives at once, or none
      lay_out(needs.plans);
      bytes = sample.bytes(needs);
      std::tie(device, share) = fullest(bytes, topology);
    }
    prediction.memory_bytes = bytes[device];
    prediction.memory_share = share;
    if (share <= 1) return;
  }
}

}  // namespace

Parallelism completed(Parallelism parallelism, const Graph& graph, const Topology& topology) {
  const std::string given = to_string(parallelism);
  try {
    complete(parallelism, graph.batch_size, topology.devices.count());
  } catch (const InputError& error) {
    throw InputError(given + ": " + error.what());
  }
  return parallelism;
}

int micro_batches_of(const Parallelism& completed, const Graph& graph) {
  return static_cast<int>(graph.batch_size / completed.data / completed.micro_batch);
}

SettingsPrediction predict_settings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                    const CostOptions& costs, Extrapolation extrapolation, KnownFolds* folds,
                                    Nanoseconds longest) {
  SettingsPrediction result;
  const Parallelism own = result.parallelism = completed(parallelism, graph, topology);
  check_rounds(own, graph.batch_size);
  const SimulatedSettings settings(own, graph, topology, costs, {}, folds);
  const auto sample = simulated_micro_batches(settings, own, micro_batches_of(own, graph), extrapolation);
  result.exact = sample->exact();
  result.extrapolated = sample->further() > 0;
  result.makespan = sample->makespan();
  result.memory_known = result.makespan <= longest;
  if (result.memory_known) set_memory(result, settings.topology(), *sample);
  return result;
}

namespace {

struct Span {
  Nanoseconds begin, end;
};

// [device]: when collectives run that slow its kernels (TaskCosts::slowed), in order and without overlaps.
Vector<Vector<Span>> slowing_collectives(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline) {
  Vector<Vector<Span>> result(costs.slowed.size());
  if (costs.slowed.empty()) return result;
  for (const int t : tasks.tasks.indices())
    if (costs.collectives[t] != BesideKernels::no)
      for (const WorkBeside& beside : costs.beside_of(t))
        result[beside.device].push_back({timeline.start[t], timeline.end[t]});
  for (Vector<Span>& spans : result) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.begin < b.begin; });
    Vector<Span> merged;
    for (const Span& span : spans)
      if (merged.empty() || span.begin > merged.back().end) merged.push_back(span);
      else merged.back().end = std::max(merged.back().end, span.end);
    spans = std::move(merged);
  }
  return result;
}

// [task]: how much longer a kernel takes beside them.
Vector<Nanoseconds> slowed_by_collectives(const TaskGraph& tasks, const TaskCosts& costs, const Timeline& timeline) {
  Vector<Nanoseconds> result(tasks.tasks.size(), 0);
  const Vector<Vector<Span>> collectives = slowing_collectives(tasks, costs, timeline);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    if (!occupies_device(task.kind) || collectives.empty() || collectives[task.device].empty()) continue;
    const Vector<Span>& spans = collectives[task.device];
    const double share = costs.slowed[task.device];
    const Nanoseconds begin = timeline.start[t];
    // The kernel has this long to go; while a collective runs, each moment does less of it.
    auto left = static_cast<double>(costs.duration[t]);
    auto at = static_cast<double>(begin);
    for (auto span = std::upper_bound(spans.begin(), spans.end(), begin,
                                      [](Nanoseconds time, const Span&one) { return time < one.end; });
         span != spans.end() && static_cast<double>(span->begin) < at + left; ++span) {
      const double from = std::max(at, static_cast<double>(span->begin));
      left -= from - at;
      const double together = std::min(static_cast<double>(span->end) - from, left / (1 - share));
      left -= together * (1 - share);
      at = from + together;
      result[t] += static_cast<Nanoseconds>(share * together);
    }
  }
  return result;
}

Vector<StageTimes> times_of_devices(SimulatedMicroBatches& sample, int devices) {
  Vector<StageTimes> result(devices);
  const TaskGraph& tasks = sample.details().tasks;
  const Vector<int64_t> times = sample.times();
  const Vector<Nanoseconds> slowed = slowed_by_collectives(tasks, sample.details().costs, sample.details().timeline);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const Nanoseconds duration = times[t] * sample.details().costs.duration[t];
    if (occupies_device(task.kind)) result[task.device].slowed += times[t] * slowed[t];
    if (task.kind == TaskKind::recompute) result[task.device].recompute += duration;
    else if (is_compute(task.kind))
      (is_forward(task.kind) ? result[task.device].forward : result[task.device].backward) += duration;
    else if (occupies_device(task.kind)) result[task.device].update += duration;
    else if (is_transfer(task.kind)) result[task.device].transfers += duration;
    else if (is_collective(task.kind))
      for (const DeviceId device : tasks.holders(task))
        (is_parameter_collective(task.kind) ? result[device].synchronization : result[device].collectives) += duration;
  }
  return result;
}

}  // namespace

Vector<StageTimes> stage_times(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                               const CostOptions& costs) {
  const Parallelism own = completed(parallelism, graph, topology);
  const SimulatedSettings settings(own, graph, topology, costs);
  const auto sample = simulated_micro_batches(settings, own, micro_batches_of(own, graph), Extrapolation::steady);
  const Vector<StageTimes> of_devices = times_of_devices(*sample, settings.topology().devices.count());
  Vector<StageTimes> result(own.pipeline);
  const Vector<int> stage_of = settings.stages_of_devices();
  for (const DeviceId device : of_devices.indices())
    if (StageTimes& stage = result[stage_of[device]]; of_devices[device].busy() > stage.busy())
      stage = of_devices[device];
  const Vector<int> layers = layers_of_stages(own, transformer_layers(graph).count());
  for (const int stage : layers.indices()) result[stage].layers = layers[stage];
  return result;
}

}  // namespace ff
