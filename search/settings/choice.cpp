#include "search/settings/choice.h"

#include "common/recomputation.h"

namespace ff {
namespace {

// The best baseline's prediction; nothing where no baseline applies.
std::optional<Prediction> best_baseline(Evaluator& evaluator, const AlgorithmSettings& settings,
                                        const SearchControl& control) {
  const Problem& problem = evaluator.problem();
  const SearchSpace space(problem.graph, problem.topology, false, problem.annotations);
  std::optional<Prediction> best;
  for (const Algorithm& algorithm : algorithms()) {
    if (!algorithm.baseline || algorithm.name == "sub-cluster" || (best && control.ended())) continue;
    try {
      const AlgorithmResult result = algorithm.run({.evaluator = evaluator,
                                                    .space = space,
                                                    .settings = {.search = settings.search},
                                                    .control = control,
                                                    .thorough = false});
      const Evaluator::Details details = evaluator.details(result.strategy, TaskOrder::best);
      const Prediction prediction = evaluator.prediction(details);
      if (!best || better(prediction, *best)) best = prediction;
    } catch (const NotApplicable&) {}
  }
  return best;
}

// Tries settings, and keeps those that are best.
class SettingsTrial {
 public:
  SettingsTrial(const GraphAndTopology& files, const CostOptions& costs, const AlgorithmSettings& settings,
                SettingsChoice choice, const SearchControl& control)
      : files_(files), costs_(costs), settings_(settings), choice_(choice), control_(control), chosen_(files.settings) {
    if (choice.recompute) full_ = full_recomputation(files.graph);
  }

  const StrategySettings& chosen() const { return chosen_; }
  bool ended() const { return best_ && control_.ended(); }
  bool fits() const { return best_ && best_->feasible(); }

  // With so many micro-batches: has it become better?
  bool try_micro_batches(int count) {
    better_ = false;
    StrategySettings tried = files_.settings;
    tried.micro_batches = count;
    if (choice_.recompute) tried.recompute.clear();
    if (keep(tried, predict(tried)) || (!choice_.sharding && full_.empty())) return better_;
    // What needs least memory first: where it does not fit, nothing else does.
    StrategySettings least = tried;
    if (choice_.sharding) least.synchronization = Synchronization::sharded_parameters;
    if (!full_.empty()) least.recompute = full_;
    const std::optional<Prediction> of_least = predict(least);
    const bool fits = of_least && of_least->feasible();
    for (const bool recomputed : {false, true}) {
      if (!fits || !choice_.sharding || (recomputed && full_.empty())) break;
      for (const Synchronization stage : {Synchronization::sharded_optimizer, Synchronization::sharded_gradients,
                                          Synchronization::sharded_parameters}) {
        tried.synchronization = stage;
        tried.recompute = recomputed ? full_ : tried.recompute;
        if (tried == least || control_.ended()) break;
        if (keep(tried, predict(tried))) return better_;
      }
    }
    keep(least, of_least);
    return better_;
  }

 private:
  std::optional<Prediction> predict(const StrategySettings& tried) const {
    GraphAndTopology own = files_;
    own.settings = tried;
    return best_baseline_of(own, costs_, settings_, control_);
  }

  // Does a baseline fit into memory?
  bool keep(const StrategySettings& tried, const std::optional<Prediction>& found) {
    if (found && (!best_ || better(*found, *best_))) best_ = found, chosen_ = tried, better_ = true;
    return found && found->feasible();
  }

  const GraphAndTopology& files_;
  const CostOptions& costs_;
  const AlgorithmSettings& settings_;
  const SettingsChoice choice_;
  const SearchControl& control_;
  Vector<std::string> full_;  // empty: recomputation is not to be chosen
  StrategySettings chosen_;
  std::optional<Prediction> best_;
  bool better_ = false;
};

bool divides_into(const Graph& graph, int micro_batches) {
  try {
    graph_of_micro_batch(graph, micro_batches);
    return true;
  } catch (const InputError&) {  // an odd number of samples, or of groups of tokens
    return false;
  }
}

}  // namespace

std::optional<Prediction> best_baseline_of(const GraphAndTopology& files, const CostOptions& costs,
                                           const AlgorithmSettings& settings, const SearchControl& control) {
  Loaded loaded(load(files, costs));
  Evaluator evaluator(loaded.problem());
  return best_baseline(evaluator, settings, control);
}

StrategySettings choose_settings(const GraphAndTopology& files, const CostOptions& costs,
                                 const AlgorithmSettings& settings, SettingsChoice choice,
                                 const std::atomic<bool>& stop) {
  constexpr int without_better = 2;
  // A quarter of the search's time, or two seconds where it has no limit; until something fits, twice that.
  const double seconds = settings.search.budget_s > 0 ? settings.search.budget_s / 4 : 2;
  const Deadline deadline(seconds), late(2 * seconds);
  const SearchControl control{stop, nullptr, deadline}, patient{stop, nullptr, late};
  SettingsTrial trial(files, costs, settings, choice, control);
  int worse = 0;
  for (int64_t count = choice.micro_batches ? 1 : files.settings.micro_batches;
       count <= files.graph.batch_size && worse < without_better; count *= 2) {
    if (trial.ended() && (trial.fits() || patient.ended())) break;
    if (!divides_into(files.graph, static_cast<int>(count))) break;
    worse = trial.try_micro_batches(static_cast<int>(count)) ? 0 : worse + 1;
    if (!choice.micro_batches) break;
  }
  return trial.chosen();
}

}  // namespace ff
