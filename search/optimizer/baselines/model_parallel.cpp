#include "search/optimizer/baselines/model_parallel.h"

#include <algorithm>
#include <limits>

namespace ff {

Vector<int> balanced_stages(const Vector<Vector<Nanoseconds>>& times_ns) {
  const int stages = times_ns.count(), items = times_ns[0].count();
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  // slowest[s][i]: of the first i items in the stages up to s; begin[s][i]: where stage s then begins.
  Vector<Vector<Nanoseconds>> slowest(stages, Vector<Nanoseconds>(items + 1, never));
  Vector<Vector<int>> begin(stages, Vector<int>(items + 1, 0));
  for (int stage = 0; stage < stages; ++stage) {
    for (int end = 0; end <= items; ++end) {
      Nanoseconds time = 0;  // of items first .. end in this stage
      for (int first = end; first >= 0; --first) {
        if (first < end) time += times_ns[stage][first];
        const Nanoseconds before = stage > 0 ? slowest[stage - 1][first] : first == 0 ? 0 : never;
        if (std::max(before, time) < slowest[stage][end]) {
          slowest[stage][end] = std::max(before, time);
          begin[stage][end] = first;
        }
        if (time >= slowest[stage][end]) break;  // longer stages are no better
      }
    }
  }
  Vector<int> stage_of(items);
  for (int stage = stages - 1, end = items; stage >= 0; --stage) {
    for (int item = begin[stage][end]; item < end; ++item) stage_of[item] = stage;
    end = begin[stage][end];
  }
  return stage_of;
}

Strategy model_parallel(const Problem& problem, TaskCostModel& costs) {
  const Graph& graph = problem.graph;
  const Topology& topology = problem.topology;
  Vector<Vector<Nanoseconds>> by_model(topology.models.size()), times;
  for (int model : topology.models.indices())
    for (OperatorId op : graph.operator_ids()) {
      const Degrees whole(graph.operators[op].definition->dimensions().size(), 1);
      const TaskCostModel::PartCost& cost = costs.part_cost(op, problem.expanded_degrees(op, whole), 0, model);
      by_model[model].push_back(cost.all_forward() + cost.all_backward());
    }
  const int stages = std::min(topology.devices.count(), graph.operators.count());
  const Vector<DeviceId> order = topology.by_links();
  for (int stage = 0; stage < stages; ++stage) times.push_back(by_model[topology.devices[order[stage]].model]);
  const Vector<int> stage_of = balanced_stages(times);
  Strategy strategy = single_device(graph);
  for (OperatorId op : graph.operator_ids()) strategy[op].devices[0] = order[stage_of[op]];
  return strategy;
}

}  // namespace ff
