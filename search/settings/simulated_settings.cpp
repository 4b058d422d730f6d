#include "search/settings/simulated_settings.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <utility>

#include "common/task_graph/issue_order.h"
#include "common/task_graph/live_memory.h"
#include "common/task_graph/sharded_units.h"

namespace ff {
namespace {

// Of one micro-batch.
FoldedPlan plan_of_some(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                        KnownFolds* folds) {
  std::optional<KnownFolds> own_folds;
  if (!folds) folds = &own_folds.emplace(topology);
  Parallelism own = parallelism;
  Graph of_one = with_batch_size(graph, own.micro_batch * own.data, "graph");
  if (std::optional<FoldedPlan> found = folded(own, of_one, *folds)) return *std::move(found);
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
                                     const CostOptions& costs, const std::optional<Vector<std::string>>& recompute,
                                     KnownFolds* folds, StandIns stand_ins)
    : costs_(with_conventions(costs, parallelism, graph.batch_size)),
      plan_(plan_of_some(parallelism, graph, topology, folds)), strategy_(std::move(plan_.plan.strategy)),
      simulated_(parallelism) {
  if (plan_.replicas) simulated_ = simulated_.part(plan_.replicas->count);
  if (recompute) plan_.plan.settings.recompute = *recompute;
  Loaded one = load(files_of(plan_, 1), costs_);
  plan_.replicas = with_stand_ins(one.problem(), parallelism, strategy_, stand_ins);
}

Vector<int> SimulatedSettings::stages_of_devices() const {
  const Vector<DeviceId> order = topology().by_links();
  const Vector<int> stages = stages_of_places(simulated_);
  Vector<int> result(order.size(), 0);
  for (const int place : order.indices()) result[order[place]] = stages[place];
  return result;
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
  details.order = evaluator_.problem().kernels.conventions().framework_memory
                      ? default_issue_order(evaluator_.builder(), details.tasks)  // the program's
                      : tasks_by_start(details.tasks, details.timeline);
  return details;
}

SimulatedMicroBatches::SimulatedMicroBatches(const SimulatedSettings& settings, int micro_batches, int further)
    : settings_(settings), iteration_(settings, micro_batches), details_(iteration_.simulated(further)),
      further_(further) {}

Nanoseconds SimulatedMicroBatches::makespan() const {
  return details_.timeline.makespan + (details_.repetition ? details_.repetition->time_of(further_) : 0);
}

MemoryModel::Needs SimulatedMicroBatches::memory(TransferBuffers buffers) {
  return evaluator().memory_model().needs(details_.strategy, details_.tasks, evaluator().issue_order(details_, buffers),
                                          buffers);
}

Vector<int64_t> SimulatedMicroBatches::bytes(const MemoryModel::Needs& needs) {
  Vector<int64_t> result = needs.bytes();
  for (const int device : result.indices())
    result[device] += further_ * (needs.of_last_micro_batch[device] + bytes_of_further(needs.plans[device]));
  return result;
}

SimulatedMicroBatches::Memory SimulatedMicroBatches::memory_of_all() {
  std::optional<Memory> least;
  for (const TransferBuffers buffers : evaluator().transfer_buffers()) {
    MemoryModel::Needs needs = memory(buffers);
    lay_out(needs.plans);
    const bool grows = further_ > 0 && std::any_of(needs.plans.begin(), needs.plans.end(),
                                                   [&](const MemoryPlan& plan) { return bytes_of_further(plan) > 0; });
    Memory found{bytes(needs), buffers, !grows};
    if (!least || evaluator().fullness(found.bytes) < evaluator().fullness(least->bytes)) least = std::move(found);
    if (evaluator().fullness(least->bytes) <= 1) break;
  }
  return *std::move(least);
}

// Some operators are computed once for all micro-batches.
CostCounts SimulatedMicroBatches::sources() {
  const CostCounts of_few = evaluator().cost_model().count_sources(details_.strategy);
  if (further_ == 0) return of_few;
  SimulatedSettings::Iteration one(settings_, 1);
  const CostCounts of_one = one.evaluator().cost_model().count_sources(settings_.strategy());
  const int few = evaluator().builder().micro_batches();
  const auto of_all = [&](int64_t CostCounts::*source) {
    return of_few.*source + (of_few.*source - of_one.*source) / (few - 1) * further_;
  };
  return {of_all(&CostCounts::profile), of_all(&CostCounts::measured), of_all(&CostCounts::analytic)};
}

Vector<int64_t> SimulatedMicroBatches::times() {
  TaskGraphBuilder& builder = evaluator().builder();
  Vector<int64_t> result;
  for (const int micro_batch : micro_batches_of_tasks(builder, details_.strategy, details_.tasks))
    result.push_back(micro_batch == builder.micro_batches() - 1 ? 1 + further_ : 1);
  return result;
}

// What is received lies in memory from the first step on, what is sent until the last. One of them is what there is
// more of at the moment that needs most.
int64_t SimulatedMicroBatches::bytes_of_further(const MemoryPlan& plan) {
  const int last = evaluator().builder().micro_batches() - 1;
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
int SimulatedMicroBatches::micro_batch_of(const BufferKey& key) {
  using Kind = BufferKey::Kind;
  TaskGraphBuilder& builder = evaluator().builder();
  switch (key.kind) {
    case Kind::packed_activation:
    case Kind::received_activation:
    case Kind::packed_gradient:
    case Kind::received_gradient:
      if (const auto& pairs = details_.tasks.pairs[key.what])
        return micro_batch_of_part(builder, details_.strategy, builder.edges()[key.what].producer,
                                   (*pairs)[key.part].producer_part);
      return -1;
    case Kind::received_parameter_gradient:
    case Kind::packed_parameter_values:
    case Kind::received_parameter_values:
    case Kind::packed_parameter_gradient:
    case Kind::gathered_parameters: return -1;
    default: return micro_batch_of_part(builder, details_.strategy, key.what, key.part);
  }
}

namespace {

// Of the device that is the slowest in it: the time from one micro-batch to the next, where the last ones begin.
double slowest_progress(const Evaluator::Details& details, TaskGraphBuilder& builder, int devices, int round) {
  const int all = builder.micro_batches(), some = std::max(round, all / 3 / round * round);
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  Vector<Vector<Nanoseconds>> begin(devices, Vector<Nanoseconds>(all, never));
  const Vector<int> micro_batches = micro_batches_of_tasks(builder, details.strategy, details.tasks);
  for (const int t : details.tasks.tasks.indices())
    if (const Task& task = details.tasks.tasks[t]; occupies_device(task.kind) && micro_batches[t] >= 0)
      begin[task.device][micro_batches[t]] = std::min(begin[task.device][micro_batches[t]], details.timeline.start[t]);
  double slowest = 0;
  for (const Vector<Nanoseconds>& of_device : begin)
    if (of_device[all - 1] != never)
      slowest = std::max(slowest, static_cast<double>(of_device[all - 1] - of_device[all - 1 - some]) / some);
  return slowest;
}

// The time that each micro-batch adds to the makespan of samples with other numbers of them.
class SteadyGrowth {
 public:
  // `slowest`: slowest_progress.
  void add(int micro_batches, Nanoseconds makespan, double slowest) {
    samples_[micro_batches] = {static_cast<double>(makespan), slowest};
  }
  // Of the three largest samples: does each micro-batch take as long up to the second one as from there on, and is no
  // device slower? What it is behind adds up, until it is what the last ones wait for.
  std::optional<Repetition> found() const {
    if (samples_.size() < 3) return std::nullopt;
    const auto last = std::prev(samples_.end()), second = std::prev(last), first = std::prev(second);
    const double each = each_between(*first, *last);
    if (std::abs(each_between(*second, *last) - each_between(*first, *second)) > tolerance * each ||
        last->second.slowest > (1 + tolerance) * each)
      return std::nullopt;
    return Repetition{1, static_cast<Nanoseconds>(each)};
  }

 private:
  static constexpr double tolerance = 0.001;
  struct Times {
    double makespan, slowest;
  };
  using Sample = std::pair<const int, Times>;
  static double each_between(const Sample& a, const Sample& b) {
    return (b.second.makespan - a.second.makespan) / (b.first - a.first);
  }
  std::map<int, Times> samples_;  // by micro-batches
};

}  // namespace

// Those that fill the pipeline are followed by as many that still meet them, if stages are alike; with several chunks a
// stage, by rounds of as many as there are stages. Where they do not repeat, a few less may show how long each takes.
std::unique_ptr<SimulatedMicroBatches> repeating_micro_batches(const SimulatedSettings& settings,
                                                               const Parallelism& parallelism, int micro_batches,
                                                               Extrapolation extrapolation) {
  const int stages = parallelism.pipeline, round = parallelism.chunks == 1 ? 1 : stages;
  const bool steady = extrapolation == Extrapolation::steady;
  const int less = round > 1 ? stages : std::max(1, stages / 8);
  SteadyGrowth growth;
  bool fixed_order = false;                       // of passes: else stages with less to do run ahead at first
  int tried = 0;                                  // together with those of one more attempt fewer than all
  std::unique_ptr<SimulatedMicroBatches> result;  // what repeats, or the largest sample
  // Does it repeat, or is the growth known from it and from those before?
  const auto attempt = [&](int some) {
    auto sample = std::make_unique<SimulatedMicroBatches>(settings, some, micro_batches - some);
    tried += some;
    fixed_order = sample->details_.schedule != nullptr;
    if (sample->details_.repetition) {
      result = std::move(sample);
      return true;
    }
    if (!steady || sample->details_.timeline.makespan == 0) return false;
    const int devices = settings.topology().devices.count();
    growth.add(some, sample->makespan(),
               slowest_progress(sample->details_, sample->evaluator().builder(), devices, round));
    if (!result || sample->further() < result->further()) result = std::move(sample);
    result->details_.repetition = growth.found();
    result->exact_ = false;
    return result->details_.repetition.has_value();
  };
  for (int some = parallelism.chunks == 1 ? 2 * stages + 1 : 5 * stages; tried + some < micro_batches;
       some += (some / 2 + round - 1) / round * round) {
    if (attempt(some)) return result;
    if (!steady || !fixed_order || tried > some || tried + 2 * some >= micro_batches) continue;
    for (const int fewer : {some - less, some - 2 * less})
      if (fewer > std::max(2, stages) && attempt(fewer)) return result;
  }
  return nullptr;
}

std::unique_ptr<SimulatedMicroBatches> simulated_micro_batches(const SimulatedSettings& settings,
                                                               const Parallelism& parallelism, int micro_batches,
                                                               Extrapolation extrapolation) {
  auto few = repeating_micro_batches(settings, parallelism, micro_batches, extrapolation);
  return few ? std::move(few) : std::make_unique<SimulatedMicroBatches>(settings, micro_batches, 0);
}

}  // namespace ff
