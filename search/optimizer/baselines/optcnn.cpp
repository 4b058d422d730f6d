#include "search/optimizer/baselines/optcnn.h"

namespace ff {

std::optional<OptcnnResult> optcnn(Evaluator& evaluator, const SearchSpace& space, double most_steps,
                                   const std::atomic<bool>* stop) {
  LayerwiseCosts layerwise(evaluator, space);
  if (layerwise.steps() > most_steps) return std::nullopt;
  const CostTables tables = layerwise.tables(stop);
  if (stop && *stop) return std::nullopt;
  const TableMinimum minimum = minimize(tables);
  return OptcnnResult{layerwise.strategy(minimum.choice), minimum.cost, layerwise.layers().count(),
                      minimum.not_eliminated, layerwise.groups_are_split()};
}

}  // namespace ff
