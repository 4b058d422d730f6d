#include "search/commands.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "common/task_graph/issue_order.h"
#include "search/optimizer/lower_bound.h"
#include "search/report/trace.h"

namespace ff {
namespace {

struct Problem {
  Graph graph;
  Topology topology;
};

Problem load_problem(const CommandOptions& options) {
  Topology topology = load_topology(options.topology);
  const int64_t batch = options.batch_per_device > 0
                            ? options.batch_per_device * static_cast<int64_t>(topology.devices.size())
                            : options.batch;
  return {load_graph(options.graph, batch), std::move(topology)};
}

Vector<Profile> load_profiles(const CommandOptions& options) {
  Vector<Profile> profiles;
  for (const std::string& path : options.profiles) profiles.push_back(load_profile(path));
  return profiles;
}

// The device models whose kernels can be measured here.
Vector<int> measurable_models(const Problem& problem, const KernelCosts& kernels) {
  Vector<int> models;
  for (int model = 0; model < static_cast<int>(problem.topology.models.size()); ++model)
    if (kernels.measurable(model)) models.push_back(model);
  return models;
}

// Asks for the cost, on these device models, of everything that a search of this space can ask for, so that nothing is
// measured while threads compute. Returns false when stopped.
bool measure_search_space(const Problem& problem, const SearchSpace& space, KernelCosts& kernels,
                          const Vector<int>& models, const CommandContext& context,
                          const std::function<void()>& now_and_then) {
  TaskCostModel costs(problem.graph, problem.topology, kernels);
  int64_t all = 0, done = 0;
  for (OperatorId op = 0; op < static_cast<OperatorId>(problem.graph.operators.size()); ++op)
    all += static_cast<int64_t>(space.degrees(op).size());
  for (OperatorId op = 0; op < static_cast<OperatorId>(problem.graph.operators.size()); ++op)
    for (const Degrees& degrees : space.degrees(op)) {
      if (context.measure_progress) context.measure_progress(done, all, problem.graph.operators[op].name);
      for (const int model : models) costs.part_cost(op, degrees, 0, model);
      ++done;
      if (now_and_then) now_and_then();
      if (context.stop) return false;
    }
  for (const int model : models) kernels.copy(64, model);
  return true;
}

SearchReport describe(const Problem& problem, const Evaluator::Details& details) {
  SearchReport report;
  report.predicted = details.timeline.makespan;
  report.tasks = static_cast<int64_t>(details.tasks.tasks.size());
  report.transfer_bytes = details.tasks.transfer_bytes;
  report.synchronization_bytes = details.tasks.synchronization_bytes;
  for (size_t task = 0; task < details.tasks.tasks.size(); ++task)
    if (is_compute(details.tasks.tasks[task].kind)) report.compute += details.costs.duration[task];
  report.memory_bytes = details.memory_bytes;
  report.sources = details.sources;
  for (size_t device = 0; device < report.memory_bytes.size(); ++device) {
    const int64_t capacity = problem.topology.model_of(static_cast<DeviceId>(device)).memory_bytes;
    if (capacity > 0 && report.memory_bytes[device] > capacity) report.feasible = false;
  }
  return report;
}

std::string hexadecimal(uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

Json provenance(const SearchReport& report, const Problem& problem) {
  Json json = {{"program", std::string("ffsearch ") + FF_VERSION},
               {"algorithm", report.algorithm},
               {"note", report.note},
               {"seed", report.seed},
               {"proposals", report.proposals},
               {"chain_hash", report.chain_hash},
               {"graph_hash", content_hash(problem.graph.file.dump())},
               {"topology_hash", content_hash(problem.topology.file.dump())},
               {"predicted_us", static_cast<double>(report.predicted) / 1e3},
               {"baselines", report_to_json(report)["baselines"]},
               {"memory_bytes", report.memory_bytes},
               {"costs", report_to_json(report)["costs"]}};
  return json;
}

void write_outputs(const std::string& out, const std::string& trace, const Problem& problem, const Strategy& strategy,
                   const SearchReport& report, Evaluator& evaluator, const Evaluator::Details& details) {
  if (!out.empty()) {
    save_strategy(out, {problem.graph, problem.topology, strategy,
                        issue_order_names(evaluator.builder(), details.tasks, details.order),
                        provenance(report, problem), false});
  }
  if (!trace.empty()) write_trace(trace, problem.topology, evaluator.builder(), details);
}

Vector<std::string> input_files(const CommandOptions& options) {
  Vector<std::string> files = options.profiles;
  files.insert(files.end(), {options.graph, options.topology});
  return files;
}

struct Found {
  SearchReport report;
  Strategy strategy;
};

Found find_strategy(const std::string& algorithm, const Problem& problem, const SearchSpace& space,
                    KernelCosts& kernels, const CommandOptions& options, const CommandContext& context) {
  Evaluator evaluator(problem.graph, problem.topology, kernels);
  AlgorithmResult result = run_algorithm(
      algorithm, {problem.graph, problem.topology, kernels, space, evaluator, options.search, options.init,
                  options.check_local, options.assignments, true, context.stop, context.search_progress});
  Found found{describe(problem, evaluator.details(result.strategy)), std::move(result.strategy)};
  SearchReport& report = found.report;
  report.algorithm = algorithm;
  report.note = result.note;
  report.details = result.details;
  report.seed = options.search.seed;
  report.elapsed_s = report.total_s = result.elapsed_s;
  if (result.chains) {
    report.proposals = result.chains->proposals;
    report.accepted = result.chains->accepted;
    report.elapsed_s = result.chains->elapsed_s;
    report.best_found_s = result.chains->best_found_s;
    report.chain_hash = hexadecimal(result.chains->chain_hash);
    report.statistics = result.chains->statistics;
  }
  report.baselines = std::move(result.baselines);
  const auto is_data_parallel = [](const Baseline& baseline) { return baseline.algorithm == "data-parallel"; };
  if (std::none_of(report.baselines.begin(), report.baselines.end(), is_data_parallel)) {
    const Evaluation evaluation = evaluator.evaluate(data_parallel(problem.graph, problem.topology));
    report.baselines.insert(report.baselines.begin(), {"data-parallel", evaluation.makespan, evaluation.feasible});
  }
  report.lower_bound = lower_bound(problem.graph, problem.topology, space, evaluator.cost_model());
  return found;
}

}  // namespace

CommandResult run_search(const CommandOptions& options, const CommandContext& context) {
  expect_all_writable({options.out, options.trace, options.report}, input_files(options));
  const Problem problem = load_problem(options);
  KernelCosts kernels(problem.topology, options.cost, load_profiles(options),
                      working_set_bytes(problem.graph, problem.topology), options.precision);
  const SearchSpace space(problem.graph, problem.topology);
  if (!measure_search_space(problem, space, kernels, measurable_models(problem, kernels), context, nullptr))
    throw MachineError("interrupted while measuring kernels, before any strategy was found; nothing was written");
  const Found found = find_strategy(options.algorithm, problem, space, kernels, options, context);
  Evaluator evaluator(problem.graph, problem.topology, kernels);
  write_outputs(options.out, options.trace, problem, found.strategy, found.report, evaluator,
                evaluator.details(found.strategy));
  CommandResult result{report_to_json(found.report),
                       report_to_text(found.report, problem.graph, problem.topology, found.strategy)};
  if (!options.report.empty()) write_json_file(options.report, result.json);
  if (!options.out.empty()) result.text += "written to " + options.out + "\n";
  return result;
}

CommandResult run_simulate(const CommandOptions& options, const CommandContext&) {
  expect_all_writable({options.simulate_out, options.trace}, input_files(options));
  expect_all_writable({options.trace}, {options.strategy});
  StrategyFile file = load_strategy(options.strategy);
  Problem problem{std::move(file.graph), std::move(file.topology)};
  if (!options.topology.empty()) {
    Topology other = load_topology(options.topology);
    if (other.devices.size() != problem.topology.devices.size())
      throw InputError(options.topology + ": has " + std::to_string(other.devices.size()) +
                       " devices, the strategy is for " + std::to_string(problem.topology.devices.size()));
    problem.topology = std::move(other);
  }
  KernelCosts kernels(problem.topology, options.cost, load_profiles(options),
                      working_set_bytes(problem.graph, problem.topology), options.precision);
  Evaluator evaluator(problem.graph, problem.topology, kernels);
  // Memory is that of the order in which the strategy would run: the file's, or the simulated one where that is
  // written.
  const Evaluator::Details details = options.simulate_out.empty() ? evaluator.details(file.strategy, file.issue_order)
                                                                  : evaluator.details(file.strategy);
  SearchReport report = describe(problem, details);
  report.algorithm = "simulate";
  const Evaluation baseline = evaluator.evaluate(data_parallel(problem.graph, problem.topology));
  report.baselines = {{"data-parallel", baseline.makespan, baseline.feasible}};
  if (options.cost == CostMode::analytic)
    report.lower_bound = lower_bound(problem.graph, problem.topology, SearchSpace(problem.graph, problem.topology),
                                     evaluator.cost_model());
  write_outputs(options.simulate_out, options.trace, problem, file.strategy, report, evaluator, details);
  return {report_to_json(report), report_to_text(report, problem.graph, problem.topology, file.strategy)};
}

CommandResult run_compare(const CommandOptions& options, const CommandContext& context) {
  const Problem problem = load_problem(options);
  KernelCosts kernels(problem.topology, options.cost, load_profiles(options),
                      working_set_bytes(problem.graph, problem.topology), options.precision);
  const SearchSpace space(problem.graph, problem.topology);
  if (!measure_search_space(problem, space, kernels, measurable_models(problem, kernels), context, nullptr))
    throw MachineError("interrupted while measuring kernels");
  CommandResult result;
  result.json = {{"algorithms", Json::object()}};
  Vector<SearchReport> reports;
  Vector<std::pair<std::string, std::string>> failed;
  for (const std::string& algorithm : algorithm_names()) {
    try {
      reports.push_back(find_strategy(algorithm, problem, space, kernels, options, context).report);
      result.json["algorithms"][algorithm] = report_to_json(reports.back());
    } catch (const NotApplicable& error) {
      failed.emplace_back(algorithm, error.what());
      result.json["algorithms"][algorithm] = {{"not_applicable", error.what()}};
    }
  }
  result.text = comparison_to_text(reports, failed, problem.graph.batch_size);
  return result;
}

namespace {

// A profile is of one device model: the one that is asked for, that of the file which is gone on with, or the only one
// that can be measured here.
int model_to_profile(const CommandOptions& options, const Problem& problem, const KernelCosts& kernels,
                     const Vector<Profile>& known) {
  const Vector<int> measurable = measurable_models(problem, kernels);
  if (measurable.empty())
    throw MachineError("this machine has none of the devices of " + options.topology + ": there is nothing to measure" +
                       kernels.why_not_measurable(0));
  Vector<std::string> names;
  for (const int model : measurable) names.push_back(problem.topology.models[model].name);
  const std::string& asked = options.device_model;
  if (!known.empty() && !asked.empty() && known[0].device_model != asked)
    throw InputError(options.profile_out + ": is the profile of device model \"" + known[0].device_model +
                     "\", not of \"" + asked + "\"; give another name");
  const std::string wanted = !known.empty() ? known[0].device_model : !asked.empty() ? asked : names[0];
  if (known.empty() && asked.empty() && names.size() > 1)
    throw InputError(options.topology + ": this machine has devices of several models; choose one with --device-model" +
                     suggestion("", names));
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end())
    throw InputError("device model \"" + wanted + "\": the topology \"" + problem.topology.name +
                     "\" has none that this machine can measure" + suggestion(wanted, names));
  return measurable[found - names.begin()];
}

}  // namespace

CommandResult run_profile(const CommandOptions& options, const CommandContext& context) {
  expect_all_writable({options.profile_out}, input_files(options));
  const Problem problem = load_problem(options);
  Vector<Profile> known;
  const bool exists = std::filesystem::exists(options.profile_out),
             regular = !exists || std::filesystem::is_regular_file(options.profile_out);
  if (exists && regular) known.push_back(load_profile(options.profile_out));
  KernelCosts kernels(problem.topology, CostMode::automatic, known, working_set_bytes(problem.graph, problem.topology),
                      options.precision);
  const int model = model_to_profile(options, problem, kernels, known);
  // Kept as we go: an interrupted run resumes where it stopped.
  auto saved = std::chrono::steady_clock::now();
  const auto save_now_and_then = [&] {
    if (!regular || std::chrono::steady_clock::now() - saved < std::chrono::seconds(2)) return;
    save_profile(options.profile_out, kernels.profile(model));
    saved = std::chrono::steady_clock::now();
  };
  try {
    measure_search_space(problem, SearchSpace(problem.graph, problem.topology), kernels, {model}, context,
                         save_now_and_then);
  } catch (const std::exception&) {
    save_profile(options.profile_out, kernels.profile(model));
    throw;
  }
  save_profile(options.profile_out, kernels.profile(model));
  const int64_t entries = static_cast<int64_t>(kernels.profile(model).entries.size());
  return {{{"device_model", kernels.profile(model).device_model},
           {"measured", kernels.measured_count()},
           {"entries", entries}},
          "measured " + std::to_string(kernels.measured_count()) + " kernels; " + options.profile_out + " holds " +
              std::to_string(entries) + " entries for device model " + kernels.profile(model).device_model + "\n"};
}

}  // namespace ff
