// What a Markov chain asks: the cost of its current strategy with some operators changed.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "common/vector.h"
#include "search/optimizer/evaluator.h"
#include "search/simulator/delta.h"

namespace ff {

enum class SimulatorKind { full, delta };

// Follows one chain. Not thread-safe.
class ChainOracle {
 public:
  virtual ~ChainOracle() = default;

  virtual Prediction start(const Strategy& strategy) = 0;
  // The prediction of the current strategy with these changes, each of another operator; nothing when its cost is
  // certain to exceed `largest_cost`. (With full simulation always a prediction.) To be followed by accept or reject.
  virtual std::optional<Prediction> propose(const Vector<Change>& changes, double largest_cost) = 0;
  virtual void accept() = 0;
  virtual void reject() = 0;
  virtual const Strategy& strategy() const = 0;
  virtual DeltaStatistics statistics() const = 0;  // of full simulation: proposals alone
};

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Problem& problem);

}  // namespace ff
