// Markov Chain Monte Carlo search (paper, section 6): Metropolis-Hastings over strategies.
#pragma once

#include <optional>
#include <string>

#include "search/optimizer/mcmc/candidate.h"
#include "search/optimizer/mcmc/chain_oracle.h"
#include "search/optimizer/mcmc/progress_board.h"
#include "search/optimizer/mcmc/proposals.h"
#include "search/optimizer/search_control.h"

namespace ff {

struct McmcSettings {
  int64_t proposals = 0;       // over all chains; 0: not limited
  double budget_s = 0;         // wall time, from the first chain's start on; 0: not limited
  bool until_settled = false;  // ends long before the budget where nothing better is to be expected
  double start_s = 0;  // what the start of a chain is expected to take: one that has less time left does not begin
  double no_better_than = 0;  // a cost that no strategy is below: one that reaches it ends the search; 0: not known
  uint64_t seed = 0;
  int chains = 8;                                  // chain c starts from candidate c modulo their number
  SimulatorKind simulator = SimulatorKind::delta;  // never changes the result of a search limited by proposals
  // Threads beyond chains look at proposals of one chain side by side. They never change the result of a search limited
  // by proposals.
  int threads = 1;
  double look_ahead_from_s = 3e-6;  // where a proposal takes less, threads would wait for each other longer than that
  // A proposal that is slower by the fraction x of the current time is accepted with probability exp(-beta x): see
  // metropolis_hastings.h. None: what docs/design-notes.md, "beta", chose for the proposals.
  std::optional<double> beta = {};
  ProposalKind proposals_from = ProposalKind::structured;  // what measured best: docs/results/search-quality.md
  bool whole_operators = false;                            // device placement alone: no operator is split
  bool unequal_shares = false;                             // propose them, where devices are not alike
  bool slices = false;  // more parts than devices where the current strategy leaves little memory
};

// As many as there are processors (std::thread::hardware_concurrency), within what chains and memory have use for: a
// thread's simulation of some thousand devices takes a gigabyte.
int default_threads(int devices, int chains);

inline double beta_of(const McmcSettings& settings) {
  return settings.beta.value_or(settings.proposals_from == ProposalKind::structured ? 2000 : 500);
}

// Why a search ended.
enum class SearchEnd { proposals, budget, nothing_better, lower_bound, interrupted };

std::string end_text(SearchEnd end, const McmcSettings& settings);

struct McmcResult {
  Strategy best;
  Prediction best_prediction;
  std::string best_from;    // the candidate that the best chain started from
  double best_found_s = 0;  // since the search began
  int64_t proposals = 0, accepted = 0;
  double elapsed_s = 0;
  int chains_without_time = 0;      // to begin, of those that begin first
  double slowest_evaluation_s = 0;  // of the chains': a start, or memory found exactly
  uint64_t chain_hash = 0;          // over every decision and cost of every chain: equal searches have equal hashes
  bool interrupted = false;
  SearchEnd end = SearchEnd::budget;
  DeltaStatistics statistics;
  Vector<Improvement> improvements;  // of any chain's best strategy
};

// Runs chains. With the paper's proposals and the mixed ones these do not know of each other: each stops at its share
// of the budget, its start included, or when half of that has passed without a better strategy. With structured
// proposals they are a portfolio: portfolio.h.
// The result is never worse than any candidate that a chain started from or that is predicted already, nor than any of
// the `others`, from which no chain starts.
McmcResult search_mcmc(const Problem& problem, const Vector<Candidate>& candidates, const McmcSettings& settings,
                       const SearchControl& control, const Vector<Candidate>& others = {});

}  // namespace ff
