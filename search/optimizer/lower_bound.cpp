#include "search/optimizer/lower_bound.h"

#include <algorithm>
#include <limits>

namespace ff {

namespace {

constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();

// The least times of one operator, over all of its degrees and device models.
struct LeastTimes {
  Nanoseconds work = never;                       // forward and backward, of all parts
  Nanoseconds forward = never, backward = never;  // of the fastest part
};

LeastTimes least_times(OperatorId op, const Topology& topology, const SearchSpace& space, TaskCostModel& costs) {
  LeastTimes least;
  for (const Degrees& degrees : space.degrees(op)) {
    Vector<TaskCostModel::PartCosts> by_model;
    for (int model : topology.models.indices()) by_model.push_back(costs.part_costs(op, degrees, model));
    Nanoseconds work = 0;
    for (int part = 0; part < parts_of(degrees); ++part) {
      Nanoseconds forward = never, backward = never;
      for (const TaskCostModel::PartCosts& of_model : by_model) {
        forward = std::min(forward, of_model[part].all_forward());
        backward = std::min(backward, of_model[part].all_backward());
      }
      work += forward + backward;
      least.forward = std::min(least.forward, forward);
      least.backward = std::min(least.backward, backward);
    }
    least.work = std::min(least.work, work);
  }
  return least;
}

}  // namespace

Nanoseconds lower_bound(const Problem& problem, const SearchSpace& space, TaskCostModel& costs) {
  const Graph& graph = problem.graph;
  Nanoseconds total_work = 0;
  // Longest path that goes forward through the graph, turns at one operator, and comes back along the edges that carry
  // a gradient.
  Vector<Nanoseconds> one_way(graph.operators.size(), 0), round_trip(graph.operators.size(), 0);
  Nanoseconds longest = 0;
  for (OperatorId op : graph.operator_ids()) {
    const Operator& described = graph.operators[op];
    Nanoseconds before = 0, around = 0;
    for (int input : described.inputs.indices()) {
      const OperatorId producer = graph.tensors[described.inputs[input]].producer;
      if (producer < 0 || !described.definition->every_part_reads(input)) continue;
      before = std::max(before, one_way[producer]);
      const bool returns = graph.input_has_gradient(op, input);
      around = std::max(around, returns ? round_trip[producer] : one_way[producer]);
    }
    const LeastTimes least = least_times(op, problem.topology, space, costs);
    total_work += least.work;
    one_way[op] = before + least.forward;
    round_trip[op] = around + least.forward + (described.has_backward ? least.backward : 0);
    longest = std::max(longest, round_trip[op]);
  }
  return std::max(total_work / problem.topology.devices.count(), longest);
}

}  // namespace ff
