#include "search/optimizer/baselines/model_parallel.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace ff {
namespace {

// [stage]: the most first items that this stage and those before it take in at most `limit` each.
Vector<int> reached_within(Nanoseconds limit, const Vector<Vector<Nanoseconds>>& times_ns, const Vector<int>& kind) {
  const int items = times_ns[kind[0]].count();
  Vector<int> reached;
  int end = 0;
  for (const int own : kind) {
    for (Nanoseconds time = 0; end < items && (time += times_ns[own][end]) <= limit;) ++end;
    reached.push_back(end);
  }
  return reached;
}

// The same without a table of stages and items, in time linear in both: the slowest stage takes as little time. Each
// stage from the last on is as short as that time allows; the others are not balanced among themselves.
Vector<int> stages_within_least_limit(const Vector<Vector<Nanoseconds>>& times_ns, const Vector<int>& kind) {
  const int items = times_ns[kind[0]].count();
  Nanoseconds low = 0, high = 1;  // low: too short, or 0
  while (reached_within(high, times_ns, kind).back() < items) low = std::exchange(high, 2 * high);
  while (high - low > 1) {
    const Nanoseconds middle = low + (high - low) / 2;
    (reached_within(middle, times_ns, kind).back() < items ? low : high) = middle;
  }
  const Vector<int> reached = reached_within(high, times_ns, kind);
  Vector<int> stage_of(items);
  for (int stage = kind.count() - 1, end = items; stage >= 0; --stage) {
    const int begin = stage > 0 ? std::min(end, reached[stage - 1]) : 0;
    std::fill(stage_of.begin() + begin, stage_of.begin() + end, stage);
    end = begin;
  }
  return stage_of;
}

}  // namespace

Vector<int> balanced_stages(const Vector<Vector<Nanoseconds>>& times_ns, const Vector<int>& kind,
                            int64_t largest_table) {
  const int stages = kind.count(), items = times_ns[kind[0]].count();
  if (int64_t{stages} * items > largest_table) return stages_within_least_limit(times_ns, kind);
  constexpr Nanoseconds never = std::numeric_limits<Nanoseconds>::max();
  // slowest[s][i]: of the first i items in the stages up to s; begin[s][i]: where stage s then begins.
  Vector<Vector<Nanoseconds>> slowest(stages, Vector<Nanoseconds>(items + 1, never));
  Vector<Vector<int>> begin(stages, Vector<int>(items + 1, 0));
  for (int stage = 0; stage < stages; ++stage) {
    for (int end = 0; end <= items; ++end) {
      Nanoseconds time = 0;  // of items first .. end in this stage
      for (int first = end; first >= 0; --first) {
        if (first < end) time += times_ns[kind[stage]][first];
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
  Vector<Vector<Nanoseconds>> times(topology.models.size());
  for (int model : topology.models.indices())
    for (OperatorId op : graph.operator_ids()) {
      const Degrees whole(graph.operators[op].definition->dimensions().size(), 1);
      const TaskCostModel::PartCost& cost = costs.part_cost(op, problem.expanded_degrees(op, whole), 0, model);
      times[model].push_back(cost.all_forward() + cost.all_backward());
    }
  const int stages = std::min(topology.devices.count(), graph.operators.count());
  const Vector<DeviceId> order = topology.by_links();
  Vector<int> model_of_stage;
  for (int stage = 0; stage < stages; ++stage) model_of_stage.push_back(topology.devices[order[stage]].model);
  const Vector<int> stage_of = balanced_stages(times, model_of_stage);
  Strategy strategy = single_device(graph);
  for (OperatorId op : graph.operator_ids()) strategy[op].devices[0] = order[stage_of[op]];
  return strategy;
}

}  // namespace ff
