#include "search/optimizer/mcmc/chain_oracle.h"

#include <limits>

namespace ff {
namespace {

// Builds and simulates every proposal in full, as the paper's full simulation algorithm: the judge.
class FullOracle : public ChainOracle {
 public:
  FullOracle(const Graph& graph, const Topology& topology, KernelCosts& kernels)
      : evaluator_(graph, topology, kernels) {}

  Evaluation start(const Strategy& strategy) override {
    strategy_ = strategy;
    return evaluator_.evaluate(strategy_);
  }
  std::optional<Evaluation> propose(const Vector<Change>& changes, double) override {
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
  Vector<Change> previous_;
  DeltaStatistics statistics_;
};

class DeltaOracle : public ChainOracle {
 public:
  DeltaOracle(const Graph& graph, const Topology& topology, KernelCosts& kernels)
      : evaluator_(graph, topology, kernels), simulator_(evaluator_.builder(), topology, evaluator_.cost_model()),
        memory_(evaluator_.builder(), static_cast<int>(topology.devices.size())),
        no_bytes_(topology.devices.size(), 0) {}

  Evaluation start(const Strategy& strategy) override {
    strategy_ = strategy;
    simulator_.reset(strategy);
    memory_.reset(strategy);
    const Evaluation evaluation = evaluator_.evaluation(
        simulator_.makespan(), evaluator_.memory_limited() ? memory_.change(0, strategy) : no_bytes_);
    feasible_ = evaluation.feasible;
    return evaluation;
  }

  // Memory is looked at last where the current strategy fits (few proposals come so far), else first: it then says
  // which makespan is too long.
  std::optional<Evaluation> propose(const Vector<Change>& changes, double largest_cost) override {
    previous_.clear();
    for (const Change& change : changes) {
      previous_.push_back({change.op, strategy_[change.op]});
      strategy_[change.op] = change.configuration;
    }
    memory_follows_ = false;
    Vector<int64_t> bytes = evaluator_.memory_limited() && !feasible_ ? bytes_of_proposal() : no_bytes_;
    const double largest_time = largest_cost / Evaluator::cost_factor(evaluator_.memory_excess(bytes));
    constexpr double most = static_cast<double>(std::numeric_limits<Nanoseconds>::max() / 2);
    const Nanoseconds limit =
        largest_time < most ? static_cast<Nanoseconds>(largest_time) : std::numeric_limits<Nanoseconds>::max();
    const auto makespan = simulator_.propose(changes, limit);
    if (!makespan) return std::nullopt;
    if (evaluator_.memory_limited() && feasible_) bytes = bytes_of_proposal();
    proposed_evaluation_ = evaluator_.evaluation(*makespan, bytes);
    return proposed_evaluation_;
  }
  void accept() override {
    feasible_ = proposed_evaluation_.feasible;
    simulator_.accept();
    if (evaluator_.memory_limited() && previous_.size() > 1) memory_.reset(strategy_);
  }
  void reject() override {
    simulator_.reject();
    for (Change& change : previous_) strategy_[change.op] = std::move(change.configuration);
    if (memory_follows_) memory_.undo();
  }
  const Strategy& strategy() const override { return strategy_; }
  DeltaStatistics statistics() const override { return simulator_.statistics(); }

 private:
  // By device. The memory of several changes is found anew.
  Vector<int64_t> bytes_of_proposal() {
    if (previous_.size() > 1) return evaluator_.memory_bound(strategy_);
    memory_follows_ = true;
    return memory_.change(previous_[0].op, strategy_);
  }

  Evaluator evaluator_;
  DeltaSimulator simulator_;
  MemoryModel memory_;
  const Vector<int64_t> no_bytes_;  // by device, where memory is not looked at
  Strategy strategy_;
  Vector<Change> previous_;  // what the proposal replaced
  Evaluation proposed_evaluation_;
  bool feasible_ = true;         // the current strategy
  bool memory_follows_ = false;  // memory_ is the proposal's
};

}  // namespace

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Graph& graph, const Topology& topology,
                                               KernelCosts& kernels) {
  if (kind == SimulatorKind::full) return std::make_unique<FullOracle>(graph, topology, kernels);
  return std::make_unique<DeltaOracle>(graph, topology, kernels);
}

}  // namespace ff
