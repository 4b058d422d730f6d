#include "search/optimizer/baselines/model_parallel.h"

#include <algorithm>
#include <limits>

namespace ff {

Vector<int> balanced_stages(const Vector<Vector<Nanoseconds>>& times_ns) {
  const size_t stages = times_ns.size(), items = times_ns[0].size();
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  // slowest[s][i]: of the first i items in the stages up to s; begin[s][i]: where stage s then begins.
  Vector<Vector<Nanoseconds>> slowest(stages, Vector<Nanoseconds>(items + 1, never));
  Vector<Vector<size_t>> begin(stages, Vector<size_t>(items + 1, 0));
  for (size_t stage = 0; stage < stages; ++stage) {
    for (size_t end = 0; end <= items; ++end) {
      Nanoseconds time = 0;  // of items first .. end in this stage
      for (size_t first = end + 1; first-- > 0;) {
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
  size_t end = items;
  for (size_t stage = stages; stage-- > 0;) {
    for (size_t item = begin[stage][end]; item < end; ++item) stage_of[item] = static_cast<int>(stage);
    end = begin[stage][end];
  }
  return stage_of;
}

Strategy model_parallel(const Graph& graph, const Topology& topology, TaskCostModel& costs) {
  Vector<Vector<Nanoseconds>> by_model(topology.models.size()), times;
  for (size_t model = 0; model < by_model.size(); ++model)
    for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
      const Vector<int> whole(graph.operators[op].definition->dimensions().size(), 1);
      const TaskCostModel::PartCost& cost = costs.part_cost(op, whole, 0, static_cast<int>(model));
      by_model[model].push_back(cost.all_forward() + cost.all_backward());
    }
  const size_t stages = std::min(topology.devices.size(), graph.operators.size());
  for (size_t device = 0; device < stages; ++device) times.push_back(by_model[topology.devices[device].model]);
  const Vector<int> stage_of = balanced_stages(times);
  Strategy strategy = single_device(graph);
  for (size_t op = 0; op < strategy.size(); ++op) strategy[op].devices[0] = stage_of[op];
  return strategy;
}

}  // namespace ff
