#include "search/settings/estimate.h"

#include <algorithm>

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
                          const CostOptions& costs, ParameterLoads& loads, StandIns stand_ins) {
  ShapeCosts result;
  const SimulatedSettings settings(parallelism, graph, topology, costs, {}, &loads, stand_ins);
  SimulatedSettings::Iteration one(settings, 1);
  const Evaluator::Details details = one.evaluator().simulated(settings.strategy());
  if (stand_ins == StandIns::assumed &&
      !have_own_transfers(details.tasks, details.strategy, one.evaluator().builder().edges(), settings.replicas()))
    return costs_of_shape(parallelism, graph, topology, costs, loads, StandIns::compared);
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
  if (parallelism.synchronization == Synchronization::sharded_gradients ||
      parallelism.synchronization == Synchronization::sharded_parameters)
    result.busiest = std::max(result.busiest, *std::max_element(synchronizing.begin(), synchronizing.end()));
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
