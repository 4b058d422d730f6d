#include "search/settings_prediction.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/live_memory.h"
#include "common/task_graph/sharded_units.h"
#include "search/optimizer/alike_ranks.h"

namespace ff {
namespace {

// The simulation of some micro-batches, of which `further` ones may repeat the last.
struct Sample {
  Sample(const SimulatedSettings& settings, int micro_batches, int further)
      : iteration(settings, micro_batches), details(iteration.simulated(further)), further(further) {}

  MemoryModel::Needs memory(TransferBuffers buffers) {
    const Vector<int> order =
        buffers == TransferBuffers::preallocated ? details.order : on_demand_issue_order(details.tasks, details.order);
    return iteration.evaluator().memory_model().needs(details.strategy, details.tasks, order, buffers);
  }

  Nanoseconds makespan() const {
    return details.timeline.makespan + (details.repetition ? details.repetition->time_of(further) : 0);
  }

  // [device]: of all micro-batches. A device keeps what those in flight need; preallocated buffers of transfers become
  // more with each of them.
  Vector<int64_t> bytes(const MemoryModel::Needs& needs) {
    Vector<int64_t> result = needs.bytes();
    for (const int device : result.indices()) result[device] += further * bytes_of_further(needs.plans[device]);
    return result;
  }

  SimulatedSettings::Iteration iteration;
  Evaluator::Details details;
  const int further;
  bool exact = true;  // else the repetition is that of a steady growth

 private:
  // What is received lies in memory from the first step on, what is sent until the last. One of them is what there is
  // more of at the moment that needs most.
  int64_t bytes_of_further(const MemoryPlan& plan) {
    const int last = iteration.evaluator().builder().micro_batches() - 1;
    int64_t received = 0, sent = 0;
    for (const PlannedBuffer& buffer : plan.buffers) {
      const bool from_first = buffer.first == 0, to_end = buffer.last == plan.steps.count();
      if (!from_first && !to_end) continue;
      const int micro_batch = micro_batch_of(buffer.key);
      if (from_first && micro_batch == last) received += aligned(buffer.bytes);
      if (to_end && micro_batch == 0) sent += aligned(buffer.bytes);
    }
    return std::max(received, sent);
  }

