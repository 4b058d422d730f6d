#include "search/command_outputs.h"

#include <algorithm>
#include <map>

#include "common/sharding.h"
#include "common/strategy_configurations.h"
#include "common/task_graph/issue_order.h"
#include "search/report/trace.h"

namespace ff {
namespace {

std::string order_text(TaskOrder order) {
  switch (order) {
    case TaskOrder::critical_path: return "critical-path";
    case TaskOrder::latest_start: return "latest-start";
    case TaskOrder::one_forward_one_backward: return "1f1b";
    case TaskOrder::fifo:  // but not as tasks become ready: transfers keep devices busy
    case TaskOrder::best: break;
  }
  return "the plan's own";
}

// Devices that need the same are one entry, so that thousands of equal ones do not fill the file.
Json memory_to_json(const Vector<int64_t>& memory_bytes) {
  std::map<int64_t, Vector<DeviceId>> devices;
  for (const DeviceId device : memory_bytes.indices()) devices[memory_bytes[device]].push_back(device);
  Json json = Json::array();
  for (const auto& [bytes, equal] : devices) json.push_back({{"bytes", bytes}, {"devices", devices_to_json(equal)}});
  return json;
}

Json provenance(const SearchReport& report, const Problem& problem) {
  Json json = {{"program", std::string("ffsearch ") + FF_VERSION},
               {"algorithm", report.algorithm},
               {"note", report.note},
               {"seed", report.seed},
               {"proposals", report.proposals},
               {"chain_hash", report.chain_hash},
               {"graph_hash", content_hash(problem.whole().file().dump())},
               {"topology_hash", content_hash(problem.topology.file.dump())},
               {"predicted_us", to_us(report.predicted)},
               {"baselines", report_to_json(report)["baselines"]},
               {"memory_bytes", memory_to_json(report.memory_bytes)},
               {"costs", report_to_json(report)["costs"]}};
  for (const BackgroundEffect& effect : report.background) json["background"].push_back(effect.file);
  return json;
}

// An order that is not that of readiness is written even where a file without any would stand for it, as such a file is
// predicted as tasks become ready. A schedule has a name instead.
Vector<std::string> written_issue_order(Evaluator& evaluator, const Evaluator::Details& details) {
  if (details.schedule) return {};
  const TaskGraphBuilder& builder = evaluator.builder();
  return details.fifo_order ? issue_order_to_save(builder, details.tasks, details.order, details.transfer_buffers)
                            : issue_order_names(builder, details.tasks, details.order);
}

}  // namespace

SearchReport describe(const Problem& problem, const Evaluator::Details& details, const Vector<int64_t>& times_of_task) {
  SearchReport report;
  report.predicted = details.timeline.makespan;
  report.predicted_fifo = details.makespan_fifo;
  report.fifo_order = details.fifo_order;
  report.task_order = order_text(details.task_order);
  report.on_demand_buffers = details.transfer_buffers == TransferBuffers::on_demand &&
                             !problem.kernels.conventions().framework_memory;  // which always has such
  report.micro_batches = problem.settings.micro_batches;
  report.recompute = problem.settings.recompute;
  report.overlaps_reductions = problem.settings.overlaps_reductions;
  report.precision = problem.settings.precision;
  if (const DeviceModel& model = problem.topology.models[problem.topology.devices[0].model];
      leaves_bf16_unused(report.precision, model)) {
    report.tflops = model.peak_tflops;
    report.bf16_tflops = model.peak_bf16_tflops;
  }
  report.sharding = written_sharding(problem.settings);
  for (int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    const int64_t of_micro_batches = times_of_task.empty() ? 1 : times_of_task[t];
    const int64_t times = of_micro_batches * (problem.replicas ? problem.replicas->tasks_of(details.tasks, task) : 1);
    report.tasks += of_micro_batches;
    report.transfer_bytes += times * details.tasks.transferred_bytes(task);
    report.synchronization_bytes += times * details.tasks.synchronized_bytes(task);
    if (is_compute(task.kind)) report.compute += times * details.costs.duration[t];
    SearchReport::CollectiveUse* use = nullptr;
    if (is_edge_collective(task.kind))
      use = &report.collectives[details.tasks.collectives[task.collective].kind(direction_of(task.kind))];
    else if (is_parameter_collective(task.kind) || is_parameter_transfer(task.kind)) use = &report.synchronization;
    if (!use) continue;
    use->count += times;
    use->time += times * details.costs.duration[t];
  }
  report.memory_bytes = details.memory_bytes;
  report.sources = details.sources;
  for (DeviceId device : report.memory_bytes.indices()) {
    const int64_t capacity = problem.topology.model_of(device).memory_bytes;
    if (capacity > 0 && report.memory_bytes[device] > capacity) report.feasible = false;
  }
  return report;
}

void write_strategy(const std::string& out, const Strategy& strategy, const SearchReport& report,
                    const Problem& problem, Schedule schedule, Vector<std::string> issue_order, TransferBuffers buffers,
                    const Json& kept) {
  Json origin = provenance(report, problem);
  origin.update(kept);
  StrategySettings settings = problem.settings;
  settings.schedule = schedule;
  save_strategy(out, {problem.whole(), problem.topology, strategy, std::move(issue_order), std::move(origin), false,
                      report.origins, buffers, std::move(settings)});
}

void write_outputs(const std::string& out, const std::string& trace, const Strategy& strategy,
                   const SearchReport& report, Evaluator& evaluator, const Evaluator::Details& details,
                   const Json& kept) {
  const Problem& problem = evaluator.problem();
  if (!out.empty())
    write_strategy(out, strategy, report, problem,
                   details.schedule ? Schedule::one_forward_one_backward : Schedule::unstated,
                   written_issue_order(evaluator, details), details.transfer_buffers, kept);
  if (!trace.empty()) write_trace(trace, evaluator, details);
}

Baseline data_parallel_baseline(Evaluator& evaluator,
                                const std::function<void(const Strategy&, const Prediction&)>& found) {
  Strategy strategy = data_parallel(evaluator.problem().graph, evaluator.problem().topology);
  const Prediction prediction = evaluator.evaluate(strategy);
  if (found) found(strategy, prediction);
  return {"data-parallel", prediction.makespan, prediction.feasible(), std::move(strategy)};
}

std::string sharding_note(const StrategySettings& settings, const TaskGraph& tasks) {
  const auto is_split = [&](const SynchronizationUnit& unit) {
    return is_sharded(tasks.synchronization_of(unit.group)) && unit.holder_count() > 1;
  };
  if (!is_sharded(tasks.synchronization) || std::any_of(tasks.units.begin(), tasks.units.end(), is_split)) return "";
  return "sharding " + written_sharding(settings) +
         " has no effect: no parameter that it would split is held by more than one device";
}

std::string issue_order_note(const std::string& path, const StrategyFile& file, Evaluator& evaluator,
                             const std::string& unlike) {
  if (file.issue_order.empty()) return "";
  const TaskGraph tasks = evaluator.builder().build(evaluator.expanded(file.strategy));
  if (!issue_order_from_names(evaluator.builder(), tasks, file.issue_order, file.transfer_buffers).empty()) return "";
  return path + ": the issue order does not fit the " + unlike + "; using the default order";
}

}  // namespace ff
