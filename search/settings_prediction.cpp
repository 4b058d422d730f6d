#include "search/settings_prediction.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "common/task_graph/issue_order.h"
#include "search/optimizer/alike_ranks.h"

namespace ff {
namespace {

// Numbers of micro-batches of which more are continued.
struct Simulated {
  int few, more;
};

// With chunks, devices take as many micro-batches of a chunk as there are stages before they take the next chunk: some
// rounds of that, as these are not all alike.
Simulated micro_batches_to_simulate(const Parallelism& parallelism) {
  const int stages = parallelism.pipeline;
  if (parallelism.chunks == 1) return {stages + 2, stages + 4};
  constexpr int enough = 16;
  const int rounds = (enough + stages - 1) / stages;
  return {std::max(2, rounds) * stages, (std::max(2, rounds) + rounds) * stages};
}

int64_t continued(int64_t few, int64_t more, const Simulated& simulated, int micro_batches) {
  return more + (more - few) * (micro_batches - simulated.more) / (simulated.more - simulated.few);
}

// Preallocated buffers of transfers become more with each micro-batch; of all else a device keeps what those in flight
// need.
Vector<int64_t> memory_of_all(const Vector<int64_t>& few, const Vector<int64_t>& more, TransferBuffers buffers,
                              const Simulated& simulated, int micro_batches) {
  Vector<int64_t> result;
  for (const int d : few.indices())
    result.push_back(buffers == TransferBuffers::on_demand || few[d] > more[d]
                         ? std::max(few[d], more[d])
                         : continued(few[d], more[d], simulated, micro_batches));
  return result;
}

// The simulation of some micro-batches.
struct Sample {
  Sample(const SimulatedSettings& settings, int micro_batches)
      : iteration(settings, micro_batches), details(iteration.simulated()) {}

  MemoryModel::Needs memory(TransferBuffers buffers) {
    const Vector<int> order =
        buffers == TransferBuffers::preallocated ? details.order : on_demand_issue_order(details.tasks, details.order);
    return iteration.evaluator().memory_model().needs(details.strategy, details.tasks, order, buffers);
  }

  SimulatedSettings::Iteration iteration;
  Evaluator::Details details;
};

// [resource]: how long it works; devices also wait in collectives among the parts of an operator.
Vector<Nanoseconds> work_of(const Evaluator::Details& details) {
  const TaskGraph& tasks = details.tasks;
  Vector<Nanoseconds> work(details.costs.resource_count, 0);
  for (const ResourceUse& use : details.costs.uses) work[use.resource] += use.occupancy;
  for (const int t : tasks.tasks.indices())
    if (is_edge_collective(tasks.tasks[t].kind))
      for (const DeviceId device : tasks.holders(tasks.tasks[t])) work[device] += details.costs.duration[t];
  return work;
}

// Do further micro-batches take as long as the busiest device or link works for one? Where they take less, stages that
// have less to do still run ahead.
bool is_steady(const Evaluator::Details& few, const Evaluator::Details& more) {
  const Vector<Nanoseconds> of_few = work_of(few), of_more = work_of(more);
  Nanoseconds busiest = 0;
  for (const int resource : of_few.indices()) busiest = std::max(busiest, of_more[resource] - of_few[resource]);
  return more.timeline.makespan - few.timeline.makespan >= busiest;
}

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

// Of the devices that are nearly as full as the fullest one, exactly; where they exceed memory, what lives at once.
// `of_all`: the bytes by device of all micro-batches, from those of each sample.
template <typename OfAll>
void set_memory(SettingsPrediction& prediction, const Topology& topology, const Vector<Sample*>& samples,
                const OfAll& of_all) {
  constexpr double nearly = 0.97;
  // Preallocated buffers become more with each micro-batch: what fits at first may not in the end.
  for (const TransferBuffers buffers : {TransferBuffers::preallocated, TransferBuffers::on_demand}) {
    Vector<MemoryModel::Needs> needs;
    for (Sample* const sample : samples) needs.push_back(sample->memory(buffers));
    const auto bytes_of_all = [&] {
      Vector<Vector<int64_t>> bytes;
      for (const MemoryModel::Needs& one : needs) bytes.push_back(one.bytes());
      return of_all(bytes, buffers);
    };
    Vector<int64_t> bytes = bytes_of_all();
    auto [device, share] = fullest(bytes, topology);
    if (share <= 1) {
      Vector<bool> chosen;
      for (const int64_t of_device : bytes)
        chosen.push_back(static_cast<double>(of_device) >= nearly * static_cast<double>(bytes[device]));
      for (MemoryModel::Needs& one : needs) lay_out(one.plans, chosen);
      bytes = bytes_of_all();
      std::tie(device, share) = fullest(bytes, topology);
    }
    prediction.memory_bytes = bytes[device];
    prediction.memory_share = share;
    if (share <= 1) return;
  }
}

// Of one micro-batch.
FoldedPlan plan_of_some(const Parallelism& parallelism, const Graph& graph, const Topology& topology) {
  Parallelism own = parallelism;
  Graph of_one = with_batch_size(graph, own.micro_batch * own.data, "graph");
  if (std::optional<FoldedPlan> found = folded(own, of_one, topology)) return *std::move(found);
  FoldedPlan all{std::move(of_one), topology, {}, nullptr};
  all.plan = plan_of(own, all.graph, all.topology);
  return all;
}

CostOptions with_conventions(CostOptions costs, const Parallelism& parallelism, int64_t batch) {
  costs.conventions = conventions_of(parallelism, batch);
  return costs;
}

GraphAndTopology files_of(const FoldedPlan& plan, int micro_batches) {
  StrategySettings settings = plan.plan.settings;
  settings.micro_batches = micro_batches;
  return {with_batch_size(plan.graph, plan.graph.batch_size * micro_batches, "graph"),
          plan.topology,
          {},
          std::move(settings),
          plan.replicas};
}

}  // namespace

SimulatedSettings::SimulatedSettings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                     const CostOptions& costs)
    : costs_(with_conventions(costs, parallelism, graph.batch_size)), plan_(plan_of_some(parallelism, graph, topology)),
      strategy_(std::move(plan_.plan.strategy)),
      groups_(parallelism.data / (plan_.replicas ? plan_.replicas->count : 1)) {
  Loaded one = load(files_of(plan_, 1), costs_);
  plan_.replicas = with_stand_ins(one.problem(), parallelism, strategy_);
}

