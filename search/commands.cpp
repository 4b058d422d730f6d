#include "search/commands.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>

#include "common/recomputation.h"
#include "common/sharding.h"
#include "common/strategy_configurations.h"
#include "common/task_graph/issue_order.h"
#include "search/background.h"
#include "search/explain/critical_path.h"
#include "search/framework_arguments.h"
#include "search/framework_settings.h"
#include "search/optimizer/alike_ranks.h"
#include "search/optimizer/baselines/propagate.h"
#include "search/optimizer/folding.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/parallelism.h"
#include "search/report/html/report.h"
#include "search/report/kernel_cost_table.h"
#include "search/report/plan_text.h"
#include "search/report/summary.h"
#include "search/report/trace.h"

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

SearchReport describe(const Problem& problem, const Evaluator::Details& details) {
  SearchReport report;
  report.predicted = details.timeline.makespan;
  report.predicted_fifo = details.makespan_fifo;
  report.fifo_order = details.fifo_order;
  report.task_order = order_text(details.task_order);
  report.on_demand_buffers = details.transfer_buffers == TransferBuffers::on_demand;
  report.tasks = details.tasks.tasks.count();
  report.micro_batches = problem.settings.micro_batches;
  report.recompute = problem.settings.recompute;
  report.precision = problem.settings.precision;
  report.sharding = written_sharding(problem.settings);
  for (int t : details.tasks.tasks.indices()) {
    const Task& task = details.tasks.tasks[t];
    const int64_t times = problem.replicas ? problem.replicas->tasks_of(details.tasks, task) : 1;
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

std::string hexadecimal(uint64_t value) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(value));
  return digits;
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
               {"graph_hash", content_hash(problem.whole().file.dump())},
               {"topology_hash", content_hash(problem.topology.file.dump())},
               {"predicted_us", to_us(report.predicted)},
               {"baselines", report_to_json(report)["baselines"]},
               {"memory_bytes", memory_to_json(report.memory_bytes)},
               {"costs", report_to_json(report)["costs"]}};
  for (const BackgroundEffect& effect : report.background) json["background"].push_back(effect.file);
  return json;
}

