#include "search/settings/report.h"

#include <algorithm>
#include <utility>

#include "search/command_outputs.h"
#include "search/optimizer/lower_bound.h"
#include "search/report/trace.h"
#include "search/settings/prediction.h"

namespace ff {

SimulatedSettings simulated_settings(const Parallelism& completed, const StrategyFile& file, CostOptions costs) {
  costs.precision = costs.precision.value_or(file.settings.precision);
  return {completed, file.graph, file.topology, costs, file.settings.recompute};
}

namespace {

// Of some devices, which stand for all: of some groups (optimizer/folding.h), or of some ranks of the groups that split
// layers (alike_ranks.h), or of both. The plan with the settings of `file`; nothing where they cannot.
std::optional<SimulatedSettings> settings_of_some(Parallelism& parallelism, const StrategyFile& file,
                                                  const CostOptions& costs) {
  if (!file.settings.sharding.empty()) return std::nullopt;
  parallelism = completed(parallelism, file.graph, file.topology);
  if (file.settings.synchronization != sharding_of_micro_batches(parallelism))
    parallelism.synchronization = file.settings.synchronization;
  SimulatedSettings settings = simulated_settings(parallelism, file, costs);
  if (!settings.replicas()) return std::nullopt;
  return settings;
}

// From the devices that were simulated to all that they stand for.
void unfold(SearchReport& report, const Replicas& replicas) {
  Vector<int64_t> memory_bytes(replicas.topology->devices.size(), 0);
  for (const DeviceId simulated : replicas.devices.indices())
    for (const DeviceId device : replicas.devices[simulated])
      memory_bytes[device] = report.memory_bytes[replicas.stand_in(simulated)];
  report.memory_bytes = std::move(memory_bytes);
  report.transfer_bytes *= replicas.count;
  report.compute *= replicas.count;
  for (auto& [kind, use] : report.collectives) use.count *= replicas.count, use.time *= replicas.count;
  for (int64_t* const count : {&report.sources.profile, &report.sources.measured, &report.sources.analytic})
    *count *= replicas.count;
  report.details["simulated_devices"] =
      replicas.stand_ins.empty() ? replicas.devices.size() : replicas.devices_with_tasks().size();
}

// From few micro-batches that the others repeat, exactly. Nothing where they do not; where one of two task orders might
// fit into memory and not the other (Evaluator::details); or where preallocated buffers of transfers, which become more
// with each micro-batch, may decide whether the plan fits.
std::optional<SettingsReport> report_of_few(const SimulatedSettings& settings, const Parallelism& parallelism,
                                            const Problem& problem) {
  const auto few = repeating_micro_batches(settings, parallelism, problem.settings.micro_batches, Extrapolation::exact);
  if (!few) return std::nullopt;
  auto [bytes, buffers, exact] = few->memory_of_all();
  if (few->evaluator().fullness(bytes) > 1 && parallelism.framework == "none") return std::nullopt;
  constexpr double nearly = 0.97;
  if (!exact && few->evaluator().fullness(bytes) > nearly) return std::nullopt;
  const Nanoseconds makespan = few->makespan();
  const Vector<int64_t> times = few->times();
  const CostCounts sources = few->sources();
  const int micro_batches = few->evaluator().builder().micro_batches();
  Evaluator::Details details = std::move(*few).details();
  details.memory_bytes = std::move(bytes);
  details.transfer_buffers = buffers;
  details.sources = sources;
  SearchReport report = describe(problem, details, times);
  report.predicted = makespan;
  report.details["simulated_micro_batches"] = micro_batches;
  return SettingsReport{std::move(report), buffers, {sharding_note(problem.settings, details.tasks)}};
}

Evaluator::Details details_of(Evaluator& evaluator, StrategyFile one, const SettingsReportOptions& options) {
  const Problem& problem = evaluator.problem();
  if (problem.settings.micro_batches > 1) return evaluator.details(one.strategy, TaskOrder::one_forward_one_backward);
  Evaluator::Details details = evaluator.details_of_file(one);
  if (problem.kernels.conventions().framework_memory) return details;  // of the program's order, with such buffers
  if (options.as_simulated && details.fifo_order) {
    details = evaluator.details(one.strategy, TaskOrder::fifo);
    Evaluator::follow_order(details);
  } else if (options.chooses_buffers && evaluator.fullness(details.memory_bytes) > 1) {
    one.transfer_buffers = TransferBuffers::on_demand;
    Evaluator::Details other = evaluator.details_of_file(one);
    if (evaluator.fullness(other.memory_bytes) < evaluator.fullness(details.memory_bytes)) details = std::move(other);
  }
  return details;
}

}  // namespace

std::optional<SettingsReport> settings_report(Parallelism parallelism, const StrategyFile& file,
                                              const CostOptions& costs, const SettingsReportOptions& options) {
  const std::optional<SimulatedSettings> settings = settings_of_some(parallelism, file, costs);
  if (!settings) return std::nullopt;
  SimulatedSettings::Iteration iteration(*settings, file.settings.micro_batches);
  Evaluator& evaluator = iteration.evaluator();
  const Problem& problem = evaluator.problem();
  std::optional<SettingsReport> found;
  if (options.trace.empty()) found = report_of_few(*settings, parallelism, problem);
  if (!found) {
    StrategyFile one = file;
    one.strategy = settings->strategy();
    const Evaluator::Details details = details_of(evaluator, std::move(one), options);
    if (!options.trace.empty()) write_trace(options.trace, evaluator, details);
    found = SettingsReport{
        describe(problem, details), details.transfer_buffers, {sharding_note(problem.settings, details.tasks)}};
  }
  found->notes.push_back(problem.kernels.busy_note());
  std::erase(found->notes, "");
  SearchReport& report = found->report;
  if (problem.replicas->count == 1 && costs.mode == CostMode::analytic)
    report.lower_bound = lower_bound(problem, SearchSpace(problem.graph, problem.topology), evaluator.cost_model());
  unfold(report, *problem.replicas);
  if (options.compared) report.baselines = baselines_of_settings(parallelism, file, costs);
  return found;
}

void write_plan(const std::string& out, const StrategyFile& file, const SettingsReport& found, const CostOptions& costs,
                const Json& kept) {
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
  const Problem problem = loaded.problem();
  write_strategy(out, file.strategy, found.report, problem,
                 file.settings.micro_batches > 1 ? Schedule::one_forward_one_backward : Schedule::unstated, {},
                 found.transfer_buffers, kept);
}

Vector<Baseline> baselines_of_settings(const Parallelism& parallelism, const StrategyFile& file,
                                       const CostOptions& costs) {
  const int devices = file.topology.devices.count();
  const int64_t samples = int64_t{devices} * file.settings.micro_batches;
  if (file.graph.batch_size % samples != 0) return {};
  Parallelism data_parallel = parallelism;  // with its framework's conventions
  data_parallel.tensor = data_parallel.context = data_parallel.expert = 1;
  data_parallel.expert_tensor = 0;
  data_parallel.pipeline = data_parallel.chunks = 1;
  data_parallel.layers.clear();
  data_parallel.stage_data.clear();
  data_parallel.data = devices;
  data_parallel.micro_batch = file.graph.batch_size / samples;
  const auto evaluate = [&](Evaluator& evaluator, const Strategy& strategy) {
    const Prediction prediction = evaluator.evaluate(strategy);
    return Vector<Baseline>{{"data-parallel", prediction.makespan, prediction.feasible(), {}}};
  };
  if (const auto some = settings_of_some(data_parallel, file, costs)) {
    SimulatedSettings::Iteration iteration(*some, file.settings.micro_batches);
    return evaluate(iteration.evaluator(), some->strategy());
  }
  const ParallelPlan plan = plan_of(data_parallel, file.graph, file.topology);
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
  Evaluator evaluator(loaded.problem());
  Vector<Baseline> baselines = evaluate(evaluator, plan.strategy);
  baselines[0].strategy = plan.strategy;
  return baselines;
}

bool needs_no_issue_order(const StrategyFile& file) {
  return file.settings.micro_batches == 1 || PipelineSchedule::of(file);
}

bool is_plan_of(const ParallelPlan& plan, const StrategyFile& file) {
  const StrategySettings &own = plan.settings, &given = file.settings;
  return plan.strategy == file.strategy && own.micro_batches == given.micro_batches &&
         own.synchronization == given.synchronization && own.overlaps_reductions == given.overlaps_reductions &&
         given.sharding.empty();
}

std::optional<PlanOfFile> plan_of_file(const StrategyFile& file) {
  const bool in_order = file.settings.micro_batches == 1 || file.settings.schedule != Schedule::unstated;
  if (!file.issue_order.empty() || !in_order || !file.settings.sharding.empty()) return std::nullopt;
  // Settings are those of a graph in f32: there full recomputation chooses its operators by their bytes.
  PlanOfFile found{{}, file};
  found.file.graph = with_activation_type(file.graph, DataType::f32);
  try {
    found.parallelism = nearest_parallelism(found.file.graph, file.topology, file.strategy, file.settings);
    const ParallelPlan plan = plan_of(found.parallelism, found.file.graph, file.topology);
    if (!is_plan_of(plan, file)) return std::nullopt;
  } catch (const InputError&) {
    return std::nullopt;
  }
  return found;
}

Nanoseconds makespan_of_plan(const PlanOfFile& plan, const CostOptions& costs) {
  const Parallelism own = completed(plan.parallelism, plan.file.graph, plan.file.topology);
  const SimulatedSettings settings = simulated_settings(own, plan.file, costs);
  return simulated_micro_batches(settings, own, plan.file.settings.micro_batches, Extrapolation::exact)->makespan();
}

}  // namespace ff
