#include "search/optimizer/chain_oracle.h"

#include <limits>

namespace ff {
namespace {

// Builds and simulates every proposal in full, as the paper's full simulation algorithm: the judge.
class FullOracle : public ChainOracle {
 public:
  FullOracle(const Graph& graph, const Topology& topology, KernelCosts& kernels) : evaluator_(graph, topology, kernels) {}

  Evaluation start(const Strategy& strategy) override {
    strategy_ = strategy;
    return evaluator_.evaluate(strategy_);
  }
  std::optional<Evaluation> propose(OperatorId op, const Configuration& configuration, double) override {
    ++statistics_.proposals;
    proposed_ = op;
    previous_ = strategy_[op];
    strategy_[op] = configuration;
    return evaluator_.evaluate(strategy_);
  }
  void accept() override {}
  void reject() override { strategy_[proposed_] = previous_; }
  const Strategy& strategy() const override { return strategy_; }
  DeltaStatistics statistics() const override { return statistics_; }

 private:
  Evaluator evaluator_;
  Strategy strategy_;
  OperatorId proposed_ = -1;
  Configuration previous_;
  DeltaStatistics statistics_;
};

class DeltaOracle : public ChainOracle {
 public:
  DeltaOracle(const Graph& graph, const Topology& topology, KernelCosts& kernels)
      : evaluator_(graph, topology, kernels), simulator_(graph, topology, evaluator_.cost_model()) {}

  Evaluation start(const Strategy& strategy) override {
    simulator_.reset(strategy);
    return evaluator_.evaluate_known(strategy, simulator_.makespan());
  }
  // A cost is at least its makespan, so a makespan above the largest cost settles it.
  std::optional<Evaluation> propose(OperatorId op, const Configuration& configuration, double largest_cost) override {
    constexpr double most = static_cast<double>(std::numeric_limits<Nanoseconds>::max() / 2);
    const Nanoseconds limit = largest_cost < most ? static_cast<Nanoseconds>(largest_cost) : std::numeric_limits<Nanoseconds>::max();
    const auto makespan = simulator_.propose(op, configuration, limit);
    if (!makespan) return std::nullopt;
    return evaluator_.evaluate_known(simulator_.strategy(), *makespan);
  }
  void accept() override { simulator_.accept(); }
  void reject() override { simulator_.reject(); }
  const Strategy& strategy() const override { return simulator_.strategy(); }
  DeltaStatistics statistics() const override { return simulator_.statistics(); }

 private:
  Evaluator evaluator_;
  DeltaSimulator simulator_;
};

}  // namespace

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Graph& graph, const Topology& topology, KernelCosts& kernels) {
  if (kind == SimulatorKind::full) return std::make_unique<FullOracle>(graph, topology, kernels);
  return std::make_unique<DeltaOracle>(graph, topology, kernels);
}

}  // namespace ff