// `kept`: what the provenance says instead of what it would say of the report.
void write_outputs(const std::string& out, const std::string& trace, const Strategy& strategy,
                   const SearchReport& report, Evaluator& evaluator, const Evaluator::Details& details,
                   const Json& kept = Json::object()) {
  const Problem& problem = evaluator.problem();
  if (!out.empty()) {
    // An order that is not that of readiness is written even where a file without any would stand for it, as such a
    // file is predicted as tasks become ready.
    const TaskGraphBuilder& builder = evaluator.builder();
    Json origin = provenance(report, problem);
    origin.update(kept);
    save_strategy(
        out, {problem.whole(), problem.topology, strategy,
              details.fifo_order ? issue_order_to_save(builder, details.tasks, details.order, details.transfer_buffers)
                                 : issue_order_names(builder, details.tasks, details.order),
              std::move(origin), false, report.origins, details.transfer_buffers, problem.settings});
  }
  if (!trace.empty()) write_trace(trace, problem.topology, evaluator.builder(), details);
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

// The simulated time of data parallelism, which every result shows for comparison.
Baseline data_parallel_baseline(Evaluator& evaluator,
                                const std::function<void(const Strategy&, const Prediction&)>& found = nullptr) {
  Strategy strategy = data_parallel(evaluator.problem().graph, evaluator.problem().topology);
  const Prediction prediction = evaluator.evaluate(strategy);
  if (found) found(strategy, prediction);
  return {"data-parallel", prediction.makespan, prediction.feasible(), std::move(strategy)};
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
    order = TaskOrder::fifo;
  const Deadline until = settings.task_order ? Deadline() : deadline;  // orders that are asked for are tried
  Evaluator::Details found = evaluator.details(result.strategy, order, until);
  Evaluator::follow_order(found);
  if (order != TaskOrder::best || settings.check_local) return found;
  constexpr double near = 1.3;
  Vector<int> nearest_first;
  for (const int number : result.baselines.indices()) nearest_first.push_back(number);
  std::stable_sort(nearest_first.begin(), nearest_first.end(),
                   [&](int a, int b) { return result.baselines[a].predicted < result.baselines[b].predicted; });
  for (const int number : nearest_first) {
    const Baseline& baseline = result.baselines[number];
    if (!baseline.feasible || baseline.strategy == result.strategy ||
        static_cast<double>(baseline.predicted) > near * static_cast<double>(found.makespan_fifo) ||
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

Found find_strategy(const std::string& algorithm, Evaluator& evaluator, const SearchSpace& space,
                    const AlgorithmSettings& settings, const CommandContext& context) {
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
  AlgorithmResult result =
      run_algorithm(algorithm, {.evaluator = evaluator, .space = space, .settings = own, .control = control});
  Found found;
  found.details = in_best_order(algorithm, settings, evaluator, control, result);
  SearchReport& report = found.report = describe(problem, found.details);
  report.origins = origins_of(problem, algorithm, result);
  found.strategy = std::move(result.strategy);
  report.algorithm = algorithm;
  report.note = result.note;
  report.details = result.details;
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

// Where --simulator checked had nothing to check, as with recomputation and sharding; "" else.
std::string check_note(const AlgorithmSettings& settings, const SearchReport& report) {
  const CheckStatistics& checks = report.statistics.checks;
  if (settings.search.simulator != SimulatorKind::checked || report.proposals == 0 ||
      checks.rejections + checks.predictions > 0)
    return "";
  return "--simulator checked: nothing was compared; with sharding or recomputation all proposals are simulated in "
         "full";
}

// Where no time was left for a memory plan; "" else.
std::string memory_note(const Evaluator::Details& details) {
  if (!details.memory_is_estimated) return "";
  return "the memory is an estimate, as its plan would exceed the budget and the parameters alone do not fit; ffsearch "
         "simulate plans it";
}

// Where sharding changes nothing, as without replicas of parameters; "" else.
std::string sharding_note(const StrategySettings& settings, const TaskGraph& tasks) {
  const auto is_split = [&](const SynchronizationUnit& unit) {
    return is_sharded(tasks.synchronization_of(unit.group)) && unit.holder_count() > 1;
  };
  if (!is_sharded(tasks.synchronization) || std::any_of(tasks.units.begin(), tasks.units.end(), is_split)) return "";
  return "sharding " + written_sharding(settings) +
         " has no effect: no parameter that it would split is held by more than one device";
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
  if (options.choose.any())
    files.settings = choose_settings(files, options.costs, options.settings, options.choose, context.stop);
  Loaded loaded = load(std::move(files), options.costs);
  const Problem problem = loaded.problem();
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
  Found found = find_strategy(options.algorithm, evaluator, space, settings, context);
  context.best_known.complete(found.strategy, Evaluator::prediction(found.details.makespan_fifo,
                                                                    evaluator.fullness(found.details.memory_bytes)));
  found.report.background = background.effects(topology, problem.topology, found.details);
  found.report.chosen = options.choose;
  write_outputs(options.out, "", found.strategy, found.report, evaluator, found.details);
  context.best_known.written();
  if (!options.trace.empty()) write_trace(options.trace, problem.topology, evaluator.builder(), found.details);
  CommandResult result{report_to_json(found.report),
                       report_to_text(found.report, problem.whole(), problem.topology, found.strategy)};
  const std::string over_budget =
      budget_note(options, std::max(evaluator.slowest_s(), found.slowest_evaluation_s),
                  std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
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

// What --settings, --megatron or --torchtitan say.
FrameworkArguments arguments_of(const SimulateOptions& options, const Graph& graph, int devices) {
  if (!options.megatron.empty()) return parse_megatron_arguments(options.megatron, graph);
  if (!options.torchtitan.empty()) return load_torchtitan_file(options.torchtitan, graph, devices);
  try {
    return {.parallelism = parse_parallelism(options.settings), .precision = precision_of_settings(options.settings)};
  } catch (const InputError& error) {
    throw InputError(std::string("--settings: ") + error.what());
  }
}

struct PlanOfSettings {
  StrategyFile file;
  FrameworkArguments arguments;  // with all settings as they were understood
};

PlanOfSettings plan_of_settings(const SimulateOptions& options) {
  ProblemFiles files{options.graph, options.topology, options.batch, 0, ""};
  GraphAndTopology loaded = load_files(files, {});
  FrameworkArguments arguments = arguments_of(options, loaded.graph, loaded.topology.devices.count());
  if (arguments.batch > 0 && options.batch > 0 && arguments.batch != options.batch)
    throw InputError("--batch " + std::to_string(options.batch) + ": the framework's arguments have a batch of " +
                     std::to_string(arguments.batch));
  if (arguments.batch > 0) loaded.graph = with_batch_size(loaded.graph, arguments.batch, options.graph);
  try {
    ParallelPlan plan = plan_of(arguments.parallelism, loaded.graph, loaded.topology);
    return {{std::move(loaded.graph),
             std::move(loaded.topology),
             std::move(plan.strategy),
             {},
             Json::object(),
             false,
             {},
             TransferBuffers::preallocated,
             std::move(plan.settings)},
            std::move(arguments)};
  } catch (const InputError& error) {
    const char* const flag = !options.megatron.empty() ? "--megatron: " : "--settings: ";
    throw InputError((options.torchtitan.empty() ? flag : options.torchtitan + ": ") + error.what());
  }
}

// Precision and optimizer are those of the framework's arguments where flags do not say them.
CostOptions with_arguments(CostOptions costs, const FrameworkArguments& arguments, int64_t batch) {
  costs.conventions = conventions_of(arguments.parallelism, batch);
  if (!costs.precision) costs.precision = arguments.precision;
  if (!costs.optimizer.any() && !arguments.optimizer.empty()) costs.optimizer.kind = arguments.optimizer;
  return costs;
}

// What of the framework's arguments was not followed.
void add_argument_notes(CommandResult& result, const FrameworkArguments& arguments) {
  for (const std::string& note : arguments.notes) result.notes.push_back(note);
  if (arguments.ignored.empty()) return;
  result.json["ignored_arguments"] = arguments.ignored;
  std::string text = "ignored, as they change neither shapes nor places:";
  for (const std::string& flag : arguments.ignored) text += " " + flag;
  result.notes.push_back(text);
}

// Of some devices, which stand for all: of some groups (optimizer/folding.h), or of some ranks of the groups that split
// layers (alike_ranks.h), or of both. The plan with the settings of `file`, or nothing where they cannot. `look`: with
// an evaluator and the plan's strategy.
template <typename Look>
bool look_at_folded(Parallelism parallelism, const StrategyFile& file, const CostOptions& costs, const Look& look) {
  if (!file.settings.sharding.empty()) return false;
  parallelism.synchronization = file.settings.synchronization;
  std::optional<FoldedPlan> found = folded(parallelism, file.graph, file.topology);
  if (!found && parallelism.of_layer() == 1) return false;
  if (!found) {
    found = {file.graph, file.topology, {}, nullptr};
    found->plan = plan_of(parallelism, file.graph, file.topology);
  }
  found->plan.settings.recompute = file.settings.recompute;
  Loaded loaded =
      load({std::move(found->graph), std::move(found->topology), {}, found->plan.settings, found->replicas}, costs);
  Problem problem = loaded.problem();
  problem.replicas = with_stand_ins(problem, parallelism, found->plan.strategy);
  if (!problem.replicas) return false;
  Evaluator evaluator(problem);
  look(evaluator, found->plan.strategy);
  return true;
}

// From the devices that were simulated to all that they stand for.
void unfold(SearchReport& report, const Replicas& replicas) {
  Vector<int64_t> memory_bytes(replicas.topology.devices.size(), 0);
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

// Data parallelism with as many micro-batches; nothing where a device would have less than a sample of them.
Vector<Baseline> baselines_of_settings(const StrategyFile& file, const CostOptions& costs) {
  const int devices = file.topology.devices.count();
  const int64_t samples = int64_t{devices} * file.settings.micro_batches;
  if (file.graph.batch_size % samples != 0) return {};
  Parallelism data_parallel;
  data_parallel.data = devices;
  data_parallel.micro_batch = file.graph.batch_size / samples;
  Vector<Baseline> baselines;
  const auto evaluate = [&](Evaluator& evaluator, const Strategy& strategy) {
    const Prediction prediction = evaluator.evaluate(strategy);
    baselines = {{"data-parallel", prediction.makespan, prediction.feasible(), strategy}};
  };
  if (look_at_folded(data_parallel, file, costs, evaluate)) {
    baselines[0].strategy = {};  // of some devices
    return baselines;
  }
  const ParallelPlan plan = plan_of(data_parallel, file.graph, file.topology);
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
  Evaluator evaluator(loaded.problem());
  evaluate(evaluator, plan.strategy);
  return baselines;
}

std::optional<SearchReport> folded_report(const Parallelism& parallelism, const StrategyFile& file,
                                          const CostOptions& costs, Vector<std::string>& notes) {
  SearchReport report;
  const auto describe_all = [&](Evaluator& evaluator, const Strategy& strategy) {
    const Problem& problem = evaluator.problem();
    StrategyFile one = file;
    one.strategy = strategy;
    const Evaluator::Details details = problem.settings.micro_batches > 1
                                           ? evaluator.details(strategy, TaskOrder::one_forward_one_backward)
                                           : evaluator.details_of_file(one);
    report = describe(problem, details);
    if (problem.replicas->count == 1 && costs.mode == CostMode::analytic)
      report.lower_bound = lower_bound(problem, SearchSpace(problem.graph, problem.topology), evaluator.cost_model());
    unfold(report, *problem.replicas);
    notes = {problem.kernels.busy_note(), sharding_note(problem.settings, details.tasks)};
  };
  if (!look_at_folded(parallelism, file, costs, describe_all)) return std::nullopt;
  report.baselines = baselines_of_settings(file, costs);
  return report;
}

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
  if (!options.topology.empty()) add("--topo", options.topology);
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

// Said as ffexec says it; "" where the file has no order, or one of its tasks. `unlike`: what the tasks follow from.
std::string issue_order_note(const std::string& path, const StrategyFile& file, Evaluator& evaluator,
                             const std::string& unlike = "configurations") {
  if (file.issue_order.empty()) return "";
  const TaskGraph tasks = evaluator.builder().build(evaluator.expanded(file.strategy));
  if (!issue_order_from_names(evaluator.builder(), tasks, file.issue_order, file.transfer_buffers).empty()) return "";
  return path + ": the issue order does not fit the " + unlike + "; using the default order";
}

// Of a plan by settings, from some of its devices that stand for all; nothing where they do not.
std::optional<CommandResult> folded_result(const PlanOfSettings& read, const CostOptions& costs, bool explain_costs) {
  const Parallelism& parallelism = read.arguments.parallelism;
  const StrategyFile& file = read.file;
  Vector<std::string> notes;
  std::optional<SearchReport> report = folded_report(parallelism, file, costs, notes);
  if (!report) return std::nullopt;
  report->algorithm = "simulate";
  report->note = to_string(parallelism);
  CommandResult result{report_to_json(*report), report_to_text(*report, file.graph, file.topology, file.strategy)};
  for (const std::string& note : notes)
    if (!note.empty()) result.notes.push_back(note);
  if (explain_costs) {
    Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
    add_explained_costs(result, loaded.problem(), file.strategy);
  }
  add_argument_notes(result, read.arguments);
  return result;
}

void expect_writable(const SimulateOptions& options) {
  Vector<std::string> inputs = options.costs.profiles;
  inputs.push_back(options.topology);
  inputs.push_back(options.graph);
  inputs.push_back(options.torchtitan);
  if (!options.measured.empty()) inputs.push_back(options.measured);
  inputs.insert(inputs.end(), options.background.begin(), options.background.end());
  expect_all_writable({options.out, options.trace, options.html}, inputs);
  expect_all_writable({options.trace, options.html}, {options.strategy});
}

// What flags say instead of what the file says.
void replace_by_flags(StrategyFile& file, const SimulateOptions& options) {
  if (!options.topology.empty() && !options.from_settings()) {
    Topology other = load_topology(options.topology);
    if (other.devices.size() != file.topology.devices.size())
      throw InputError(options.topology + ": has " + std::to_string(other.devices.size()) +
                       " devices, the strategy is for " + std::to_string(file.topology.devices.size()));
    file.topology = std::move(other);
  }
  if (options.synchronization) {
    file.settings.synchronization = *options.synchronization;
    file.settings.sharding.clear();
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
  return !options.out.empty() || !options.trace.empty() || !options.html.empty() || !options.measured.empty() ||
         !options.background.empty();
}

// Memory is that of the order in which the strategy would run: the file's, or, where it is written and devices run
// their tasks as these become ready, the simulated one.
Evaluator::Details details_of(Evaluator& evaluator, const StrategyFile& file, const SimulateOptions& options) {
  Evaluator::Details details = options.from_settings() && file.settings.micro_batches > 1
                                   ? evaluator.details(file.strategy, TaskOrder::one_forward_one_backward)
                                   : evaluator.details_of_file(file);
  if (options.out.empty() || !details.fifo_order) return details;
  details = evaluator.details(file.strategy, TaskOrder::fifo);
  Evaluator::follow_order(details);
  return details;
}

}  // namespace

CommandResult run_simulate(const SimulateOptions& options) {
  expect_writable(options);
  const bool from_settings = options.from_settings();
  PlanOfSettings read = from_settings ? plan_of_settings(options) : PlanOfSettings{load_strategy(options.strategy), {}};
  StrategyFile& file = read.file;
  const CostOptions costs =
      from_settings ? with_arguments(options.costs, read.arguments, file.graph.batch_size) : options.costs;
  replace_by_flags(file, options);
  if (from_settings && !needs_all_devices(options))
    if (const std::optional<CommandResult> result = folded_result(read, costs, options.explain_costs)) return *result;
  const Topology topology = file.topology;
  const Background background(options.background, topology, options.costs);
  if (!background.empty()) file.topology = background.left_of(topology);
  std::optional<html::MeasuredIteration> measured;
  if (!options.measured.empty())
    measured = html::load_measured_iteration(options.measured, file.topology.devices.count());
  const bool baseline_by_settings = from_settings && options.html.empty();
  Vector<Baseline> baselines;
  if (options.compared && baseline_by_settings) baselines = baselines_of_settings(file, costs);
  Loaded loaded = load({std::move(file.graph), std::move(file.topology), {}, file.settings}, costs);
  const Problem problem = loaded.problem();
  Evaluator evaluator(problem);
  const Evaluator::Details details = details_of(evaluator, file, options);
  SearchReport report = describe(problem, details);
  report.algorithm = "simulate";
  if (from_settings) report.note = to_string(read.arguments.parallelism);
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
  add_argument_notes(result, read.arguments);
  return result;
}

CommandResult run_edit(const EditOptions& options) {
  Vector<std::string> inputs = options.costs.profiles;
  inputs.push_back(options.strategy);
  expect_all_writable({options.out}, inputs);
  StrategyFile file = load_strategy(options.strategy);
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, options.costs);
  const Problem problem = loaded.problem();
  Evaluator evaluator(problem);
  const Strategy original = file.strategy;
  const Evaluator::Details before = evaluator.details_of_file(file);
  for (const std::string& edit : options.edits)
    for (Change& change : parse_edit(edit, problem.graph, problem.topology, file.strategy, file.origins)) {
      file.strategy[change.op] = std::move(change.configuration);
      if (!file.origins.empty()) file.origins[change.op] = ConfigurationOrigin::annotated;
    }
  // An order whose tasks are no longer those of the strategy is replaced by one of the same kind.
  Evaluator::Details after = evaluator.details_of_file(file);
  const bool kept =
      !file.issue_order.empty() &&
      !issue_order_from_names(evaluator.builder(), after.tasks, file.issue_order, file.transfer_buffers).empty();
  if (!kept) after = evaluator.details(file.strategy, before.fifo_order ? TaskOrder::fifo : TaskOrder::best);
  SearchReport report = describe(problem, after);
  report.algorithm = "edit";
  for (const std::string& edit : options.edits) report.note += (report.note.empty() ? "" : "; ") + edit;
  report.origins = file.origins;
  write_outputs(options.out, "", file.strategy, report, evaluator, after);
  Explanation edited =
      describe_edit(problem, original, file.strategy, before.timeline.makespan, after.timeline.makespan);
  edited.json.update({{"fits_memory", report.feasible},
                      {"memory_bytes", report.memory_bytes},
                      {"issue_order", kept ? "kept" : "derived"}});
  edited.text +=
      "issue order          " + std::string(kept ? "kept" : "derived anew: the file had none that fits") + "\n";
  if (!report.feasible) edited.text += "memory               exceeds device memory\n";
  if (!options.out.empty()) edited.text += "written to " + options.out + "\n";
  CommandResult result{std::move(edited.json), std::move(edited.text)};
  if (const std::string note = loaded.kernels.busy_note(); !note.empty()) result.notes.push_back(note);
  return result;
}

namespace {

// Of a plan in its own order; of settings with several micro-batches in 1F1B order.
Evaluator::Details predicted(const CostOptions& costs, const StrategyFile& file, bool by_settings) {
  Loaded loaded = load({file.graph, file.topology, {}, file.settings}, costs);
  Evaluator evaluator(loaded.problem());
  return by_settings && file.settings.micro_batches > 1
             ? evaluator.details(file.strategy, TaskOrder::one_forward_one_backward)
             : evaluator.details_of_file(file);
}

}  // namespace

CommandResult run_export(const ExportOptions& options) {
  const StrategyFile file = load_strategy(options.strategy);
  Parallelism parallelism;
  StrategyFile nearest = file;
  // Settings are those of a graph in f32: there full recomputation chooses its operators by their bytes.
  const Graph graph = with_activation_type(file.graph, DataType::f32);
  try {
    parallelism = nearest_parallelism(graph, file.topology, file.strategy, file.settings);
    ParallelPlan plan = plan_of(parallelism, graph, file.topology);
    nearest.strategy = std::move(plan.strategy);
    nearest.settings = std::move(plan.settings);
  } catch (const InputError& error) {
    throw InputError(options.strategy + ": " + error.what());
  }
  nearest.issue_order.clear();
  FrameworkSettings settings =
      framework_settings(options.framework, parallelism, file.graph, transformer_layers(file.graph).count(),
                         options.costs.precision.value_or(file.settings.precision));
  const bool same_micro_batches = nearest.settings.micro_batches == file.settings.micro_batches;
  Vector<std::string> others;  // operators that the settings split or place in another way
  for (const OperatorId op : file.graph.operator_ids())
    if (!(nearest.strategy[op] == file.strategy[op])) others.push_back(file.graph.operators[op].name);
  if (!same_micro_batches)
    settings.not_there.push_back("micro_batches=" + std::to_string(file.settings.micro_batches) + ": the nearest is " +
                                 std::to_string(nearest.settings.micro_batches));
  if (nearest.settings.recompute != file.settings.recompute && parallelism.recompute)
    settings.not_there.push_back("recompute: of the plan's own operators, the settings have full");
  if (!file.settings.sharding.empty())
    settings.not_there.push_back("sharding " + written_sharding(file.settings) + ": the settings have " +
                                 written_sharding(nearest.settings) + " for all layers");
  if (!others.empty()) settings.not_there.push_back("other splits or devices: " + joined_names(others));
  const Nanoseconds own = predicted(options.costs, file, false).timeline.makespan,
                    by_settings = predicted(options.costs, nearest, true).timeline.makespan;
  Json json = {{"for", options.framework},
               {"settings", to_string(parallelism)},
               {"text", settings.text},
               {"not_there", settings.not_there},
               {"exact", others.empty() && settings.not_there.empty()},
               {"predicted_us", static_cast<double>(own) / 1000},
               {"settings_predicted_us", static_cast<double>(by_settings) / 1000}};
  std::string text = settings.text + "\nsettings             " + to_string(parallelism) + "\n";
  for (const std::string& one : settings.not_there) text += "not in the settings  " + one + "\n";
  text += "predicted            " + time_text(own) + " as planned, " + time_text(by_settings) + " by the settings\n";
  return {std::move(json), std::move(text)};
}

CommandResult run_explain(const ExplainOptions& options) {
  StrategyFile file = load_strategy(options.strategy);
  Loaded loaded = load({std::move(file.graph), std::move(file.topology), {}, file.settings}, options.costs);
  const Problem problem = loaded.problem();
  Explanation explanation = explain_strategy(problem, file, options.settings);
  CommandResult result{std::move(explanation.json), std::move(explanation.text)};
  Evaluator evaluator(problem);
  if (std::string note = issue_order_note(options.strategy, file, evaluator); !note.empty())
    result.notes.push_back(std::move(note));
  return result;
}

CommandResult run_diff(const DiffOptions& options) {
  const StrategyFile a = load_strategy(options.a), b = load_strategy(options.b);
  expect_comparable(options.a, a, options.b, b);
  // Both on the machine of a.
  Loaded loaded_a = load({a.graph, a.topology, {}, a.settings}, options.costs),
         loaded_b = load({b.graph, a.topology, {}, b.settings}, options.costs);
  Evaluator evaluator_a(loaded_a.problem()), evaluator_b(loaded_b.problem());
  Explanation explanation = explain_difference(evaluator_a, a, evaluator_b, b, options.limit);
  CommandResult result{std::move(explanation.json), std::move(explanation.text)};
  for (std::string note : {issue_order_note(options.a, a, evaluator_a), issue_order_note(options.b, b, evaluator_b)})
    if (!note.empty()) result.notes.push_back(std::move(note));
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
      Found found =
          find_strategy(algorithm, evaluator, space, with_unequal_shares(options.settings, options.costs), context);
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
