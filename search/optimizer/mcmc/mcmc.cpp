#include "search/optimizer/mcmc/mcmc.h"

#include <bit>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>

#include "common/hash.h"
#include "search/optimizer/mcmc/metropolis_hastings.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Gathers what the chains have done so far for the progress line.
class ProgressBoard {
 public:
  explicit ProgressBoard(const SearchControl& control) : control_(control) {}

  void add(int64_t proposals, int64_t accepted, Nanoseconds current, Nanoseconds best) {
    std::lock_guard lock(mutex_);
    total_.proposals += proposals;
    total_.accepted += accepted;
    total_.current = current;
    if (total_.best == 0 || best < total_.best) total_.best = best;
    total_.elapsed_s = seconds_since(begin_);
    if (control_.progress && total_.elapsed_s >= next_report_s_) {
      next_report_s_ = total_.elapsed_s + 0.2;
      control_.progress(total_);
    }
  }

 private:
  const Clock::time_point begin_ = Clock::now();
  const SearchControl& control_;
  std::mutex mutex_;
  SearchProgress total_;
  double next_report_s_ = 0;
};

struct ChainResult {
  Strategy best;
  Prediction best_prediction;
  double best_at_s = 0;  // since the chain began
  int64_t best_at_proposal = 0;
  int64_t proposals = 0, accepted = 0;
  uint64_t hash = hash_basis;
  DeltaStatistics statistics;
  double slowest_evaluation_s = 0;
};

// A share of the search's budget.
struct ChainBudget {
  int64_t proposals;  // 0: not limited
  double seconds;     // 0: not limited
};

// One Markov chain over strategies.
class Chain {
 public:
  Chain(const Problem& problem, const ProposalSource& source, const McmcSettings& settings, int number)
      : source_(source), beta_(settings.beta), slices_(settings.slices),
        random_(settings.seed, static_cast<uint64_t>(number)), oracle_(make_chain_oracle(settings.simulator, problem)) {
  }

  void run(const Strategy& initial, ChainBudget budget, const std::atomic<bool>& stop, ProgressBoard& board) {
    begin_ = Clock::now();
    current_ = oracle_->start(initial);
    result_.best = initial;
    result_.best_prediction = current_;
    record_accepted(current_.cost);
    report(board);
    while (!stop && !used_up(budget)) {
      step();
      if (result_.proposals % 16 == 0) report(board);
    }
    verify_unverified();
    report(board);
    result_.statistics = oracle_->statistics();
    result_.slowest_evaluation_s = oracle_->slowest_s();
  }
  const ChainResult& result() const { return result_; }

 private:
  // A proposal is drawn from the current strategy, its cost predicted, and it is accepted or rejected.
  void step() {
    constexpr double little_left = 0.9;
    const Vector<Change> proposal =
        source_.draw(oracle_->strategy(), random_, slices_ && current_.fullness > little_left);
    const double largest_cost = largest_accepted_cost(current_.cost, beta_, random_.uniform());
    const std::optional<Prediction> prediction = oracle_->propose(proposal, largest_cost);
    ++result_.proposals;
    if (prediction && prediction->cost <= largest_cost) accept(*prediction);
    else reject();
  }

  void accept(const Prediction& prediction) {
    oracle_->accept();
    current_ = prediction;
    ++result_.accepted;
    record_accepted(prediction.cost);
    if (!better(prediction, unverified_.empty() ? result_.best_prediction : unverified_prediction_)) return;
    result_.best_at_proposal = result_.proposals;
    result_.best_at_s = seconds_since(begin_);
    // Memory is estimated. What may not fit is looked at exactly, which takes as long as many proposals.
    constexpr double surely_fits = 0.7;
    constexpr int64_t verified_every = 64;  // proposals
    if (prediction.fullness < surely_fits) {
      keep(oracle_->strategy(), prediction);
    } else if (result_.proposals - verified_at_ >= verified_every) {
      verified_at_ = result_.proposals;
      current_ = oracle_->verify();
      if (better(current_, result_.best_prediction)) keep(oracle_->strategy(), current_);
    } else {
      unverified_ = oracle_->strategy();
      unverified_prediction_ = prediction;
    }
  }

  void keep(const Strategy& strategy, const Prediction& prediction) {
    result_.best = strategy;
    result_.best_prediction = prediction;
    unverified_.clear();
  }

  void verify_unverified() {
    if (unverified_.empty()) return;
    const Strategy strategy = std::move(unverified_);
    unverified_.clear();
    const Prediction exact = oracle_->start(strategy);
    if (better(exact, result_.best_prediction)) keep(strategy, exact);
  }

  void reject() {
    oracle_->reject();
    record_rejected();
  }

  // All of the budget, or half of it without a better strategy (paper, section 6.2).
  bool used_up(const ChainBudget& budget) const {
    const int64_t proposals = result_.proposals;
    if (budget.proposals > 0 &&
        (proposals >= budget.proposals || 2 * (proposals - result_.best_at_proposal) >= budget.proposals))
      return true;
    if (budget.seconds <= 0) return false;
    const double elapsed = seconds_since(begin_);
    return elapsed >= budget.seconds || 2 * (elapsed - result_.best_at_s) >= budget.seconds;
  }

