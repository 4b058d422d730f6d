#include "search/optimizer/mcmc/mcmc.h"

#include <bit>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>

#include "common/hash.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// Gathers what the chains have done so far for the progress line.
class ProgressBoard {
 public:
  ProgressBoard(Clock::time_point begin, const std::function<void(const McmcProgress&)>& report)
      : begin_(begin), report_(report) {}

  void add(int64_t proposals, int64_t accepted, Nanoseconds current, Nanoseconds best) {
    std::lock_guard lock(mutex_);
    total_.proposals += proposals;
    total_.accepted += accepted;
    total_.current = current;
    if (total_.best == 0 || best < total_.best) total_.best = best;
    total_.elapsed_s = seconds_since(begin_);
    if (report_ && total_.elapsed_s >= next_report_s_) {
      next_report_s_ = total_.elapsed_s + 0.2;
      report_(total_);
    }
  }

 private:
  Clock::time_point begin_;
  const std::function<void(const McmcProgress&)>& report_;
  std::mutex mutex_;
  McmcProgress total_;
  double next_report_s_ = 0;
};

struct ChainLimits {
  int64_t proposals;  // 0: not limited
  double budget_s;    // 0: not limited
};

class Chain {
 public:
  Chain(const Graph& graph, const Topology& topology, KernelCosts& kernels, const ProposalSource& source,
        const McmcSettings& settings, int number)
      : source_(source), settings_(settings), random_(settings.seed, static_cast<uint64_t>(number)),
        oracle_(make_chain_oracle(settings.simulator, graph, topology, kernels)) {}

  void run(const Strategy& initial, ChainLimits limits, const std::atomic<bool>& stop, ProgressBoard& board) {
    current_evaluation_ = oracle_->start(initial);
    best = initial;
    best_evaluation = current_evaluation_;
    record(current_evaluation_.cost, true);
    const Clock::time_point begin = Clock::now();
    int64_t best_at = 0, reported = 0, reported_accepted = 0;
    const auto report = [&] {
      board.add(proposals - reported, accepted - reported_accepted, current_evaluation_.makespan,
                best_evaluation.makespan);
      reported = proposals;
      reported_accepted = accepted;
    };
    report();
    while (!stop) {
      if (limits.proposals > 0 && (proposals >= limits.proposals || 2 * (proposals - best_at) >= limits.proposals))
        break;
      if (limits.budget_s > 0 && proposals % 8 == 0) {
        const double elapsed = seconds_since(begin);
        if (elapsed >= limits.budget_s || 2 * (elapsed - best_at_s) >= limits.budget_s) break;
      }
      if (propose()) {
        best_at = proposals;
        best_at_s = seconds_since(begin);
      }
      if (proposals % 16 == 0) report();
    }
    report();
  }

  Strategy best;
  Evaluation best_evaluation;
  double best_at_s = 0;  // since the chain began
  int64_t proposals = 0, accepted = 0;
  uint64_t hash = hash_basis;

  // One step; true when it found a better strategy than ever before.
  bool propose() {
    source_.draw(oracle_->strategy(), random_, changes_);
    // Accepting with probability exp(-beta (cost' - cost) / cost) is accepting whatever costs at most this, for a
    // uniform number in [0, 1).
    const double uniform = random_.uniform();
    const double largest_cost = settings_.beta > 0
                                    ? std::floor(current_evaluation_.cost * (1 - std::log(uniform) / settings_.beta))
                                    : std::numeric_limits<double>::infinity();
    const std::optional<Evaluation> evaluation = oracle_->propose(changes_, largest_cost);
    const bool accept = evaluation && evaluation->cost <= largest_cost;
    ++proposals;
    record(accept ? evaluation->cost : 0, accept);
    if (!accept) {
      oracle_->reject();
      return false;
    }
    oracle_->accept();
    ++accepted;
    current_evaluation_ = *evaluation;
    if (evaluation->cost >= best_evaluation.cost) return false;
    best = oracle_->strategy();
    best_evaluation = *evaluation;
    return true;
  }

  DeltaStatistics statistics() const { return oracle_->statistics(); }

 private:
  // Only accepted costs enter, so that an algorithm may reject without knowing the exact cost.
  void record(double cost, bool accept) { hash = hash_bytes(accept ? std::bit_cast<uint64_t>(cost) : 0, hash); }

  const ProposalSource& source_;
  const McmcSettings& settings_;
  Vector<Change> changes_;
  RandomStream random_;
  std::unique_ptr<ChainOracle> oracle_;
  Evaluation current_evaluation_;
};

}  // namespace

McmcResult search_mcmc(const Graph& graph, const Topology& topology, KernelCosts& kernels,
                       const Vector<Candidate>& candidates, const McmcSettings& settings, const std::atomic<bool>& stop,
                       const std::function<void(const McmcProgress&)>& progress, const Vector<Candidate>& others) {
  const Clock::time_point begin = Clock::now();
  const SearchSpace space(graph, topology, settings.whole_operators);
  const ProposalSource source(settings.proposals_from, graph, topology, space);
  const int threads = std::max(1, std::min(settings.threads, settings.chains));
  ProgressBoard board(begin, progress);
  Vector<std::unique_ptr<Chain>> chains(settings.chains);
  std::atomic<int> next{0};
  Vector<std::exception_ptr> failures(threads);
  const auto work = [&](int thread) {
    try {
      for (int number = next++; number < settings.chains; number = next++) {
        ChainLimits limits{0, settings.budget_s * threads / settings.chains};
        if (settings.proposals > 0)  // the first chains take one more where the number does not divide
          limits.proposals = std::max<int64_t>(
              1, settings.proposals / settings.chains + (number < settings.proposals % settings.chains));
        auto chain = std::make_unique<Chain>(graph, topology, kernels, source, settings, number);
        chain->run(candidates[static_cast<size_t>(number) % candidates.size()].strategy, limits, stop, board);
        chains[number] = std::move(chain);
      }
    } catch (...) {
      failures[thread] = std::current_exception();
      next = settings.chains;
    }
  };
  Vector<std::thread> helpers;
  for (int thread = 1; thread < threads; ++thread) helpers.emplace_back(work, thread);
  work(0);
  for (std::thread& helper : helpers) helper.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);

  McmcResult result;
  Evaluator evaluator(graph, topology, kernels);
  const auto consider = [&](const Strategy& strategy, const Evaluation& evaluation, const std::string& from,
                            double found_s) {
    if (!result.best.empty() && evaluation.cost >= result.best_evaluation.cost) return;
    result.best = strategy;
    result.best_evaluation = evaluation;
    result.best_from = from;
    result.best_found_s = found_s;
  };
  for (size_t c = 0; c < chains.size(); ++c) {
    const Chain& chain = *chains[c];
    consider(chain.best, chain.best_evaluation, candidates[c % candidates.size()].name, chain.best_at_s);
    result.proposals += chain.proposals;
    result.accepted += chain.accepted;
    result.statistics += chain.statistics();
    result.chain_hash = hash_step(result.chain_hash, chain.hash);
  }
  for (const auto* list : {&candidates, &others})
    for (const Candidate& candidate : *list)
      consider(candidate.strategy, evaluator.evaluate(candidate.strategy), candidate.name, 0);
  result.elapsed_s = seconds_since(begin);
  result.interrupted = stop;
  return result;
}

}  // namespace ff
