#include "search/settings/estimate.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "common/task_graph/issue_order.h"

namespace ff {
namespace {

// Devices of several models share layers by their speed: then less is busy than with as many layers for each. A bound.
// `alike`, by device: how many it stands for.
double share_of_equal_layers(const Vector<Nanoseconds>& busy, const Vector<int64_t>& alike, const Topology& topology) {
  const bool one_model = std::all_of(topology.devices.begin(), topology.devices.end(),
                                     [&](const Device& device) { return device.model == topology.devices[0].model; });
  double count = 0, sum = 0, sum_of_rates = 0;
  for (const DeviceId device : busy.indices()) {
    if (alike[device] == 0) continue;
    if (busy[device] <= 0) return 1;
    const auto weight = static_cast<double>(alike[device]), time = static_cast<double>(busy[device]);
    count += weight, sum += weight * time, sum_of_rates += weight / time;
  }
  return one_model || count == 0 ? 1 : count / sum_of_rates / (sum / count);
}

// Of one micro-batch, which runs forward first: what lives after the last forward task.
int64_t kept_for_backward(const TaskGraph& tasks, const MemoryPlan& plan) {
  int end = -1;
  for (const int step : plan.steps.indices()) {
    const TaskKind kind = tasks.tasks[plan.steps[step]].kind;
    if (kind == TaskKind::forward || kind == TaskKind::forward_statistics) end = step;
  }
  int64_t bytes = 0;
  for (const PlannedBuffer& buffer : plan.buffers)
    if (buffer.first <= end && buffer.last > end) bytes += buffer.bytes;
  return bytes;
}

}  // namespace

ShapeCosts costs_of_shape(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                          const CostOptions& costs, KnownFolds& folds, StandIns stand_ins) {
  ShapeCosts result;
  const SimulatedSettings settings(parallelism, graph, topology, costs, {}, &folds, stand_ins);
  SimulatedSettings::Iteration one(settings, 1);
  const Evaluator::Details details = one.evaluator().simulated(settings.strategy());
  if (stand_ins == StandIns::assumed &&
      !have_own_transfers(details.tasks, details.strategy, one.evaluator().builder().edges(), settings.replicas()))
    return costs_of_shape(parallelism, graph, topology, costs, folds, StandIns::compared);
  result.makespan = details.timeline.makespan;
  const Topology& simulated = settings.topology();
  const Vector<int> layer_of = layer_or_none_of_operators(graph);
  Vector<Nanoseconds> busy(simulated.devices.size(), 0), in_layers = busy, synchronizing = busy;
  const auto add_busy = [&](DeviceId device, OperatorId op, Nanoseconds duration) {
    busy[device] += duration;
    if (layer_of[op] != no_layer) in_layers[device] += duration;
  };
  for (const int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    const Nanoseconds duration = details.costs.duration[t];
    if (is_compute(task.kind)) add_busy(task.device, task.op, duration);
    else if (is_edge_collective(task.kind))
      for (const DeviceId device : details.tasks.holders(task))
        add_busy(device, one.evaluator().builder().edges()[task.edge].consumer, duration);
    else if (is_parameter_collective(task.kind))
      for (const DeviceId device : details.tasks.holders(task)) synchronizing[device] += duration;
  }
  for (const DeviceId device : simulated.devices.indices())
    result.busy += settings.devices_alike(device) * busy[device] / settings.groups();
  Vector<int64_t> alike;
  for (const DeviceId device : busy.indices()) alike.push_back(settings.devices_alike(device));
  result.busy =
      static_cast<Nanoseconds>(share_of_equal_layers(busy, alike, simulated) * static_cast<double>(result.busy));
  result.busiest = result.computing = *std::max_element(busy.begin(), busy.end());
  // Sharded gradients are reduced, and sharded parameters gathered, for each micro-batch.
  if (shards_gradients(sharding_of_micro_batches(parallelism)))
    result.synchronizing = *std::max_element(synchronizing.begin(), synchronizing.end());
  result.busiest = std::max(result.busiest, result.synchronizing);
  const Vector<int> issued = on_demand_issue_order(details.tasks, tasks_by_start(details.tasks, details.timeline));
  const MemoryModel::Needs needs =
      one.evaluator().memory_model().needs(details.strategy, details.tasks, issued, TransferBuffers::on_demand);
  for (const DeviceId device : simulated.devices.indices()) {
    result.one.push_back(needs.bytes(device));
    result.further.push_back(kept_for_backward(details.tasks, needs.plans[device]) + needs.kept_workspaces[device]);
  }
  result.stage = settings.stages_of_devices();
  result.stages.resize(parallelism.pipeline);
  const Vector<int> layers = layers_of_chunks(parallelism, transformer_layers(graph).count());
  for (const int s : result.stages.indices()) result.stages[s].layers = layers[s];
  for (const DeviceId device : busy.indices()) {
    StageCosts& stage = result.stages[result.stage[device]];
    if (static_cast<double>(busy[device]) <= stage.busy_with(stage.layers)) continue;
    stage.of_layer = static_cast<double>(in_layers[device]) / std::max(1, stage.layers);
    stage.beside = static_cast<double>(busy[device] - in_layers[device]);
  }
  for (const DeviceId device : result.stage.indices())
    result.capacity.push_back(simulated.model_of(device).memory_bytes);
  return result;
}

namespace {

double busy(const StageCosts& stage) { return stage.busy_with(stage.layers); }

// With so many more layers than the second has, of which the first has one less.
template <typename Number>
Number extrapolated(Number first, Number second, double further) {
  return second + static_cast<Number>(further * static_cast<double>(second - first));
}

// [stage]: how many layers it has. Of plans with equally many, `second` with one more than `first`.
ShapeCosts extrapolated(const ShapeCosts& first, ShapeCosts second, const Vector<int>& of_stage) {
  const int with = second.stages[0].layers, stages = of_stage.count();
  const double further = std::accumulate(of_stage.begin(), of_stage.end(), 0) - with * stages,
               most = *std::max_element(of_stage.begin(), of_stage.end()) - with;
  second.makespan = extrapolated(first.makespan, second.makespan, further / stages);
  second.busy = extrapolated(first.busy, second.busy, further / stages);
  second.synchronizing = extrapolated(first.synchronizing, second.synchronizing, most);
  for (const DeviceId device : second.stage.indices()) {
    const int more = of_stage[second.stage[device]] - with;
    second.one[device] = extrapolated(first.one[device], second.one[device], more);
    second.further[device] = extrapolated(first.further[device], second.further[device], more);
  }
  double computing = 0;
  for (const int s : of_stage.indices()) {
    const double of_layer = busy(second.stages[s]) - busy(first.stages[s]);
    second.stages[s] = {of_stage[s], of_layer, busy(second.stages[s]) - with * of_layer};
    computing = std::max(computing, busy(second.stages[s]));
  }
  second.computing = static_cast<Nanoseconds>(computing);
  second.busiest = std::max(second.computing, second.synchronizing);
  return second;
}

bool same_devices(const ShapeCosts& a, const ShapeCosts& b) {
  const auto simulated = [](int64_t x, int64_t y) { return (x > 0) == (y > 0); };
  return a.stage == b.stage && std::ranges::equal(a.one, b.one, simulated);
}

// As many layers as are known from (parallelism.h), and one more for each stage.
std::optional<std::pair<const Graph*, const Graph*>> few_layers(const Parallelism& parallelism, FewerLayers& layers,
                                                                const Vector<int>& of_stage) {
  const int stages = parallelism.pipeline, few = stages > 2 ? 1 : stages == 2 ? 2 : 3;
  if (!parallelism.layers.empty() || parallelism.recompute_layers > 0 ||
      *std::min_element(of_stage.begin(), of_stage.end()) < 2 * (few + 1))  // else no less than all
    return std::nullopt;
  const Graph *const first = layers.with(few * stages), *const second = layers.with((few + 1) * stages);
  if (!first || !second) return std::nullopt;
  // Buckets of several layers hide behind further layers, which few layers do not show.
  const int64_t bucket = conventions_of(parallelism, layers.graph().batch_size).bucket_elements;
  const int64_t of_layer = (second->parameter_count() - first->parameter_count()) / stages;
  if (overlaps_reductions(parallelism) && of_layer / parallelism.tensor / parallelism.expert < bucket)
    return std::nullopt;
  return std::pair(first, second);
}

}  // namespace

ShapeCosts costs_of_shape(const Parallelism& parallelism, FewerLayers& layers, const Topology& topology,
                          const CostOptions& costs, KnownFolds& folds) {
  const Vector<int> of_stage = layers_of_stages(parallelism, transformer_layers(layers.graph()).count());
  if (const auto few = few_layers(parallelism, layers, of_stage)) {
    const ShapeCosts first = costs_of_shape(parallelism, *few->first, topology, costs, folds);
    ShapeCosts second = costs_of_shape(parallelism, *few->second, topology, costs, folds);
    if (same_devices(first, second)) return extrapolated(first, std::move(second), of_stage);
  }
  return costs_of_shape(parallelism, layers.graph(), topology, costs, folds);
}

ShapeCosts with_layers(ShapeCosts costs, const Vector<int>& of_stage) {
  double busiest = 0;
  Vector<double> share;  // of what a stage has of layers
  for (const int s : costs.stages.indices()) {
    StageCosts& stage = costs.stages[s];
    costs.makespan += static_cast<Nanoseconds>((of_stage[s] - stage.layers) * stage.of_layer);
    // What the embedding and the loss need does not become more with layers.
    const double of_layers = static_cast<double>(of_stage[s]) / stage.layers;
    share.push_back(stage.beside > 0 ? std::min(of_layers, 1.0) : of_layers);
    stage.layers = of_stage[s];
    busiest = std::max(busiest, stage.busy_with(stage.layers));
  }
  costs.busiest = static_cast<Nanoseconds>(busiest);
  for (const DeviceId device : costs.stage.indices())
    for (Vector<int64_t>* bytes : {&costs.one, &costs.further})
      (*bytes)[device] = static_cast<int64_t>(share[costs.stage[device]] * static_cast<double>((*bytes)[device]));
  return costs;
}

Nanoseconds estimated_time(const ShapeCosts& costs, const Parallelism& parallelism, int micro_batches) {
  const auto busiest = static_cast<double>(costs.busiest);
  const double saved = (parallelism.pipeline - 1) * busiest * (1 - 1.0 / parallelism.chunks);
  return costs.makespan + static_cast<Nanoseconds>((micro_batches - 1) * busiest - saved);
}

namespace {

// Micro-batches whose activations a stage keeps at once: 1F1B, and interleaved (Narayanan et al. 2021, section 2.2).
double in_flight(const Parallelism& parallelism, int stage, int micro_batches) {
  const int behind = parallelism.pipeline - 1 - stage;
  if (parallelism.chunks == 1) return std::min(micro_batches, behind + 1);
  const double chunks = 2 * behind + (parallelism.chunks - 1) * parallelism.pipeline + 1;
  return std::min<double>(micro_batches, chunks / parallelism.chunks);
}

}  // namespace

double estimated_memory_share(const ShapeCosts& costs, const Parallelism& parallelism, int micro_batches,
                              double samples) {
  double most = 0;
  for (const DeviceId device : costs.one.indices()) {
    if (costs.capacity[device] <= 0) continue;
    const double more = samples * in_flight(parallelism, costs.stage[device], micro_batches) - 1;
    const double bytes = static_cast<double>(costs.one[device]) + more * static_cast<double>(costs.further[device]);
    most = std::max(most, bytes / static_cast<double>(costs.capacity[device]));
  }
  return most;
}

}  // namespace ff