  // -1: of a buffer of several or none.
  int micro_batch_of(const BufferKey& key) {
    using Kind = BufferKey::Kind;
    TaskGraphBuilder& builder = iteration.evaluator().builder();
    switch (key.kind) {
      case Kind::packed_activation:
      case Kind::received_activation:
      case Kind::packed_gradient:
      case Kind::received_gradient:
        if (const auto& pairs = details.tasks.pairs[key.what])
          return micro_batch_of_part(builder, details.strategy, builder.edges()[key.what].producer,
                                     (*pairs)[key.part].producer_part);
        return -1;
      case Kind::received_parameter_gradient:
      case Kind::packed_parameter_values:
      case Kind::received_parameter_values:
      case Kind::packed_parameter_gradient:
      case Kind::gathered_parameters: return -1;
      default: return micro_batch_of_part(builder, details.strategy, key.what, key.part);
    }
  }
};

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
void set_memory(SettingsPrediction& prediction, const Topology& topology, Sample& sample) {
  constexpr double nearly = 0.97;
  // Preallocated buffers become more with each micro-batch: what fits at first may not in the end.
  for (const TransferBuffers buffers : {TransferBuffers::preallocated, TransferBuffers::on_demand}) {
    MemoryModel::Needs needs = sample.memory(buffers);
    Vector<int64_t> bytes = sample.bytes(needs);
    auto [device, share] = fullest(bytes, topology);
    if (share <= 1) {
      Vector<bool> chosen;
      for (const int64_t of_device : bytes)
        chosen.push_back(static_cast<double>(of_device) >= nearly * static_cast<double>(bytes[device]));
      lay_out(needs.plans, chosen);
      bytes = sample.bytes(needs);
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
    : settings_(settings), loaded_(load(files_of(settings.plan_, micro_batches), settings.costs_)),
      evaluator_(loaded_.problem()) {}

Evaluator::Details SimulatedSettings::Iteration::simulated(int further) {
  if (further > 0) {
    Iteration all(settings_, evaluator_.problem().settings.micro_batches + further), two(settings_, 2);
    return evaluator_.simulated_one_forward_one_backward(settings_.strategy_, all.evaluator_,
                                                         two.evaluator_.tasks(settings_.strategy_));
  }
  if (evaluator_.problem().settings.micro_batches > 1)
    return evaluator_.simulated_one_forward_one_backward(settings_.strategy_);
  Evaluator::Details details = evaluator_.simulated(settings_.strategy_);
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

namespace {

int micro_batches_of(const Parallelism& completed, const Graph& graph) {
  return static_cast<int>(graph.batch_size / completed.data / completed.micro_batch);
}

// The time that each micro-batch adds to the makespan of samples with more and more of them.
class SteadyGrowth {
 public:
  // Of a sample that does not repeat: does each micro-batch take as long as in the sample before?
  std::optional<Repetition> found(int micro_batches, Nanoseconds makespan) {
    samples_.emplace_back(micro_batches, static_cast<double>(makespan));
    const int last = samples_.count() - 1;
    if (last < 2) return std::nullopt;
    const double before = each_between(last - 2, last - 1), now = each_between(last - 1, last);
    if (std::abs(now - before) > tolerance * now) return std::nullopt;
    return Repetition{1, static_cast<Nanoseconds>(now)};
  }

 private:
  static constexpr double tolerance = 0.001;
  double each_between(int a, int b) const {
    return (samples_[b].second - samples_[a].second) / (samples_[b].first - samples_[a].first);
  }
  Vector<std::pair<int, double>> samples_;  // micro-batches, makespan
};

// Of few micro-batches, if the others follow from them; else of all. Those that fill the pipeline are followed by as
// many that still meet them, if stages are alike; with several chunks a stage, by rounds of as many as there are
// stages.
std::unique_ptr<Sample> sample_of(const SimulatedSettings& settings, const Parallelism& parallelism, int micro_batches,
                                  Extrapolation extrapolation) {
  const int stages = parallelism.pipeline, round = parallelism.chunks == 1 ? 1 : stages;
  SteadyGrowth growth;
  int tried = 0;  // together with those of one more attempt fewer than all
  for (int some = parallelism.chunks == 1 ? 2 * stages + 1 : 5 * stages; tried + some < micro_batches;
       some += (some / 2 + round - 1) / round * round) {
    auto sample = std::make_unique<Sample>(settings, some, micro_batches - some);
    if (sample->details.repetition) return sample;
    if (extrapolation == Extrapolation::steady && sample->details.timeline.makespan > 0)
      if ((sample->details.repetition = growth.found(some, sample->makespan()))) {
        sample->exact = false;
        return sample;
      }
    tried += some;
  }
  return std::make_unique<Sample>(settings, micro_batches, 0);
}

}  // namespace

SettingsPrediction predict_settings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                    const CostOptions& costs, Extrapolation extrapolation) {
  SettingsPrediction result;
  const Parallelism own = result.parallelism = completed(parallelism, graph, topology);
  const SimulatedSettings settings(own, graph, topology, costs);
  const auto sample = sample_of(settings, own, micro_batches_of(own, graph), extrapolation);
  result.exact = sample->exact;
  result.extrapolated = sample->further > 0;
  result.makespan = sample->makespan();
  set_memory(result, settings.topology(), *sample);
  return result;
}

namespace {

Vector<StageTimes> times_of_devices(Sample& sample, int devices) {
  Vector<StageTimes> result(devices);
  const TaskGraph& tasks = sample.details.tasks;
  TaskGraphBuilder& builder = sample.iteration.evaluator().builder();
  const Vector<int32_t> micro_batches = micro_batches_of_tasks(builder, sample.details.strategy, tasks);
  for (const int t : tasks.tasks.indices()) {
    const Task& task = tasks.tasks[t];
    // Those of the last one stand for those of the further ones.
    const int times = 1 + (micro_batches[t] == builder.micro_batches() - 1 ? sample.further : 0);
    const Nanoseconds duration = times * sample.details.costs.duration[t];
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
  const auto sample = sample_of(settings, own, micro_batches_of(own, graph), Extrapolation::steady);
  const Vector<StageTimes> of_devices = times_of_devices(*sample, settings.topology().devices.count());
  Vector<StageTimes> result(own.pipeline);
  const Vector<DeviceId> order = settings.topology().by_links();
  for (const int place : order.indices()) {
    StageTimes& stage = result[place / (own.of_layer() * settings.groups())];
    if (const StageTimes& one = of_devices[order[place]]; one.busy() > stage.busy()) stage = one;
  }
  const Vector<int> layers = layers_of_stages(own, transformer_layers(graph).count());
  for (const int stage : layers.indices()) result[stage].layers = layers[stage];
  return result;
}

}  // namespace ff
