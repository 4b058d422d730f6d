#include <algorithm>

#include "common/recomputation.h"
#include "common/sharding.h"
#include "search/background.h"
#include "search/command_outputs.h"
#include "search/commands.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/parallelism.h"
#include "search/report/html/report.h"
#include "search/report/kernel_cost_table.h"
#include "search/settings/planned_settings.h"
#include "search/settings/report.h"
#include "search/simulation_room.h"

namespace ff {
namespace {

// What the file's provenance says that stays true when the strategy is simulated again: how it was found, unless it was
// edited by hand, and keys of other programs. What a flag replaced is added to the note.
Json kept_provenance(const StrategyFile& file, const SimulateOptions& options) {
  Json kept = file.provenance;
  for (const char* const key : {"program", "graph_hash", "topology_hash", "predicted_us", "baselines", "memory_bytes",
                                "costs", "background", "configurations_hash"})
    kept.erase(key);
  if (file.edited)
    for (const char* const key : {"algorithm", "note", "seed", "proposals", "chain_hash"}) kept.erase(key);
  std::string replaced;
  const auto add = [&](const std::string& flag, const std::string& value) {
    replaced += (replaced.empty() ? "then simulated with " : ", ") + flag + " " + value;
  };
  if (!options.given.topology.empty()) add("--topo", options.given.topology);
  if (options.recompute) {
    std::string patterns;
    for (const std::string& pattern : *options.recompute) patterns += (patterns.empty() ? "" : ",") + pattern;
    add("--recompute", patterns.empty() ? "none" : patterns);
  }
  if (options.synchronization) add("--synchronization", std::string(to_string(*options.synchronization)));
  if (!options.sharding.empty()) add("--sharding", options.sharding);
  if (replaced.empty()) return kept;
  const std::string note = kept.contains("note") && kept["note"].is_string() ? kept["note"].get<std::string>() : "";
  kept["note"] = note + (note.empty() ? "" : "; ") + replaced;
  return kept;
}

void add_explained_costs(CommandResult& result, const Problem& problem, const Strategy& strategy) {
  const Vector<ExplainedKernel> kernels = explained_kernels(problem, strategy);
  result.json["kernel_costs"] = kernel_cost_json(kernels);
  result.text += kernel_cost_text(kernels, problem.topology);
}

// Of a strategy file with more parts in an iteration some devices are simulated for all, where they can be, when it is
// written and when it is read: all would take more than a second.
constexpr int64_t most_parts_of_all = 100'000;

// As they were given: with stages FSDP exchanges as a sharded optimizer does, which the strategy has then.
void say_settings(SearchReport& report, const Parallelism& parallelism) {
  report.note = to_string(parallelism);
  if (report.sharding == sharding_name(sharding_of_micro_batches(parallelism)))
    report.sharding = sharding_name(parallelism.synchronization);
}

// From some devices that stand for all; nothing where they do not, or the file to be written needs all.
std::optional<CommandResult> result_of_some(const PlanOfSettings& read, const CostOptions& costs,
                                            const SimulateOptions& options) {
  std::optional<PlanOfFile> found_in_file;
  if (!options.given.any() && !(found_in_file = plan_of_file(read.file))) return std::nullopt;
  const Parallelism& parallelism = found_in_file ? found_in_file->parallelism : read.arguments.parallelism;
  const StrategyFile& file = found_in_file ? found_in_file->file : read.file;
  if (!options.out.empty() && !needs_no_issue_order(file)) return std::nullopt;
  const bool has_order = parts_of_iteration(file.strategy, file.settings.micro_batches) <= most_parts_of_all;
  const bool of_settings = options.given.any();
  std::optional<SettingsReport> found = settings_report(parallelism, file, costs,
                                                        {.compared = options.compared,
                                                         .trace = options.trace,
                                                         .as_simulated = of_settings && has_order,
                                                         .chooses_buffers = of_settings || !options.out.empty()});
  if (!found) return std::nullopt;
  SearchReport& report = found->report;
  report.algorithm = "simulate";
  if (options.given.any()) say_settings(report, parallelism);
  report.origins = file.origins;
  if (!options.out.empty())
    write_plan(options.out, file, *found, costs, options.given.any() ? Json::object() : kept_provenance(file, options));
  CommandResult result{report_to_json(report), report_to_text(report, file.graph, file.topology, file.strategy)};
  result.notes = std::move(found->notes);
  if (options.explain_costs) {
    Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
    add_explained_costs(result, loaded.problem(), file.strategy);
  }
  note_arguments(read.arguments, result.json, result.notes);
  return result;
}

void expect_writable(const SimulateOptions& options) {
  Vector<std::string> inputs = options.costs.profiles;
  inputs.push_back(options.given.topology);
  inputs.push_back(options.given.graph);
  inputs.push_back(options.given.torchtitan);
  if (!options.measured.empty()) inputs.push_back(options.measured);
  inputs.insert(inputs.end(), options.background.begin(), options.background.end());
  expect_all_writable({options.out, options.trace, options.html}, inputs);
  expect_all_writable({options.trace, options.html}, {options.strategy});
}

// What flags say instead of what the file says.
void replace_by_flags(StrategyFile& file, const SimulateOptions& options) {
  if (!options.given.topology.empty() && !options.given.any()) {
    Topology other = load_topology(options.given.topology);
    if (other.devices.size() != file.topology.devices.size())
      throw InputError(options.given.topology + ": has " + std::to_string(other.devices.size()) +
                       " devices, the strategy is for " + std::to_string(file.topology.devices.size()));
    file.topology = std::move(other);
  }
  if (options.synchronization) {
    file.settings.synchronization = *options.synchronization;
    file.settings.sharding.clear();
    if (*options.synchronization == Synchronization::parameter_server) file.settings.overlaps_reductions = true;
  }
  if (!options.sharding.empty()) {
    try {
      set_sharding(file.settings, options.sharding);
      sharding_by_group(file.graph, file.settings.sharding);
    } catch (const InputError& error) {
      throw InputError(std::string("--sharding: ") + error.what());
    }
  }
  if (options.recompute) {
    file.settings.recompute = recomputation_patterns(file.graph, *options.recompute);
    file.issue_order.clear();  // of other tasks
  }
}

bool needs_all_devices(const SimulateOptions& options) {
  return !options.html.empty() || !options.measured.empty() || !options.background.empty();
}

// Memory is that of the order in which the strategy would run: the file's, or, where there is none yet and devices run
// their tasks as these become ready, the simulated one, with on-demand buffers where preallocated ones do not fit.
Evaluator::Details details_of(Evaluator& evaluator, const StrategyFile& file, const SimulateOptions& options) {
  Evaluator::Details details = options.given.any() && file.settings.micro_batches > 1
                                   ? evaluator.details(file.strategy, TaskOrder::one_forward_one_backward)
                                   : evaluator.details_of_file(file);
  const bool in_program_order = evaluator.problem().kernels.conventions().framework_memory;
  const bool has_order = options.out.empty() && (!options.given.any() || in_program_order);
  if (has_order || !details.fifo_order) return details;
  details = evaluator.details(file.strategy, TaskOrder::fifo);
  Evaluator::follow_order(details);
  return details;
}

CommandResult simulate(PlanOfSettings read, const CostOptions& costs, const SimulateOptions& options) {
  const bool from_settings = options.given.any();
  StrategyFile& file = read.file;
  const int64_t parts = parts_of_iteration(file.strategy, file.settings.micro_batches);
  if (!needs_all_devices(options) &&
      (parts > most_parts_of_all || (from_settings && options.out.empty() && options.trace.empty())))
    if (const std::optional<CommandResult> result = result_of_some(read, costs, options)) return *result;
  if (from_settings)
    expect_room_for_simulation(parts,
                               "without --html, --measured and --background some devices are simulated for all "
                               "where others do the same");
  const Topology topology = file.topology;
  const Background background(options.background, topology, options.costs);
  if (!background.empty()) file.topology = background.left_of(topology);
  std::optional<html::MeasuredIteration> measured;
  if (!options.measured.empty())
    measured = html::load_measured_iteration(options.measured, file.topology.devices.count());
  const bool baseline_by_settings = from_settings && options.html.empty();
  Vector<Baseline> baselines;
  if (options.compared && baseline_by_settings)
    baselines = baselines_of_settings(read.arguments.parallelism, file, costs);
  Loaded loaded = load({std::move(file.graph), std::move(file.topology), {}, file.settings}, costs);
  const Problem problem = loaded.problem();
  Evaluator evaluator(problem);
  const Evaluator::Details details = details_of(evaluator, file, options);
  SearchReport report = describe(problem, details);
  report.algorithm = "simulate";
  if (from_settings) say_settings(report, read.arguments.parallelism);
  if (baseline_by_settings) report.baselines = std::move(baselines);
  else if (options.compared) report.baselines = {data_parallel_baseline(evaluator)};
  if (options.compared && options.costs.mode == CostMode::analytic)
    report.lower_bound = lower_bound(problem, SearchSpace(problem.graph, problem.topology), evaluator.cost_model());
  report.origins = file.origins;
  report.background = background.effects(topology, problem.topology, details);
  const std::atomic<bool> no_stop{false};
  if (!options.html.empty()) {
    const SearchSpace space(problem.graph, problem.topology);
    write_html_report(options.html, evaluator, file.strategy, details,
                      {report, baseline_alternatives(evaluator, space, report.baselines, no_stop), measured});
  }
  write_outputs(options.out, options.trace, file.strategy, report, evaluator, details,
                from_settings ? Json::object() : kept_provenance(file, options));
  CommandResult result{report_to_json(report),
                       report_to_text(report, problem.whole(), problem.topology, file.strategy)};
  if (options.explain_costs) add_explained_costs(result, problem, file.strategy);
  const bool other_units = options.synchronization || !options.sharding.empty();
  for (const std::string& note :
       {issue_order_note(options.strategy, file, evaluator, other_units ? "synchronization" : "configurations"),
        loaded.kernels.busy_note(), sharding_note(problem.settings, details.tasks)})
    if (!note.empty()) result.notes.push_back(note);
  note_arguments(read.arguments, result.json, result.notes);
  return result;
}

// A strategy file is what ffexec runs: it has the issue order, the memory and the time of that, not those of a
// framework, whose settings it keeps. Returns what is to be said of it.
std::string write_for_executor(const PlanOfSettings& read, const CostOptions& costs, const SimulateOptions& options) {
  PlanOfSettings executed{read.file, {}};
  StrategySettings& settings = executed.file.settings;
  settings.least_collective_size = least_collective_size;
  settings.precision = costs.precision.value_or(settings.precision);
  if (settings.micro_batches > 1) settings.schedule = Schedule::one_forward_one_backward;
  executed.file.provenance = provenance_of_settings(read.arguments.parallelism);
  SimulateOptions own;
  own.costs = costs;
  own.costs.conventions = {};
  own.out = options.out;
  own.compared = options.compared;
  const CommandResult result = simulate(std::move(executed), own.costs, own);
  const double predicted_ns = 1000 * result.json["predicted_us"].get<double>();
  return options.out + ": predicted at " + time_text(static_cast<Nanoseconds>(predicted_ns)) + ", as ffexec runs it" +
         (result.json["fits_memory"].get<bool>() ? "" : ", and exceeds device memory") +
         "; the settings, with the conventions of " + read.arguments.parallelism.framework +
         ", are kept in its provenance";
}

}  // namespace

CommandResult run_simulate(const SimulateOptions& options) {
  expect_writable(options);
  const bool from_settings = options.given.any();
  PlanOfSettings read =
      from_settings ? plan_of_settings(options.given) : PlanOfSettings{load_strategy(options.strategy), {}};
  const CostOptions costs =
      from_settings ? with_arguments(options.costs, read.arguments, read.file.graph.batch_size) : options.costs;
  if (from_settings && options.synchronization && is_sharded(read.arguments.parallelism.synchronization))
    throw InputError(
        "--synchronization: the settings shard state, which is another way to synchronize; give one of them");
  replace_by_flags(read.file, options);
  const std::string framework = from_settings ? read.arguments.parallelism.framework : "none";
  const Precision precision = costs.precision.value_or(read.file.settings.precision);
  std::string note = from_settings ? "" : planned_settings_note(options.strategy, read.file);
  if (framework != "none" && precision != Precision::bf16)
    note = "framework=" + framework + ": its conventions are those of training in bf16; times and memory in " +
           std::string(to_string(precision)) + " follow them in part";
  const bool for_executor = framework != "none" && !options.out.empty();
  SimulateOptions own = options;
  if (for_executor) own.out.clear();
  CommandResult result = simulate(for_executor ? read : std::move(read), costs, own);
  if (!note.empty()) result.notes.push_back(note);
  if (for_executor) result.notes.push_back(write_for_executor(read, costs, options));
  return result;
}

}  // namespace ff
