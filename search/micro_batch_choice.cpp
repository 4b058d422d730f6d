#include "search/micro_batch_choice.h"

#include <optional>

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

}  // namespace

int choose_micro_batches(const GraphAndTopology& files, const CostOptions& costs, const AlgorithmSettings& settings,
                         const std::atomic<bool>& stop) {
  constexpr int without_better = 2;
  // A quarter of the search's time, or two seconds where it has no limit.
  const Deadline deadline(settings.search.budget_s > 0 ? settings.search.budget_s / 4 : 2);
  const SearchControl control{stop, nullptr, deadline};
  int chosen = 1, worse = 0;
  std::optional<Prediction> best;
  for (int64_t count = 1; count <= files.graph.batch_size && worse < without_better; count *= 2) {
    if (best && control.ended()) break;
    GraphAndTopology own = files;
    own.settings.micro_batches = static_cast<int>(count);
    try {
      graph_of_micro_batch(files.graph, own.settings.micro_batches);
    } catch (const InputError&) {
      break;  // an odd number of samples, or of groups of tokens
    }
    Loaded with(load(std::move(own), costs));
    Evaluator evaluator(with.problem());
    const std::optional<Prediction> found = best_baseline(evaluator, settings, control);
    if (found && (!best || better(*found, *best))) best = found, chosen = static_cast<int>(count), worse = 0;
    else ++worse;
  }
  return chosen;
}

}  // namespace ff