  // The hash of all decisions. Only accepted costs enter, so that an oracle may reject without knowing the exact cost.
  void record_accepted(double cost) { result_.hash = hash_bytes(std::bit_cast<uint64_t>(cost), result_.hash); }
  void record_rejected() { result_.hash = hash_bytes(uint64_t{0}, result_.hash); }

  void report(ProgressBoard& board) {
    board.add(result_.proposals - reported_proposals_, result_.accepted - reported_accepted_, current_.makespan,
              result_.best_prediction.makespan);
    reported_proposals_ = result_.proposals;
    reported_accepted_ = result_.accepted;
  }

  const ProposalSource& source_;
  const double beta_;
  const bool slices_;
  RandomStream random_;
  std::unique_ptr<ChainOracle> oracle_;
  Prediction current_;  // of oracle_->strategy()
  ChainResult result_;
  Strategy unverified_;  // better than the best, if it fits as estimated; empty: none
  Prediction unverified_prediction_;
  int64_t verified_at_ = 0;  // proposals
  Clock::time_point begin_;
  int64_t reported_proposals_ = 0, reported_accepted_ = 0;
};

// Calls work(number) for 0 .. count - 1, on several threads; rethrows what any of them threw.
template <typename Work>
void for_each_on_threads(int count, int threads, const Work& work) {
  std::atomic<int> next{0};
  Vector<std::exception_ptr> failures(threads);
  const auto run = [&](int thread) {
    try {
      for (int number = next++; number < count; number = next++) work(number);
    } catch (...) {
      failures[thread] = std::current_exception();
      next = count;
    }
  };
  Vector<std::thread> helpers;
  for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(run, thread);
  run(0);
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// Those that no time was left to begin are null.
Vector<std::unique_ptr<Chain>> run_chains(const Problem& problem, const ProposalSource& source,
                                          const Vector<Candidate>& candidates, const McmcSettings& settings,
                                          const SearchControl& control) {
  const int threads = std::max(1, std::min(settings.threads, settings.chains));
  ProgressBoard board(control);
  const Clock::time_point begin = Clock::now();
  Vector<std::unique_ptr<Chain>> chains(settings.chains);
  for_each_on_threads(settings.chains, threads, [&](int number) {
    ChainBudget budget{0, settings.budget_s * threads / settings.chains};
    if (settings.budget_s > 0) {  // what earlier chains took beyond their shares is missing
      const double left = settings.budget_s - seconds_since(begin);
      const int rounds_left = (settings.chains - number + threads - 1) / threads;
      budget.seconds = std::min(budget.seconds, left / rounds_left);
      if (left <= settings.start_s) return;
    }
    if (settings.proposals > 0)  // the first chains take one more where the number does not divide
      budget.proposals =
          std::max<int64_t>(1, settings.proposals / settings.chains + (number < settings.proposals % settings.chains));
    chains[number] = std::make_unique<Chain>(problem, source, settings, number);
    chains[number]->run(candidates[number % candidates.count()].strategy, budget, control.stop, board);
  });
  return chains;
}

}  // namespace

McmcResult search_mcmc(const Problem& problem, const Vector<Candidate>& candidates, const McmcSettings& settings,
                       const SearchControl& control, const Vector<Candidate>& others) {
  const Clock::time_point begin = Clock::now();
  SearchSpace space(problem.graph, problem.topology, settings.whole_operators, problem.annotations);
  space.set_unequal_shares(settings.unequal_shares);
  const ProposalSource source(settings.proposals_from, problem.graph, problem.topology, space);
  const Vector<std::unique_ptr<Chain>> chains = run_chains(problem, source, candidates, settings, control);
  McmcResult result;
  const auto consider = [&](const Strategy& strategy, const Prediction& prediction, const std::string& from,
                            double found_s) {
    if (!result.best.empty() && !better(prediction, result.best_prediction)) return;
    result.best = strategy;
    result.best_prediction = prediction;
    result.best_from = from;
    result.best_found_s = found_s;
  };
  for (int number : chains.indices()) {
    if (!chains[number]) continue;
    ++result.chains_begun;
    const ChainResult& chain = chains[number]->result();
    consider(chain.best, chain.best_prediction, candidates[number % candidates.count()].name, chain.best_at_s);
    result.proposals += chain.proposals;
    result.accepted += chain.accepted;
    result.statistics += chain.statistics;
    result.slowest_evaluation_s = std::max(result.slowest_evaluation_s, chain.slowest_evaluation_s);
    result.chain_hash = hash_step(result.chain_hash, chain.hash);
  }
  Evaluator evaluator(problem);
  // Chains have looked at what they started from.
  Vector<Candidate> unseen = others;
  for (const int number : candidates.indices())
    if (number >= chains.count() || (!chains[number] && candidates[number].prediction))
      unseen.push_back(candidates[number]);
  if (result.chains_begun == 0 && unseen.empty()) unseen.push_back(candidates[0]);
  for (const Candidate& candidate : unseen)
    consider(candidate.strategy, candidate.prediction ? *candidate.prediction : evaluator.evaluate(candidate.strategy),
             candidate.name, 0);
  result.elapsed_s = seconds_since(begin);
  result.interrupted = control.stop;
  return result;
}

}  // namespace ff
