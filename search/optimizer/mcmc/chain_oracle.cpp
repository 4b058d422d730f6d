#include "search/optimizer/mcmc/chain_oracle.h"

#include <limits>

#include "search/optimizer/mcmc/simulation_check.h"

namespace ff {
namespace {

// Builds and simulates every proposal in full, as the paper's full simulation algorithm: the judge.
class FullOracle : public ChainOracle {
 public:
  using ChainOracle::ChainOracle;

  std::optional<Prediction> propose(const Vector<Change>& changes, double, const std::atomic<bool>*) override {
    ++statistics_.proposals;
    change(changes);
    return evaluator_.estimate(strategy_, memory_scale_);
  }
  void accept() override {}
  void reject() override { undo(); }
  DeltaStatistics statistics() const override { return statistics_; }

 private:
  void begin() override {}
  DeltaStatistics statistics_;
};

class DeltaOracle : public ChainOracle {
 public:
  DeltaOracle(const Problem& problem, bool checked)
      : ChainOracle(problem), simulator_(evaluator_.builder(), problem.topology, evaluator_.cost_model()),
        memory_(evaluator_.builder(), problem.topology.devices.count(), problem.state_buffers,
                gpus_of(problem.topology), problem.kernels.conventions()) {
    if (checked) check_.emplace(problem, evaluator_.builder(), evaluator_.cost_model());
  }

  // Memory is looked at last where the current strategy fits (few proposals come so far), else first: it then says
  // which makespan is too long.
  std::optional<Prediction> propose(const Vector<Change>& changes, double largest_cost,
                                    const std::atomic<bool>* in_vain) override {
    change(changes);
    const Vector<Change>& all = has_micro_batches() ? (all_changes_ = evaluator_.expanded(changes)) : changes;
    memory_follows_ = false;
    double fullness = evaluator_.memory_limited() && !feasible_ ? fullness_with(all) : 0;
    const double largest_time = largest_cost / Evaluator::cost_factor(fullness);
    constexpr double most = static_cast<double>(std::numeric_limits<Nanoseconds>::max() / 2);
    const Nanoseconds limit =
        largest_time < most ? static_cast<Nanoseconds>(largest_time) : std::numeric_limits<Nanoseconds>::max();
    const std::optional<Nanoseconds> makespan = simulator_.propose(all, limit, in_vain);
    if (check_ && (makespan || !in_vain || !*in_vain)) check_->proposal(simulator_, all, limit, makespan);
    if (!makespan) return std::nullopt;
    if (evaluator_.memory_limited() && feasible_) fullness = fullness_with(all);
    const Prediction prediction = Evaluator::prediction(*makespan, fullness);
    proposal_is_feasible_ = prediction.feasible();
    return prediction;
  }
  void accept() override {
    feasible_ = proposal_is_feasible_;
    simulator_.accept();
    if (check_) check_->accepted(simulator_);
  }
  void reject() override {
    simulator_.reject();
    undo();
    if (memory_follows_) memory_.undo();
  }
  DeltaStatistics statistics() const override {
    DeltaStatistics statistics = simulator_.statistics();
    if (check_) statistics.checks = check_->statistics();
    return statistics;
  }

 private:
  void begin() override {
    const Strategy all = evaluator_.expanded(strategy_);
    simulator_.reset(all);
    if (check_) check_->start(simulator_);
    memory_.reset(all);
  }
  bool has_micro_batches() const { return evaluator_.problem().settings.micro_batches > 1; }
  // `changes` are of all micro-batches.
  double fullness_with(const Vector<Change>& changes) {
    memory_follows_ = true;
    return memory_scale_ * evaluator_.fullness(memory_.change(
                               changes, has_micro_batches() ? evaluator_.expanded(strategy_) : strategy_));
  }

  DeltaSimulator simulator_;
  std::optional<SimulationCheck> check_;
  MemoryModel memory_;
  Vector<Change> all_changes_;        // the proposal's, of all micro-batches
  bool proposal_is_feasible_ = true;  // the last that was simulated to its end
  bool memory_follows_ = false;       // memory_ is the proposal's
};

}  // namespace

Prediction ChainOracle::start(const Strategy& strategy, const std::optional<Prediction>& known) {
  strategy_ = strategy;
  begin();
  if (!known) return verify();
  scale_memory(*known);
  return *known;
}

void ChainOracle::resume(const State& state) {
  strategy_ = state.strategy;
  memory_scale_ = state.memory_scale;
  feasible_ = state.feasible;
  begin();
}

void ChainOracle::follow(const Vector<Change>& changes, double memory_scale, bool feasible) {
  if (!changes.empty()) {
    propose(changes, std::numeric_limits<double>::infinity());
    accept();
  }
  memory_scale_ = memory_scale;
  feasible_ = feasible;
}

Prediction ChainOracle::verify() {
  const Prediction exact = evaluator_.evaluate(strategy_);
  scale_memory(exact);
  return exact;
}

void ChainOracle::scale_memory(const Prediction& exact) {
  if (evaluator_.memory_limited())
    memory_scale_ = exact.fullness / evaluator_.fullness(evaluator_.estimated_memory(strategy_));
  feasible_ = exact.feasible();
}

void ChainOracle::change(const Vector<Change>& changes) {
  replaced_.clear();
  for (const Change& change : changes) {
    replaced_.push_back({change.op, strategy_[change.op]});
    strategy_[change.op] = change.configuration;
  }
}

void ChainOracle::undo() {
  for (Change& change : replaced_) strategy_[change.op] = std::move(change.configuration);
}

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Problem& problem) {
  const bool known = delta_simulates(problem.settings) && problem.order == TaskOrder::fifo;
  if (kind == SimulatorKind::full || !known) return std::make_unique<FullOracle>(problem);
  return std::make_unique<DeltaOracle>(problem, kind == SimulatorKind::checked);
}

}  // namespace ff
