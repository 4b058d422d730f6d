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
    return propose_all({{op, configuration}});
  }
  Evaluation propose_all(const std::vector<Change>& changes) override {
    ++statistics_.proposals;
    previous_.clear();
    for (const Change& change : changes) {
      previous_.push_back({change.op, strategy_[change.op]});
      strategy_[change.op] = change.configuration;
    }
    return evaluator_.evaluate(strategy_);
  }
  void accept() override {}
  void reject() override {
    for (Change& change : previous_) strategy_[change.op] = std::move(change.configuration);
  }
  const Strategy& strategy() const override { return strategy_; }
  DeltaStatistics statistics() const override { return statistics_; }

 private:
  Evaluator evaluator_;
  Strategy strategy_;
  std::vector<Change> previous_;
  DeltaStatistics statistics_;
};

class DeltaOracle : public ChainOracle {
 public:
  DeltaOracle(const Graph& graph, const Topology& topology, KernelCosts& kernels)
      : topology_(topology), evaluator_(graph, topology, kernels), simulator_(new_simulator()),
        memory_(evaluator_.builder(), static_cast<int>(topology.devices.size())), no_bytes_(topology.devices.size(), 0) {}

  Evaluation start(const Strategy& strategy) override {
    strategy_ = strategy;
    simulator_->reset(strategy);
    memory_.reset(strategy);
    const Evaluation evaluation = evaluator_.evaluation(simulator_->makespan(), evaluator_.memory_limited() ? memory_.change(0, strategy) : no_bytes_);
    feasible_ = evaluation.feasible;
    return evaluation;
  }

  // Memory is looked at last where the current strategy fits (few proposals come so far), else first: it then says which makespan is too long.
  std::optional<Evaluation> propose(OperatorId op, const Configuration& configuration, double largest_cost) override {
    several_ = false;
    proposed_ = op;
    previous_ = strategy_[op];
    strategy_[op] = configuration;
    memory_changed_ = evaluator_.memory_limited() && !feasible_;
    const std::vector<int64_t>* bytes = memory_changed_ ? &memory_.change(op, strategy_) : &no_bytes_;
    const double largest_time = largest_cost / Evaluator::cost_factor(evaluator_.memory_excess(*bytes));
    constexpr double most = static_cast<double>(std::numeric_limits<Nanoseconds>::max() / 2);
    const Nanoseconds limit = largest_time < most ? static_cast<Nanoseconds>(largest_time) : std::numeric_limits<Nanoseconds>::max();
    const auto makespan = simulator_->propose(op, configuration, limit);
    if (!makespan) return std::nullopt;
    if (evaluator_.memory_limited() && feasible_) {
      memory_changed_ = true;
      bytes = &memory_.change(op, strategy_);
    }
    proposed_evaluation_ = evaluator_.evaluation(*makespan, *bytes);
    return proposed_evaluation_;
  }
  // A second simulator takes the changed strategy, so that nothing has to be undone when it is rejected.
  Evaluation propose_all(const std::vector<Change>& changes) override {
    several_ = true;
    ++proposals_of_several_;
    before_several_ = strategy_;
    for (const Change& change : changes) strategy_[change.op] = change.configuration;
    if (!other_simulator_) other_simulator_ = new_simulator();
    other_simulator_->reset(strategy_);
    const std::vector<int64_t> bytes = evaluator_.memory_limited() ? evaluator_.memory_bound(strategy_) : no_bytes_;
    proposed_evaluation_ = evaluator_.evaluation(other_simulator_->makespan(), bytes);
    return proposed_evaluation_;
  }
  void accept() override {
    feasible_ = proposed_evaluation_.feasible;
    if (!several_) {
      simulator_->accept();
      return;
    }
    std::swap(simulator_, other_simulator_);
    if (evaluator_.memory_limited()) memory_.reset(strategy_);
  }
  void reject() override {
    if (several_) {
      strategy_ = std::move(before_several_);
      return;
    }
    simulator_->reject();
    strategy_[proposed_] = previous_;
    if (memory_changed_) memory_.undo();
  }
  const Strategy& strategy() const override { return strategy_; }
  DeltaStatistics statistics() const override {
    DeltaStatistics sum = simulator_->statistics();
    sum.proposals += proposals_of_several_;
    if (!other_simulator_) return sum;
    const DeltaStatistics& other = other_simulator_->statistics();
    sum.proposals += other.proposals;
    sum.rejected_before_simulation += other.rejected_before_simulation;
    sum.rejected_during_simulation += other.rejected_during_simulation;
    sum.events += other.events;
    return sum;
  }

 private:
  std::unique_ptr<DeltaSimulator> new_simulator() {
    return std::make_unique<DeltaSimulator>(evaluator_.builder(), topology_, evaluator_.cost_model());
  }

  const Topology& topology_;
  Evaluator evaluator_;
  std::unique_ptr<DeltaSimulator> simulator_, other_simulator_;  // the other one for changes of several operators
  MemoryModel memory_;
  const std::vector<int64_t> no_bytes_;  // by device, where memory is not looked at
  Strategy strategy_;
  OperatorId proposed_ = -1;
  Configuration previous_;
  Evaluation proposed_evaluation_;
  bool several_ = false;         // the proposal
  Strategy before_several_;
  int64_t proposals_of_several_ = 0;
  bool feasible_ = true;         // the current strategy
  bool memory_changed_ = false;  // memory_ follows the proposal
};

}  // namespace

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Graph& graph, const Topology& topology, KernelCosts& kernels) {
  if (kind == SimulatorKind::full) return std::make_unique<FullOracle>(graph, topology, kernels);
  return std::make_unique<DeltaOracle>(graph, topology, kernels);
}

}  // namespace ff