SimulatedSettings::Iteration::Iteration(const SimulatedSettings& settings, int micro_batches)
    : strategy_(settings.strategy_), loaded_(load(files_of(settings.plan_, micro_batches), settings.costs_)),
      evaluator_(loaded_.problem()) {}

Evaluator::Details SimulatedSettings::Iteration::simulated() {
  if (evaluator_.problem().settings.micro_batches > 1) return evaluator_.simulated_one_forward_one_backward(strategy_);
  Evaluator::Details details = evaluator_.simulated(strategy_);
  details.order = tasks_by_start(details.tasks, details.timeline);
  return details;
}

Parallelism completed(Parallelism parallelism, const Graph& graph, const Topology& topology) {
  const int model = parallelism.of_layer() * parallelism.pipeline, devices = topology.devices.count();
  const auto fail = [&](const std::string& what) { throw InputError(to_string(parallelism) + ": " + what); };
  if (devices % model != 0)
    fail(product_of_degrees(parallelism) + " does not divide the " + std::to_string(devices) + " devices");
  if (parallelism.data > 0 && parallelism.data != devices / model)
    fail("the " + std::to_string(devices) + " devices make dp " + std::to_string(devices / model));
  parallelism.data = devices / model;
  if (graph.batch_size % parallelism.data != 0)
    fail("dp does not divide the batch of " + std::to_string(graph.batch_size) + " samples");
  const int64_t samples = graph.batch_size / parallelism.data;
  if (parallelism.micro_batch == 0) parallelism.micro_batch = samples;
  if (samples % parallelism.micro_batch != 0)
    fail("micro_batch does not divide the " + std::to_string(samples) + " samples of a data-parallel group");
  return parallelism;
}

SettingsPrediction predict_settings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                    const CostOptions& costs, bool all_micro_batches) {
  SettingsPrediction result;
  const Parallelism own = result.parallelism = completed(parallelism, graph, topology);
  const int micro_batches = static_cast<int>(graph.batch_size / own.data / own.micro_batch);
  const SimulatedSettings settings(own, graph, topology, costs);
  for (Simulated simulated = micro_batches_to_simulate(own); !all_micro_batches && micro_batches > simulated.more;
       simulated = {2 * simulated.few, simulated.few + simulated.more}) {
    Sample few(settings, simulated.few), more(settings, simulated.more);
    if (!is_steady(few.details, more.details)) continue;
    result.extrapolated = true;
    result.makespan =
        continued(few.details.timeline.makespan, more.details.timeline.makespan, simulated, micro_batches);
    set_memory(result, settings.topology(), {&few, &more},
               [&](const Vector<Vector<int64_t>>& bytes, TransferBuffers buffers) {
                 return memory_of_all(bytes[0], bytes[1], buffers, simulated, micro_batches);
               });
    return result;
  }
  Sample all(settings, micro_batches);
  result.makespan = all.details.timeline.makespan;
  set_memory(result, settings.topology(), {&all},
             [](const Vector<Vector<int64_t>>& bytes, TransferBuffers) { return bytes[0]; });
  return result;
}

namespace {

constexpr Nanoseconds StageTimes::*all_times[] = {
    &StageTimes::forward,     &StageTimes::backward,  &StageTimes::recompute,      &StageTimes::update,
    &StageTimes::collectives, &StageTimes::transfers, &StageTimes::synchronization};

Vector<StageTimes> times_of_devices(const Sample& sample, int devices) {
  Vector<StageTimes> result(devices);
  const TaskGraph& tasks = sample.details.tasks;
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    const Nanoseconds duration = sample.details.costs.duration[t];
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
  const int micro_batches = static_cast<int>(graph.batch_size / own.data / own.micro_batch);
  const Simulated simulated = micro_batches_to_simulate(own);
  const SimulatedSettings settings(own, graph, topology, costs);
  const int devices = settings.topology().devices.count();
  const bool continues = micro_batches > simulated.more;
  Vector<StageTimes> of_devices =
      times_of_devices(Sample(settings, continues ? simulated.more : micro_batches), devices);
  if (continues) {
    const Vector<StageTimes> few = times_of_devices(Sample(settings, simulated.few), devices);
    for (const DeviceId device : few.indices())
      for (const auto time : all_times)
        of_devices[device].*time = continued(few[device].*time, of_devices[device].*time, simulated, micro_batches);
  }
  Vector<StageTimes> result(own.pipeline);
  const Vector<DeviceId> order = settings.topology().by_links();
  for (const int place : order.indices()) {
    StageTimes& stage = result[place / (own.of_layer() * settings.groups())];
    if (const StageTimes& one = of_devices[order[place]]; one.busy() > stage.busy()) stage = one;
  }
  const Vector<int> of_chunks = layers_of_chunks(own, transformer_layers(graph).count());
  for (const int chunk : of_chunks.indices()) result[chunk % own.pipeline].layers += of_chunks[chunk];
  return result;
}

}  // namespace ff
