#include "search/settings_choice.h"

#include <optional>

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
      const Prediction prediction =
          Evaluator::prediction(details.timeline.makespan, evaluator.fullness(details.memory_bytes));
      if (!best || better(prediction, *best)) best = prediction;
    } catch (const NotApplicable&) {}
  }
  return best;
}

// The same for these settings.
std::optional<Prediction> best_baseline_with(const GraphAndTopology& files, const StrategySettings& strategy,
                                             const CostOptions& costs, const AlgorithmSettings& settings,
                                             const SearchControl& control) {
  GraphAndTopology own = files;
  own.settings = strategy;
  Loaded loaded(load(std::move(own), costs));
  Evaluator evaluator(loaded.problem());
  return best_baseline(evaluator, settings, control);
}

}  // namespace

StrategySettings choose_settings(const GraphAndTopology& files, const CostOptions& costs,
                                 const AlgorithmSettings& settings, SettingsChoice choice,
                                 const std::atomic<bool>& stop) {
  constexpr int without_better = 2;
  // A quarter of the search's time, or two seconds where it has no limit.
  const Deadline deadline(settings.search.budget_s > 0 ? settings.search.budget_s / 4 : 2);
  const SearchControl control{stop, nullptr, deadline};
  StrategySettings chosen = files.settings, tried = files.settings;
  const Vector<std::string> full = choice.recompute ? full_recomputation(files.graph) : Vector<std::string>();
  int worse = 0;
  std::optional<Prediction> best;
  const auto attempt = [&] {
    const std::optional<Prediction> found = best_baseline_with(files, tried, costs, settings, control);
    const bool is_better = found && (!best || better(*found, *best));
    if (is_better) best = found, chosen = tried;
    return std::pair(is_better, found && found->feasible());
  };
  for (int64_t count = choice.micro_batches ? 1 : files.settings.micro_batches;
       count <= files.graph.batch_size && worse < without_better; count *= 2) {
    if (best && control.ended()) break;
    tried.micro_batches = static_cast<int>(count);
    try {
      graph_of_micro_batch(files.graph, tried.micro_batches);
    } catch (const InputError&) {
      break;  // an odd number of samples, or of groups of tokens
    }
    if (choice.recompute) tried.recompute.clear();
    if (choice.sharding) tried.synchronization = files.settings.synchronization;
    bool is_better = false, fits = false;
    const auto attempt_and_note = [&] {
      const auto [better_than_known, into_memory] = attempt();
      is_better = is_better || better_than_known;
      fits = into_memory;
    };
    attempt_and_note();
    if (choice.sharding)
      for (const Synchronization stage : {Synchronization::sharded_optimizer, Synchronization::sharded_gradients,
                                          Synchronization::sharded_parameters}) {
        if (fits) break;
        tried.synchronization = stage;
        attempt_and_note();
      }
    if (choice.recompute && !fits && !full.empty()) {
      tried.recompute = full;
      attempt_and_note();
    }
    worse = is_better ? 0 : worse + 1;
    if (!choice.micro_batches) break;
  }
  return chosen;
}

}  // namespace ff
