#include "search/optimizer/baselines/optcnn.h"

namespace ff {

std::optional<OptcnnResult> optcnn(Evaluator& evaluator, const SearchSpace& space, double most_steps,
                                   const SearchControl* control) {
  LayerwiseCosts layerwise(evaluator, space, control);
  if (control && control->ended()) return std::nullopt;
  if (layerwise.steps() > most_steps) return std::nullopt;
  const CostTables tables = layerwise.tables(control);
  if (control && control->ended()) return std::nullopt;
  const TableMinimum minimum = minimize(tables);
  return OptcnnResult{layerwise.strategy(minimum.choice), minimum.cost, layerwise.layers().count(),
                      minimum.not_eliminated, layerwise.groups_are_split()};
}

}  // namespace ff
