// What a Markov chain asks: the cost of its current strategy with one operator changed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search/optimizer/evaluator.h"
#include "search/simulator/delta.h"

namespace ff {

enum class SimulatorKind { full, delta };

// One operator gets another configuration.
struct Change {
  OperatorId op;
  Configuration configuration;
};

// Follows one chain. Not thread-safe.
class ChainOracle {
 public:
  virtual ~ChainOracle() = default;

  virtual Evaluation start(const Strategy& strategy) = 0;
  // The evaluation of the current strategy with `configuration` for `op`; nothing when its cost is certain to exceed `largest_cost`. (With
  // full simulation always an evaluation.) To be followed by accept or reject.
  virtual std::optional<Evaluation> propose(OperatorId op, const Configuration& configuration, double largest_cost) = 0;
  // The same for several operators at once, simulated as a whole by either simulator.
  virtual Evaluation propose_all(const std::vector<Change>& changes) = 0;
  virtual void accept() = 0;
  virtual void reject() = 0;
  virtual const Strategy& strategy() const = 0;
  virtual DeltaStatistics statistics() const = 0;  // of full simulation: proposals alone
};

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Graph& graph, const Topology& topology, KernelCosts& kernels);

}  // namespace ff
