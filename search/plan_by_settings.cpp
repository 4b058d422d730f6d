#include "search/plan_by_settings.h"

#include <algorithm>

#include "search/optimizer/baselines/megatron.h"
#include "search/simulation_room.h"

namespace ff {
namespace {

// A mixture of experts with more operators times devices, of which all are simulated, takes minutes.
constexpr int64_t most_with_experts = 200'000;

bool takes_minutes(const Graph& graph, const Topology& topology) {
  const auto has_experts = [](const Operator& op) { return experts_dimension(*op.definition) >= 0; };
  return std::any_of(graph.operators.begin(), graph.operators.end(), has_experts) &&
         static_cast<int64_t>(graph.operators.size()) * topology.devices.count() > most_with_experts;
}

// Parts of all operators in all micro-batches: a task graph of more takes over a second.
constexpr int64_t most_parts_of_chains = 100'000;

SettingsSearchOptions search_options(const GraphAndTopology& files, const AlgorithmSettings& settings,
                                     const DecidedSettings& decided) {
  constexpr int candidates = 3;
  constexpr double share_of_budget = 0.25, without_budget_s = 60;
  SettingsSearchOptions options;
  options.top = candidates;
  if (settings.search.budget_s > 0) options.budget_s = share_of_budget * settings.search.budget_s;
  else if (settings.search.proposals == 0) options.budget_s = without_budget_s;
  if (decided.micro_batches) options.micro_batches = files.settings.micro_batches;
  if (decided.recompute) {
    options.given.insert("recompute");
    options.pinned.recompute = files.settings.recompute.empty() ? Recomputation::none : Recomputation::full;
  }
  if (decided.sharding) {
    options.given.insert("sharding");
    options.pinned.synchronization = files.settings.synchronization;
  }
  return options;
}

PlanBySettings plan_of_found(Parallelism parallelism, const GraphAndTopology& files, const DecidedSettings& decided) {
  ParallelPlan found = plan_of(parallelism, files.graph, files.topology);
  StrategySettings settings = files.settings;
  settings.micro_batches = found.settings.micro_batches;
  settings.overlaps_reductions = found.settings.overlaps_reductions;
  if (!decided.recompute) settings.recompute = found.settings.recompute;
  if (!decided.sharding) settings.synchronization = found.settings.synchronization;
  const bool large = parts_of_iteration(found.strategy, settings.micro_batches) > most_parts_of_chains;
  return {std::move(parallelism), std::move(found.strategy), std::move(settings), large};
}

// In its best order of tasks, or the one that is asked for.
class Judge {
 public:
  Judge(const GraphAndTopology& files, const CostOptions& costs, const AlgorithmSettings& settings)
      : files_(files), costs_(costs), order_(settings.task_order.value_or(TaskOrder::best)) {}

  // With what is annotated, which the plan then has. Nothing where a profile lacks its kernels.
  std::optional<Prediction> of(PlanBySettings& plan) const {
    try {
      return prediction(plan);
    } catch (const InputError&) {
      return std::nullopt;
    }
  }

 private:
  Prediction prediction(PlanBySettings& plan) const {
    GraphAndTopology own = files_;
    own.settings = plan.settings;
    Loaded loaded = load(std::move(own), costs_);
    const Problem problem = loaded.problem();
    plan.strategy = problem.keeping_annotations(std::move(plan.strategy));
    Evaluator evaluator(problem);
    const Evaluator::Details details = evaluator.details(plan.strategy, order_);
    return Evaluator::prediction(details.timeline.makespan, evaluator.fullness(details.memory_bytes));
  }

  const GraphAndTopology& files_;
  const CostOptions& costs_;
  const TaskOrder order_;
};

// The fastest that fit; where none does, those that need the least memory.
Vector<Parallelism> best_settings(const GraphAndTopology& files, const CostOptions& costs,
                                  const SettingsSearchOptions& options, const std::atomic<bool>& stop) {
  CostOptions own = costs;
  if (own.mode != CostMode::profile) own.mode = CostMode::analytic;
  const Precision precision = costs.precision.value_or(files.settings.precision);
  try {
    const GraphAndTopology typed = with_precision(files, precision);
    own.precision = precision;
    const SettingsSearchResult found = search_settings(typed.graph, typed.topology, own, options, stop);
    Vector<Parallelism> best;
    for (const SettingsPrediction& one : found.best) best.push_back(one.parallelism);
    if (const LookedAt* least = with_least_memory(found); best.empty() && found.complete && least)
      best.push_back(least->parallelism);
    return best;
  } catch (const InputError&) {  // no settings are possible
    return {};
  }
}

// A search of so many proposals depends on nothing but its input. 0: no limit.
double seconds_for_baselines(const McmcSettings& search) {
  constexpr double share_of_budget = 0.125, without_budget_s = 2;
  if (search.budget_s > 0) return share_of_budget * search.budget_s;
  return search.proposals > 0 ? 0 : without_budget_s;
}

}  // namespace

std::optional<PlanBySettings> plan_by_settings(const GraphAndTopology& files, const CostOptions& costs,
                                               const AlgorithmSettings& settings, const DecidedSettings& decided,
                                               const std::atomic<bool>& stop,
                                               const std::function<void(const SettingsSearchProgress&)>& progress) {
  if (files.topology.devices.size() == 1 || transformer_layers(files.graph).count() < 2) return std::nullopt;
  // So many proposals are to have the same result wherever they are made: no time ends the search for settings.
  if (settings.search.proposals > 0 && takes_minutes(files.graph, files.topology)) return std::nullopt;
  SettingsSearchOptions options = search_options(files, settings, decided);
  options.progress = progress;
  const Judge judge(files, costs, settings);
  std::optional<PlanBySettings> best;
  Prediction predicted;
  for (const Parallelism& found : best_settings(files, costs, options, stop)) {
    PlanBySettings plan = plan_of_found(found, files, decided);
    if (plan.large) {
      if (!best) best = std::move(plan);
      break;
    }
    const std::optional<Prediction> now = judge.of(plan);
    if (now && (!best || better(*now, predicted))) best = std::move(plan), predicted = *now;
  }
  if (!best || best->large) return best;
  const Deadline deadline(seconds_for_baselines(settings.search));
  const std::optional<Prediction> baseline = best_baseline_of(files, costs, settings, {stop, nullptr, deadline});
  return baseline && better(*baseline, predicted) ? std::nullopt : std::move(best);
}

}  // namespace ff
