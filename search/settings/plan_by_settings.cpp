#include "search/settings/plan_by_settings.h"

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

// Makes strategies of settings, and predicts them.
class Judge {
 public:
  Judge(const GraphAndTopology& files, const CostOptions& costs, const AlgorithmSettings& settings,
        const DecidedSettings& decided, const Deadline& deadline)
      : files_(files), costs_(costs), settings_(settings), decided_(decided), deadline_(deadline) {}

  struct Judged {
    PlanBySettings plan;
    Prediction prediction;  // in its best order of tasks, or the one that is asked for; none where the plan is large
  };

  // Nothing where that cannot be: a profile lacks kernels, or what is annotated does not fit the micro-batches.
  std::optional<Judged> of(const Parallelism& parallelism) const {
    try {
      return judged(parallelism);
    } catch (const InputError&) {
    } catch (const MachineError&) {  // this machine has no memory for it
    }
    return std::nullopt;
  }

 private:
  std::optional<Judged> judged(Parallelism parallelism) const {
    ParallelPlan found = plan_of(parallelism, files_.graph, files_.topology);
    GraphAndTopology own = files_;
    own.settings.micro_batches = found.settings.micro_batches;
    own.settings.overlaps_reductions = found.settings.overlaps_reductions;
    if (!decided_.recompute) own.settings.recompute = found.settings.recompute;
    if (!decided_.sharding) own.settings.synchronization = found.settings.synchronization;
    Judged result{{std::move(parallelism), {}, own.settings}, {}};
    Loaded loaded = load(std::move(own), costs_);
    const Problem problem = loaded.problem();
    result.plan.strategy = problem.keeping_annotations(std::move(found.strategy));
    result.plan.large = parts_of_iteration(result.plan.strategy, problem.settings.micro_batches) > most_parts_of_chains;
    if (result.plan.large) return may_alternate(settings_) ? std::optional(std::move(result)) : std::nullopt;
    Evaluator evaluator(problem);
    const Evaluator::Details details =
        evaluator.details(result.plan.strategy, settings_.task_order.value_or(TaskOrder::best), deadline_);
    result.prediction = evaluator.prediction(details);
    return result;
  }

  const GraphAndTopology& files_;
  const CostOptions& costs_;
  const AlgorithmSettings& settings_;
  const DecidedSettings& decided_;
  const Deadline& deadline_;
};

// The fastest that fit; where none does, those that need the least memory.
Vector<Parallelism> best_settings(const GraphAndTopology& files, const CostOptions& costs,
                                  const SettingsSearchOptions& options, const std::atomic<bool>& stop) {
  const Precision precision = costs.precision.value_or(files.settings.precision);
  CostOptions own = costs;
  own.precision = precision;
  try {
    const GraphAndTopology typed = with_precision(files, precision);
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
double seconds_for_all(const McmcSettings& search) {
  constexpr double share_of_budget = 0.5, without_budget_s = 90;
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
  CostOptions own = costs;
  if (own.mode != CostMode::profile) own.mode = CostMode::analytic;  // nothing is measured for what is not taken
  const Deadline deadline(seconds_for_all(settings.search));
  const SearchControl control{stop, nullptr, deadline};
  const Judge judge(files, own, settings, decided, deadline);
  std::optional<Judge::Judged> best;
  for (const Parallelism& found : best_settings(files, own, options, stop)) {
    if (best && (best->plan.large || control.ended())) break;
    std::optional<Judge::Judged> now = judge.of(found);
    if (now && (!best || (!now->plan.large && better(now->prediction, best->prediction)))) best = std::move(now);
  }
  if (!best) return std::nullopt;
  if (best->plan.large || control.ended()) return std::move(best->plan);
  const std::optional<Prediction> baseline = best_baseline_of(files, own, settings, control);
  if (baseline && better(*baseline, best->prediction)) return std::nullopt;
  return std::move(best->plan);
}

}  // namespace ff
