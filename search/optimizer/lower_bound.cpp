#include "search/optimizer/lower_bound.h"

#include <algorithm>
#include <limits>

namespace ff {

Nanoseconds lower_bound(const Graph& graph, const Topology& topology, const SearchSpace& space, TaskCostModel& costs) {
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  Nanoseconds total_work = 0;
  Vector<Nanoseconds> forward(graph.operators.size(), never), backward(graph.operators.size(), never);
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
    Nanoseconds least_work = never;
    for (const Degrees& degrees : space.degrees(op)) {
      const int parts = parts_of(degrees);
      Nanoseconds work = 0, fastest_forward = never, fastest_backward = never;
      Vector<TaskCostModel::PartCosts> by_model;
      for (int model = 0; model < static_cast<int>(topology.models.size()); ++model)
        by_model.push_back(costs.part_costs(op, degrees, model));
      for (int part = 0; part < parts; ++part) {
        Nanoseconds part_forward = never, part_backward = never;
        for (const TaskCostModel::PartCosts& of_model : by_model) {
          const TaskCostModel::PartCost& cost = of_model[part];
          part_forward = std::min(part_forward, cost.all_forward());
          part_backward = std::min(part_backward, cost.all_backward());
        }
        work += part_forward + part_backward;
        fastest_forward = std::min(fastest_forward, part_forward);
        fastest_backward = std::min(fastest_backward, part_backward);
      }
      least_work = std::min(least_work, work);
      forward[op] = std::min(forward[op], fastest_forward);
      backward[op] = std::min(backward[op], fastest_backward);
    }
    total_work += least_work;
  }
  // Longest path that goes forward through the graph, turns at one operator, and comes back along the edges that carry
  // a gradient.
  Vector<Nanoseconds> one_way(graph.operators.size(), 0), round_trip(graph.operators.size(), 0);
  Nanoseconds longest = 0;
  for (size_t op = 0; op < graph.operators.size(); ++op) {
    Nanoseconds before = 0, around = 0;
    for (size_t input = 0; input < graph.operators[op].inputs.size(); ++input) {
      const OperatorId producer = graph.tensors[graph.operators[op].inputs[input]].producer;
      if (producer < 0 || !graph.operators[op].definition->every_part_reads(static_cast<int>(input))) continue;
      before = std::max(before, one_way[producer]);
      const bool returns = graph.operators[op].has_backward &&
                           graph.input_has_gradient(static_cast<OperatorId>(op), static_cast<int>(input));
      around = std::max(around, returns ? round_trip[producer] : one_way[producer]);
    }
    one_way[op] = before + forward[op];
    round_trip[op] = around + forward[op] + (graph.operators[op].has_backward ? backward[op] : 0);
    longest = std::max(longest, round_trip[op]);
  }
  return std::max(total_work / static_cast<Nanoseconds>(topology.devices.size()), longest);
}

}  // namespace ff
