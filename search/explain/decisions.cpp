#include "search/explain/decisions.h"

#include <algorithm>
#include <limits>
#include <map>

#include "common/number_ranges.h"
#include "common/strategy_configurations.h"
#include "search/explain/critical_path.h"
#include "search/simulator/delta.h"

namespace ff {

Vector<Decision> differences(const Graph& graph, const Strategy& from, const Strategy& to) {
  Vector<Decision> decisions;
  std::map<std::string, Vector<int>> by_shape;  // of decisions, by the name without numbers
  for (const OperatorId op : graph.operator_ids()) {
    if (from[op] == to[op]) continue;
    Vector<int>& alike = by_shape[without_numbers(graph.operators[op].name)];
    const auto found = std::find_if(alike.begin(), alike.end(), [&](int known) {
      const Decision& decision = decisions[known];
      return decision.from == from[op] && decision.to == to[op] &&
             graph.operators[decision.operators[0]].definition->type() == graph.operators[op].definition->type();
    });
    if (found != alike.end()) {
      decisions[*found].operators.push_back(op);
      continue;
    }
    alike.push_back(decisions.count());
    decisions.push_back({"", {op}, from[op], to[op]});
  }
  for (Decision& decision : decisions) {
    Vector<std::string> names;
    for (const OperatorId op : decision.operators) names.push_back(graph.operators[op].name);
    decision.name = joined_names(std::move(names));
  }
  return decisions;
}

Strategy with_decision(Strategy strategy, const Decision& decision) {
  for (const OperatorId op : decision.operators) strategy[op] = decision.to;
  return strategy;
}

Vector<Effect> effects(Evaluator& evaluator, const Strategy& from, const Strategy& to, bool either_way) {
  const Problem& problem = evaluator.problem();
  DeltaSimulator delta(evaluator.builder(), problem.topology, evaluator.cost_model());
  delta.reset(evaluator.expanded(from));
  Vector<Effect> effects;
  for (Decision& decision : differences(problem.graph, from, to)) {
    Vector<Change> changes;
    for (const OperatorId op : decision.operators) changes.push_back({op, decision.to});
    Effect effect;
    effect.predicted = *delta.propose(evaluator.expanded(changes), std::numeric_limits<Nanoseconds>::max());
    delta.reject();
    effect.change = effect.predicted - delta.makespan();
    if (evaluator.memory_limited())
      effect.fullness = evaluator.fullness(evaluator.estimated_memory(with_decision(from, decision)));
    effect.decision = std::move(decision);
    effects.push_back(std::move(effect));
  }
  std::stable_sort(effects.begin(), effects.end(), [&](const Effect& a, const Effect& b) {
    return either_way ? std::abs(a.change) > std::abs(b.change) : a.change > b.change;
  });
  return effects;
}

std::string configuration_text(const Graph& graph, OperatorId op, const Configuration& configuration) {
  const Vector<int64_t> devices(configuration.devices.begin(), configuration.devices.end());
  return degrees_text(graph.operators[op], configuration.degrees) +
         (devices.size() == 1 ? " on device " : " on devices ") + number_ranges(devices);
}

}  // namespace ff
