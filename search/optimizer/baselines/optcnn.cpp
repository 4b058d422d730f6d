#include "search/optimizer/baselines/optcnn.h"

namespace ff {

std::optional<OptcnnResult> optcnn(const Graph& graph, const Topology& topology, const SearchSpace& space,
                                   TaskGraphBuilder& builder, TaskCostModel& costs, double most_steps,
                                   const std::atomic<bool>* stop) {
  LayerwiseCosts layerwise(graph, topology, space, builder, costs);
  if (layerwise.steps() > most_steps) return std::nullopt;
  const CostTables tables = layerwise.tables(stop);
  if (stop && *stop) return std::nullopt;
  const TableMinimum minimum = minimize(tables);
  return OptcnnResult{layerwise.strategy(minimum.choice), minimum.cost, static_cast<int>(layerwise.layers().size()),
                      minimum.not_eliminated, layerwise.groups_are_split()};
}

}  // namespace ff
