#include "search/optimizer/mcmc/chain_oracle.h"

#include <limits>

namespace ff {
namespace {

// The current strategy with a proposal's changes made, which can be taken back.
class ChangedStrategy {
 public:
  void reset(const Strategy& strategy) { strategy_ = strategy; }
  void change(const Vector<Change>& changes) {
    replaced_.clear();
    for (const Change& change : changes) {
      replaced_.push_back({change.op, strategy_[change.op]});
      strategy_[change.op] = change.configuration;
    }
  }
  void undo() {
    for (Change& change : replaced_) strategy_[change.op] = std::move(change.configuration);
  }
  const Strategy& strategy() const { return strategy_; }

 private:
  Strategy strategy_;
  Vector<Change> replaced_;  // what the configurations were
};

// Builds and simulates every proposal in full, as the paper's full simulation algorithm: the judge.
class FullOracle : public ChainOracle {
 public:
  explicit FullOracle(const Problem& problem) : evaluator_(problem) {}

  Prediction start(const Strategy& strategy) override {
    changed_.reset(strategy);
    return evaluator_.evaluate(strategy);
  }
  std::optional<Prediction> propose(const Vector<Change>& changes, double) override {
    ++statistics_.proposals;
    changed_.change(changes);
    return evaluator_.evaluate(strategy());
  }
  void accept() override {}
  void reject() override { changed_.undo(); }
  const Strategy& strategy() const override { return changed_.strategy(); }
  DeltaStatistics statistics() const override { return statistics_; }

 private:
  Evaluator evaluator_;
  ChangedStrategy changed_;
  DeltaStatistics statistics_;
};

class DeltaOracle : public ChainOracle {
 public:
  explicit DeltaOracle(const Problem& problem)
      : evaluator_(problem), simulator_(evaluator_.builder(), problem.topology, evaluator_.cost_model()),
        memory_(evaluator_.builder(), problem.topology.devices.count()), no_bytes_(problem.topology.devices.size(), 0) {
  }

  Prediction start(const Strategy& strategy) override {
    changed_.reset(strategy);
    simulator_.reset(strategy);
    memory_.reset(strategy);
    const Prediction prediction = evaluator_.prediction(
        simulator_.makespan(), evaluator_.memory_limited() ? memory_.change(0, strategy) : no_bytes_);
    feasible_ = prediction.feasible;
    return prediction;
  }

  // Memory is looked at last where the current strategy fits (few proposals come so far), else first: it then says
  // which makespan is too long.
  std::optional<Prediction> propose(const Vector<Change>& changes, double largest_cost) override {
    changed_.change(changes);
    memory_follows_ = false;
    several_ = changes.size() > 1;
    Vector<int64_t> bytes = evaluator_.memory_limited() && !feasible_ ? bytes_with(changes) : no_bytes_;
    const double largest_time = largest_cost / Evaluator::cost_factor(evaluator_.memory_excess(bytes));
    constexpr double most = static_cast<double>(std::numeric_limits<Nanoseconds>::max() / 2);
    const Nanoseconds limit =
        largest_time < most ? static_cast<Nanoseconds>(largest_time) : std::numeric_limits<Nanoseconds>::max();
    const std::optional<Nanoseconds> makespan = simulator_.propose(changes, limit);
    if (!makespan) return std::nullopt;
    if (evaluator_.memory_limited() && feasible_) bytes = bytes_with(changes);
    const Prediction prediction = evaluator_.prediction(*makespan, bytes);
    proposal_is_feasible_ = prediction.feasible;
    return prediction;
  }
  void accept() override {
    feasible_ = proposal_is_feasible_;
    simulator_.accept();
    if (evaluator_.memory_limited() && several_) memory_.reset(strategy());
  }
  void reject() override {
    simulator_.reject();
    changed_.undo();
    if (memory_follows_) memory_.undo();
  }
  const Strategy& strategy() const override { return changed_.strategy(); }
  DeltaStatistics statistics() const override { return simulator_.statistics(); }

 private:
  // By device. The memory of several changes is found anew.
  Vector<int64_t> bytes_with(const Vector<Change>& changes) {
    if (changes.size() > 1) return evaluator_.memory_bound(strategy());
    memory_follows_ = true;
    return memory_.change(changes[0].op, strategy());
  }

  Evaluator evaluator_;
  DeltaSimulator simulator_;
  MemoryModel memory_;
  const Vector<int64_t> no_bytes_;  // by device, where memory is not looked at
  ChangedStrategy changed_;
  bool feasible_ = true;              // the current strategy
  bool proposal_is_feasible_ = true;  // the last that was simulated to its end
  bool several_ = false;              // operators changed by the proposal
  bool memory_follows_ = false;       // memory_ is the proposal's
};

}  // namespace

std::unique_ptr<ChainOracle> make_chain_oracle(SimulatorKind kind, const Problem& problem) {
  if (kind == SimulatorKind::full) return std::make_unique<FullOracle>(problem);
  return std::make_unique<DeltaOracle>(problem);
}

}  // namespace ff
