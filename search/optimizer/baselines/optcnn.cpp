#include "search/optimizer/baselines/optcnn.h"

#include <algorithm>

namespace ff {

namespace {

// Part p on device p.
std::optional<OptcnnResult> on_numbered_devices(Evaluator& evaluator, const SearchSpace& space, double most_steps,
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

}  // namespace

std::optional<OptcnnResult> optcnn(Evaluator& evaluator, const SearchSpace& space, double most_steps,
                                   const SearchControl* control) {
  const Problem& problem = evaluator.problem();
  const Vector<DeviceId> order = problem.topology.by_links();
  // Annotations name devices by their numbers.
  if (problem.annotations || std::is_sorted(order.begin(), order.end()))
    return on_numbered_devices(evaluator, space, most_steps, control);
  const Topology ordered = problem.topology.with_devices(order);
  Evaluator own(problem.with(problem.graph, ordered));
  std::optional<OptcnnResult> found = on_numbered_devices(own, space, most_steps, control);
  if (found)
    for (Configuration& configuration : found->strategy)
      for (DeviceId& device : configuration.devices) device = order[device];
  return found;
}

}  // namespace ff
