// What a Markov chain asks: the cost of its current strategy with some operators changed.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "common/vector.h"
#include "search/optimizer/evaluator.h"
#include "search/simulator/delta.h"

namespace ff {

// checked: delta, each of whose answers is compared with slower simulations (simulation_check.h)
enum class SimulatorKind { full, delta, checked };

// Follows one chain. Not thread-safe.
class ChainOracle {
 public:
  explicit ChainOracle(const Problem& problem) : evaluator_(problem) {}
  virtual ~ChainOracle() = default;

  // Where a chain stands. Memory is estimated, times a factor that start and verify make right for the strategy that
  // they see.
  struct State {
    Strategy strategy;
    double memory_scale = 1;
    bool feasible = true;  // by the estimate
  };

  // Its exact prediction: the one that is known, or found.
  Prediction start(const Strategy& strategy, const std::optional<Prediction>& known = {});
  State state() const { return {strategy_, memory_scale_, feasible_}; }
  void resume(const State& state);
  // The exact prediction of the current strategy.
  Prediction verify();
  // The prediction of the current strategy with these changes, each of another operator; nothing when its cost is
  // certain to exceed `largest_cost`, or when it has become `in_vain`. (With full simulation always a prediction.) To
  // be followed by accept or reject.
  virtual std::optional<Prediction> propose(const Vector<Change>& changes, double largest_cost,
                                            const std::atomic<bool>* in_vain = nullptr) = 0;
  virtual void accept() = 0;
  virtual void reject() = 0;
  // What another oracle, which follows the same chain, accepted: these changes, and then the factor that it has now.
  void follow(const Vector<Change>& changes, double memory_scale, bool feasible);
  virtual DeltaStatistics statistics() const = 0;              // of full simulation: proposals alone
  double slowest_s() const { return evaluator_.slowest_s(); }  // of the exact evaluations: start and verify
  const Strategy& strategy() const { return strategy_; }
  double memory_scale() const { return memory_scale_; }
  bool feasible() const { return feasible_; }

 protected:
  virtual void begin() = 0;                    // from strategy_
  void scale_memory(const Prediction& exact);  // so that the estimate for strategy_ is right
  void change(const Vector<Change>& changes);
  void undo();
  Evaluator evaluator_;
  Strategy strategy_;        // the current one, or between propose and reject the proposal
  double memory_scale_ = 1;  // what the estimate of memory is multiplied with
  bool feasible_ = true;     // the current strategy, by the estimate

 private:
  Vector<Change> replaced_;  // what the configurations were
};

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Problem& problem);

}  // namespace ff
