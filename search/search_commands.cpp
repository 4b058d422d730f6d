#include <algorithm>
#include <chrono>
#include <filesystem>

#include "search/background.h"
#include "search/command_outputs.h"
#include "search/commands.h"
#include "search/optimizer/baselines/propagate.h"
#include "search/optimizer/lower_bound.h"
#include "search/report/html/report.h"
#include "search/report/trace.h"
#include "search/settings/plan_by_settings.h"
#include "search/settings/report.h"
#include "search/simulation_room.h"

namespace ff {
namespace {

// The device models whose kernels can be measured here.
Vector<int> measurable_models(const Problem& problem) {
  Vector<int> models;
  for (int model : problem.topology.models.indices())
    if (problem.kernels.measurable(model)) models.push_back(model);
  return models;
}

// Slices are searched where no heuristic baseline fits: then data parallelism does not.
bool may_slice(Evaluator& evaluator) {
  const Problem& problem = evaluator.problem();
  const Strategy strategy = problem.keeping_annotations(data_parallel(problem.graph, problem.topology));
  return evaluator.memory_limited() && evaluator.fullness(evaluator.estimated_memory(strategy)) > 0.8;
}

// Asks for the cost, on these device models, of everything that a search of this space can ask for, so that nothing is
// measured while threads compute. Returns false when stopped.
bool measure_search_space(const Problem& problem, const SearchSpace& space, const Vector<int>& models,
                          const CommandContext& context, const std::function<void()>& now_and_then = nullptr) {
  if (models.empty()) return true;
  const Graph& graph = problem.whole();
  TaskCostModel costs(graph, problem.topology, problem.kernels);
  Vector<Vector<Degrees>> wanted;
  for (OperatorId op : graph.operator_ids()) wanted.push_back(space.degrees(op));
  Evaluator evaluator(problem);
  if (may_slice(evaluator))
    for (OperatorId op : graph.operator_ids())
      for (Degrees& degrees : space.sliced_degrees(op)) wanted[op].push_back(std::move(degrees));
  int64_t all = 0, done = 0;
  for (OperatorId op : graph.operator_ids()) all += wanted[op].count();
  for (OperatorId op : graph.operator_ids())
    for (const Degrees& of_one : wanted[op]) {
      const Degrees degrees = problem.expanded_degrees(op, of_one);
      if (context.measure_progress) context.measure_progress(done, all, graph.operators[op].name);
      for (const int model : models) costs.part_cost(op, degrees, 0, model);
      ++done;
      if (now_and_then) now_and_then();
      if (context.stop) return false;
    }
  for (const int model : models) problem.kernels.copy(64, model);
  return true;
}

std::string hexadecimal(uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
}

// Why the operators have their configurations; empty where nothing is annotated. Chains go on from what is propagated.
Vector<ConfigurationOrigin> origins_of(const Problem& problem, const std::string& algorithm,
                                       const AlgorithmResult& result) {
  const Annotations* annotations = problem.annotations;
  if (!annotations && algorithm != "propagate") return {};
  const bool propagates = result.chains || algorithm == "propagate";
  const Strategy propagated = propagates ? propagate(problem) : Strategy();
  Vector<ConfigurationOrigin> origins;
  for (const OperatorId op : result.strategy.indices()) {
    const Annotation* annotation = annotations ? annotations->find(op) : nullptr;
    if (annotation && annotation->decides()) origins.push_back(ConfigurationOrigin::annotated);
    else if (propagates && result.strategy[op] == propagated[op]) origins.push_back(ConfigurationOrigin::propagated);
    else origins.push_back(ConfigurationOrigin::searched);
  }
  return origins;
}

// Does its budget end an algorithm with all that belongs to its result?
bool keeps_budget(const std::string& algorithm) { return algorithm == "mcmc" || algorithm == "placement"; }

// Algorithms that may take long until they have a strategy of their own.
bool falls_back_on_data_parallelism(const std::string& algorithm) {
  return algorithm == "optcnn" || algorithm == "sub-cluster" || algorithm == "exhaustive";
}

struct Found {
  SearchReport report;
  Strategy strategy;
  Evaluator::Details details;
  double slowest_evaluation_s = 0;  // of the chains'
};

// What was found, with its tasks in the order asked for. A heuristic baseline may then be faster than what was found
// in FIFO order: those that were at most 30 % slower are looked at too, while there is time.
Evaluator::Details in_best_order(const std::string& algorithm, const AlgorithmSettings& settings, Evaluator& evaluator,
                                 const SearchControl& control, AlgorithmResult& result) {
  const Deadline& deadline = control.deadline;
  TaskOrder order = task_order_of(algorithm, settings, evaluator.problem().settings.micro_batches);
  // Other orders are not asked for, and each takes as long as a simulation or two.
  constexpr double evaluations_of_orders = 6, short_s = 0.1;
  const double orders_s = evaluations_of_orders * evaluator.slowest_s();
  if (!settings.task_order && (deadline.left_s() < orders_s || (control.stop && orders_s > short_s)))
    order = evaluator.problem().order;
  const Deadline until = settings.task_order ? Deadline() : deadline;  // orders that are asked for are tried
  Evaluator::Details found = evaluator.details(result.strategy, order, until);
  Evaluator::follow_order(found);
  if (order != TaskOrder::best || settings.check_local) return found;
  constexpr double near = 1.3;
  const Nanoseconds judged =
      evaluator.problem().order == TaskOrder::fifo ? found.makespan_fifo : found.timeline.makespan;
  Vector<int> nearest_first;
  for (const int number : result.baselines.indices()) nearest_first.push_back(number);
  std::stable_sort(nearest_first.begin(), nearest_first.end(),
                   [&](int a, int b) { return result.baselines[a].predicted < result.baselines[b].predicted; });
  for (const int number : nearest_first) {
    const Baseline& baseline = result.baselines[number];
    if (!baseline.feasible || baseline.strategy == result.strategy ||
        static_cast<double>(baseline.predicted) > near * static_cast<double>(judged) ||
        deadline.left_s() < evaluator.slowest_details_s() || control.stop)
      continue;
    Evaluator::Details other = evaluator.details(baseline.strategy, order, until);
    Evaluator::follow_order(other);
    if (other.timeline.makespan >= found.timeline.makespan) continue;
    found = std::move(other);
    result.strategy = baseline.strategy;
    result.note = "nothing better than " + baseline.algorithm + " was found, its tasks in another order";
  }
  return found;
}

// A profile has the kernels of parts that are alike.
AlgorithmSettings with_unequal_shares(AlgorithmSettings settings, const CostOptions& costs) {
  settings.search.unequal_shares = costs.mode != CostMode::profile;
  return settings;
}

// `plan`: what chains start from, too; null: none.
Found find_strategy(const std::string& algorithm, Evaluator& evaluator, const SearchSpace& space,
                    const AlgorithmSettings& settings, const PlanBySettings* plan, const CommandContext& context) {
  const Problem& problem = evaluator.problem();
  evaluator.keep_best();
  const Deadline deadline(keeps_budget(algorithm) ? settings.search.budget_s : 0);
  const Nanoseconds bound = lower_bound(problem, space, evaluator.cost_model());
  AlgorithmSettings own = settings;
  own.search.no_better_than = static_cast<double>(bound);
  own.search.threads =
      settings.threads.value_or(default_threads(problem.topology.devices.count(), settings.search.chains));
  constexpr double default_budget_s = 30;  // of those that do not know when nothing better is to be expected
  if (!keeps_budget(algorithm) && own.search.budget_s <= 0 && own.search.proposals == 0)
    own.search.budget_s = default_budget_s;
  SearchControl control{context.stop, context.search_progress, deadline};
  control.found = [&context](const Strategy& strategy, const Prediction& prediction) {
    context.best_known.found(strategy, prediction);
  };
  // Looked at first where it is what an interrupted search falls back on; every result shows it.
  std::optional<Baseline> data_parallel;
  if (!context.stop && !problem.annotations && falls_back_on_data_parallelism(algorithm))
    data_parallel = data_parallel_baseline(evaluator, control.found);
  AlgorithmRequest request{.evaluator = evaluator, .space = space, .settings = own, .control = control};
  if (plan) request.known = Candidate{"settings", plan->strategy};
  AlgorithmResult result = run_algorithm(algorithm, request);
  Found found;
  found.details = in_best_order(algorithm, settings, evaluator, control, result);
  SearchReport& report = found.report = describe(problem, found.details);
  report.origins = origins_of(problem, algorithm, result);
  found.strategy = std::move(result.strategy);
  report.algorithm = algorithm;
  report.note = result.note;
  report.details = result.details;
  if (plan) report.details["settings"] = to_string(plan->parallelism);
  report.seed = settings.search.seed;
  report.elapsed_s = report.total_s = result.elapsed_s;
  if (result.chains) {
    found.slowest_evaluation_s = result.chains->slowest_evaluation_s;
    report.proposals = result.chains->proposals;
    report.accepted = result.chains->accepted;
    report.threads = own.search.threads;
    report.elapsed_s = result.chains->elapsed_s;
    report.best_found_s = result.chains->best_found_s;
    report.chain_hash = hexadecimal(result.chains->chain_hash);
    report.statistics = result.chains->statistics;
    report.improvements = result.chains->improvements;
    report.ended = end_text(result.chains->end, settings.search);
  }
  report.baselines = std::move(result.baselines);
  const auto is_data_parallel = [](const Baseline& baseline) { return baseline.algorithm == "data-parallel"; };
  if (algorithm == "data-parallel" && !problem.annotations)
    report.baselines.insert(report.baselines.begin(),
                            {algorithm, report.predicted_fifo, report.feasible, found.strategy});
  else if (!context.stop && std::none_of(report.baselines.begin(), report.baselines.end(), is_data_parallel))
    report.baselines.insert(report.baselines.begin(),
                            data_parallel ? *std::move(data_parallel) : data_parallel_baseline(evaluator));
  report.lower_bound = bound;
  return found;
}

std::string no_chains_note(const PlanBySettings& plan, const Topology& topology) {
  return to_string(plan.parallelism) + "; no chains, as a simulation of all " +
         std::to_string(topology.devices.size()) + " devices takes too long";
}

// A large plan as it is: chains would see few of its neighbours.
Found without_chains(const PlanBySettings& plan, Evaluator& evaluator, const AlgorithmSettings& settings,
                     const CommandContext& context) {
  const auto begin = std::chrono::steady_clock::now();
  const Problem& problem = evaluator.problem();
  expect_room_for_simulation(
      parts_of_iteration(plan.strategy, problem.settings.micro_batches),
      "ffsearch plan needs less and prints the settings that were found, " + to_string(plan.parallelism));
  Found found;
  found.strategy = problem.keeping_annotations(plan.strategy);
  found.details = evaluator.details(
      found.strategy, settings.task_order.value_or(
                          problem.settings.micro_batches > 1 ? TaskOrder::one_forward_one_backward : TaskOrder::best));
  Evaluator::follow_order(found.details);
  context.best_known.found(found.strategy, evaluator.prediction(found.details));
  SearchReport& report = found.report = describe(problem, found.details);
  report.algorithm = "mcmc";
  report.note = no_chains_note(plan, problem.topology);
  report.details["settings"] = to_string(plan.parallelism);
  report.seed = settings.search.seed;
  report.elapsed_s = report.total_s = seconds_since(begin);
  return found;
}

// The same from some of the devices, which stand for all; nothing where all of them are asked for, or none stands for
// another.
std::optional<CommandResult> from_some_devices(const PlanBySettings& plan, const GraphAndTopology& files,
                                               const SearchOptions& options, const SettingsChoice& chosen,
                                               std::chrono::steady_clock::time_point start) {
  const bool needs_all = !options.html.empty() || !options.background.empty() || !options.files.annotations.empty() ||
                         options.settings.task_order;
  if (needs_all) return std::nullopt;
  const auto begin = std::chrono::steady_clock::now();
  StrategyFile file{files.graph, files.topology, plan.strategy, {}, Json::object()};
  file.settings = plan.settings;
  if (!needs_no_issue_order(file)) return std::nullopt;
  if (file.settings.micro_batches > 1) file.settings.schedule = Schedule::one_forward_one_backward;
  const std::optional<PlanOfFile> exact = plan_of_file(file);
  if (!exact) return std::nullopt;
  std::optional<SettingsReport> found =
      settings_report(exact->parallelism, exact->file, options.costs, {.trace = options.trace});
  if (!found) return std::nullopt;
  SearchReport& report = found->report;
  report.algorithm = "mcmc";
  report.note = no_chains_note(plan, files.topology);
  report.details["settings"] = to_string(plan.parallelism);
  report.seed = options.settings.search.seed;
  report.chosen = chosen;
  report.elapsed_s = seconds_since(begin);
  report.total_s = seconds_since(start);
  if (!options.out.empty()) write_plan(options.out, exact->file, *found, options.costs);
  CommandResult result{report_to_json(report), report_to_text(report, files.graph, files.topology, plan.strategy)};
  result.notes = std::move(found->notes);
  if (!options.report.empty()) write_json_file(options.report, result.json);
  if (!options.out.empty()) result.text += "written to " + options.out + "\n";
  return result;
}

// Is mcmc to start from settings? Where the user says nothing of what its chains start from, and does not ask for the
// paper's search.
bool starts_from_settings(const SearchOptions& options) {
  return options.algorithm == "mcmc" && options.settings.init.empty() &&
         options.settings.search.proposals_from == ProposalKind::structured &&
         options.strategy.synchronization != Synchronization::parameter_server;
}

// What flags leave open is chosen with the settings. A profile has the kernels of one number of micro-batches.
DecidedSettings decided_settings(const SearchOptions& options) {
  DecidedSettings decided = options.decided;
  if (options.costs.mode == CostMode::profile && !options.choose.micro_batches) decided.micro_batches = true;
  return decided;
}

// Why a search took longer than its budget; "" where it did not.
std::string budget_note(const SearchOptions& options, double evaluation_s, double elapsed_s) {
  constexpr double tolerance_s = 1;
  const double budget_s = options.settings.search.budget_s;
  if (!keeps_budget(options.algorithm) || options.settings.check_local || budget_s <= 0 ||
      elapsed_s <= budget_s + tolerance_s)
    return "";
  char text[200];
  std::snprintf(text, sizeof text,
                "the search took %.1f s, its budget was %.1f s: one simulation of this network on these devices takes "
                "up to %.1f s",
                elapsed_s, budget_s, evaluation_s);
  return text;
}

// Where --simulator checked had nothing to check, as with recomputation, sharding and 1F1B order; "" else.
std::string check_note(const AlgorithmSettings& settings, const SearchReport& report) {
  const CheckStatistics& checks = report.statistics.checks;
  if (settings.search.simulator != SimulatorKind::checked || report.proposals == 0 ||
      checks.rejections + checks.predictions > 0)
    return "";
  return "--simulator checked: nothing was compared; with sharding, recomputation or 1F1B order all proposals are "
         "simulated in full";
}

// Where no time was left for a memory plan; "" else.
std::string memory_note(const Evaluator::Details& details) {
  if (!details.memory_is_estimated) return "";
  return "the memory is an estimate, as its plan would exceed the budget and the parameters alone do not fit; ffsearch "
         "simulate plans it";
}

}  // namespace

CommandResult run_search(const SearchOptions& options, const CommandContext& context) {
  Vector<std::string> inputs = options.costs.profiles;
  inputs.insert(inputs.end(), {options.files.graph, options.files.topology});
  if (!options.files.annotations.empty()) inputs.push_back(options.files.annotations);
  inputs.insert(inputs.end(), options.background.begin(), options.background.end());
  expect_all_writable({options.out, options.trace, options.report, options.html}, inputs);
  const auto start = std::chrono::steady_clock::now();
  GraphAndTopology files = load_files(options.files, options.strategy);
  const Topology topology = files.topology;
  const Background background(options.background, topology, options.costs);
  if (!background.empty()) files.topology = background.left_of(topology);
  const DecidedSettings decided = decided_settings(options);
  std::optional<PlanBySettings> plan;
  if (starts_from_settings(options))
    plan = plan_by_settings(files, options.costs, options.settings, decided, context.stop, context.settings_progress);
  const double settings_s = seconds_since(start);
  SettingsChoice chosen = options.choose;
  if (plan) {
    files.settings = plan->settings;
    chosen = {.micro_batches = !decided.micro_batches, .recompute = !decided.recompute, .sharding = !decided.sharding};
    if (plan->large)
      if (std::optional<CommandResult> result = from_some_devices(*plan, files, options, chosen, start)) return *result;
  } else if (options.choose.any()) {
    files.settings = choose_settings(files, options.costs, options.settings, options.choose, context.stop);
  }
  Loaded loaded = load(std::move(files), options.costs);
  Problem problem = loaded.problem();
  if (plan && plan->settings.micro_batches > 1 && may_alternate(options.settings))
    problem.order = TaskOrder::one_forward_one_backward;
  const SearchSpace space(problem.graph, problem.topology, false, problem.annotations);
  AlgorithmSettings settings = with_unequal_shares(options.settings, options.costs);
  // Reading the files belongs to the budget, measuring kernels does not.
  if (double& budget_s = settings.search.budget_s; budget_s > 0)
    budget_s = std::max(1e-3, budget_s - seconds_since(start));
  if (!measure_search_space(problem, space, measurable_models(problem), context))
    throw MachineError("interrupted while measuring kernels, before any strategy was found; nothing was written");
  const auto begin = std::chrono::steady_clock::now();
  Evaluator evaluator(problem);
  context.best_known.begin(problem, options.algorithm, options.out);
  Found found = plan && plan->large
                    ? without_chains(*plan, evaluator, settings, context)
                    : find_strategy(options.algorithm, evaluator, space, settings, plan ? &*plan : nullptr, context);
  const Nanoseconds judged =
      problem.order == TaskOrder::fifo ? found.details.makespan_fifo : found.details.timeline.makespan;
  context.best_known.complete(found.strategy,
                              Evaluator::prediction(judged, evaluator.fullness(found.details.memory_bytes)));
  found.report.background = background.effects(topology, problem.topology, found.details);
  found.report.chosen = chosen;
  if (starts_from_settings(options)) found.report.total_s += settings_s;
  write_outputs(options.out, "", found.strategy, found.report, evaluator, found.details);
  context.best_known.written();
  if (!options.trace.empty()) write_trace(options.trace, evaluator, found.details);
  CommandResult result{report_to_json(found.report),
                       report_to_text(found.report, problem.whole(), problem.topology, found.strategy)};
  const std::string over_budget = budget_note(options, std::max(evaluator.slowest_s(), found.slowest_evaluation_s),
                                              settings_s + seconds_since(begin));
  for (const std::string& note :
       {loaded.kernels.measurement_note(), loaded.kernels.busy_note(), over_budget, memory_note(found.details),
        check_note(options.settings, found.report), sharding_note(problem.settings, found.details.tasks)})
    if (!note.empty()) result.notes.push_back(note);
  if (!options.report.empty()) write_json_file(options.report, result.json);
  if (!options.html.empty())
    write_html_report(options.html, evaluator, found.strategy, found.details,
                      {found.report, baseline_alternatives(evaluator, space, found.report.baselines, context.stop)});
  if (!options.out.empty()) result.text += "written to " + options.out + "\n";
  return result;
}

namespace {

// Of the best of them; the others are what it is compared with.
void write_comparison(const std::string& path, const Problem& problem, const AlgorithmSettings& settings,
                      const Vector<SearchReport>& reports, Vector<html::Alternative> strategies) {
  const auto best = std::min_element(reports.begin(), reports.end(), [](const auto& a, const auto& b) {
    return std::pair(!a.feasible, a.predicted) < std::pair(!b.feasible, b.predicted);
  });
  const Strategy strategy = std::move(strategies[best - reports.begin()].strategy);
  strategies.erase(strategies.begin() + (best - reports.begin()));
  Evaluator evaluator(problem);
  Evaluator::Details details =
      evaluator.details(strategy, task_order_of(best->algorithm, settings, problem.settings.micro_batches));
  Evaluator::follow_order(details);
  write_html_report(path, evaluator, strategy, details, {*best, std::move(strategies)});
}

}  // namespace

CommandResult run_compare(const CompareOptions& options, const CommandContext& context) {
  Vector<std::string> inputs = options.costs.profiles;
  inputs.insert(inputs.end(), {options.files.graph, options.files.topology, options.files.annotations});
  inputs.insert(inputs.end(), options.background.begin(), options.background.end());
  expect_all_writable({options.html}, inputs);
  GraphAndTopology files = load_files(options.files, options.strategy);
  const Topology topology = files.topology;
  const Background background(options.background, topology, options.costs);
  if (!background.empty()) files.topology = background.left_of(topology);
  Loaded loaded = load(std::move(files), options.costs);
  const Problem problem = loaded.problem();
  const SearchSpace space(problem.graph, problem.topology, false, problem.annotations);
  if (!measure_search_space(problem, space, measurable_models(problem), context))
    throw MachineError("interrupted while measuring kernels");
  CommandResult result;
  result.json = {{"algorithms", Json::object()}};
  Vector<SearchReport> reports;
  Vector<html::Alternative> found_strategies;
  Vector<std::pair<std::string, std::string>> failed;
  for (const std::string& algorithm : algorithm_names()) {
    try {
      Evaluator evaluator(problem);
      Found found = find_strategy(algorithm, evaluator, space, with_unequal_shares(options.settings, options.costs),
                                  nullptr, context);
      found.report.background = background.effects(topology, problem.topology, found.details);
      reports.push_back(std::move(found.report));
      found_strategies.push_back({algorithm, reports.back().note, std::move(found.strategy)});
      result.json["algorithms"][algorithm] = report_to_json(reports.back());
    } catch (const NotApplicable& error) {
      failed.emplace_back(algorithm, error.what());
      result.json["algorithms"][algorithm] = {{"not_applicable", error.what()}};
    }
  }
  result.text = comparison_to_text(reports, failed, problem.whole().batch_size);
  if (const std::string note = loaded.kernels.busy_note(); !note.empty()) result.notes.push_back(note);
  if (!options.html.empty())
    write_comparison(options.html, problem, options.settings, reports, std::move(found_strategies));
  return result;
}

namespace {

// A profile is of one device model: the one that is asked for, that of the file which is gone on with, or the only one
// that can be measured here.
int model_to_profile(const ProfileOptions& options, const Problem& problem, const Vector<Profile>& known) {
  const Vector<int> measurable = measurable_models(problem);
  if (measurable.empty())
    throw MachineError("this machine has none of the devices of " + options.files.topology +
                       ": there is nothing to measure" + problem.kernels.why_not_measurable(0));
  Vector<std::string> names;
  for (const int model : measurable) names.push_back(problem.topology.models[model].name);
  const std::string& asked = options.device_model;
  if (!known.empty() && !asked.empty() && known[0].device_model != asked)
    throw InputError(options.out + ": is the profile of device model \"" + known[0].device_model + "\", not of \"" +
                     asked + "\"; give another name");
  const std::string wanted = !known.empty() ? known[0].device_model : !asked.empty() ? asked : names[0];
  if (known.empty() && asked.empty() && names.size() > 1)
    throw InputError(options.files.topology +
                     ": this machine has devices of several models; choose one with --device-model" +
                     suggestion("", names));
  const auto found = std::find(names.begin(), names.end(), wanted);
  if (found == names.end())
    throw InputError("device model \"" + wanted + "\": the topology \"" + problem.topology.name +
                     "\" has none that this machine can measure" + suggestion(wanted, names));
  return measurable[found - names.begin()];
}

}  // namespace

CommandResult run_profile(const ProfileOptions& options, const CommandContext& context) {
  expect_all_writable({options.out}, {options.files.graph, options.files.topology});
  GraphAndTopology files = load_files(options.files, {});
  Vector<Profile> known;
  const bool exists = std::filesystem::exists(options.out),
             regular = !exists || std::filesystem::is_regular_file(options.out);
  if (exists && regular) known.push_back(load_profile(options.out));
  Loaded loaded(with_precision(std::move(files), options.precision.value_or(Precision::fp32)), CostMode::automatic,
                known);
  const Problem problem = loaded.problem();
  const int model = model_to_profile(options, problem, known);
  // Kept as we go: an interrupted run resumes where it stopped.
  auto saved = std::chrono::steady_clock::now();
  const auto save = [&] { save_profile(options.out, problem.kernels.profile(model)); };
  const auto save_now_and_then = [&] {
    if (!regular || std::chrono::steady_clock::now() - saved < std::chrono::seconds(2)) return;
    save();
    saved = std::chrono::steady_clock::now();
  };
  try {
    measure_search_space(problem, SearchSpace(problem.graph, problem.topology), {model}, context, save_now_and_then);
  } catch (const std::exception&) {
    save();
    throw;
  }
  save();
  const Profile& profile = problem.kernels.profile(model);
  Vector<std::string> notes;
  for (const std::string& note : {problem.kernels.measurement_note(), problem.kernels.busy_note()})
    if (!note.empty()) notes.push_back(note);
  const int64_t measured = problem.kernels.measured_count(), entries = static_cast<int64_t>(profile.entries.size());
  return {{{"device_model", profile.device_model}, {"measured", measured}, {"entries", entries}},
          "measured " + std::to_string(measured) + " kernels; " + options.out + " holds " + std::to_string(entries) +
              " entries for device model " + profile.device_model + "\n",
          notes};
}

}  // namespace ff
