#include "search/explain/decisions.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

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

namespace {

// In FIFO order: by delta simulation where it knows the settings, else in full.
class Changes {
 public:
  Changes(Evaluator& evaluator, const Strategy& from) : evaluator_(evaluator), from_(from) {
    if (!delta_simulates(evaluator.problem().settings)) {
      makespan_ = evaluator.simulated(from).makespan_fifo;
      return;
    }
    delta_.emplace(evaluator.builder(), evaluator.problem().topology, evaluator.cost_model());
    delta_->reset(evaluator.expanded(from));
    makespan_ = delta_->makespan();
  }

  Nanoseconds makespan() const { return makespan_; }

  Nanoseconds with(const Decision& decision) {
    if (!delta_) return evaluator_.simulated(with_decision(from_, decision)).makespan_fifo;
    Vector<Change> changes;
    for (const OperatorId op : decision.operators) changes.push_back({op, decision.to});
    const Nanoseconds result = *delta_->propose(evaluator_.expanded(changes), std::numeric_limits<Nanoseconds>::max());
    delta_->reject();
    return result;
  }

 private:
  Evaluator& evaluator_;
  const Strategy& from_;
  std::optional<DeltaSimulator> delta_;
  Nanoseconds makespan_ = 0;
};

}  // namespace

Vector<Effect> effects(Evaluator& evaluator, const Strategy& from, const Strategy& to, bool either_way) {
  Changes changes(evaluator, from);
  Vector<Effect> effects;
  for (Decision& decision : differences(evaluator.problem().graph, from, to)) {
    Effect effect;
    effect.predicted = changes.with(decision);
    effect.change = effect.predicted - changes.makespan();
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
