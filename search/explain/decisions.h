// The decisions of a strategy, and what each of them alone changes.
#pragma once

#include <string>

#include "search/optimizer/evaluator.h"

namespace ff {

// Operators that are alike (whose names differ in numbers alone) and have the same configuration in each of two
// strategies: one decision, however many layers repeat it.
struct Decision {
  std::string name;  // joined_names of the operators
  Vector<OperatorId> operators;
  Configuration from, to;
};
// Where the strategies differ, in graph order.
Vector<Decision> differences(const Graph& graph, const Strategy& from, const Strategy& to);

// What becomes of `from` when one decision is taken the other way.
struct Effect {
  Decision decision;
  Nanoseconds predicted = 0;  // the iteration then, in FIFO order: that of the full simulation
  Nanoseconds change = 0;     // predicted, less that of `from`
  double fullness = 0;        // then, of the fullest device's memory, estimated; 0 where no memory is limited
  bool fits() const { return fullness <= 1; }
};
// By |change| if `either_way`, else by change; the greatest first.
Vector<Effect> effects(Evaluator& evaluator, const Strategy& from, const Strategy& to, bool either_way);

Strategy with_decision(Strategy strategy, const Decision& decision);

// "sample 4 x channel 2 on devices 0-7"
std::string configuration_text(const Graph& graph, OperatorId op, const Configuration& configuration);

}  // namespace ff
