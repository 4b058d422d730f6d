// Markov Chain Monte Carlo search (paper, section 6): Metropolis-Hastings over strategies.
#pragma once

#include <optional>
#include <string>

#include "search/optimizer/mcmc/chain_oracle.h"
#include "search/optimizer/mcmc/proposals.h"
#include "search/optimizer/search_control.h"

namespace ff {

struct Candidate {
  std::string name;  // of an algorithm, or "random"
  Strategy strategy;
  std::optional<Prediction> prediction = {};  // where it is known already
};

struct McmcSettings {
  int64_t proposals = 0;  // over all chains; 0: not limited
  double budget_s = 0;    // wall time, from the first chain's start on; 0: not limited
  double start_s = 0;     // what the start of a chain is expected to take: one that has less time left does not begin
  uint64_t seed = 0;
  int chains = 2;                                  // chain c starts from candidate c modulo their number
  SimulatorKind simulator = SimulatorKind::delta;  // never changes the result of a search limited by proposals
  int threads = 1;                                 // never changes the result of a search limited by proposals
  // A proposal that is slower by the share x of the current time is accepted with probability exp(-beta x): see
  // metropolis_hastings.h. The default was chosen by docs/design-notes.md, "beta".
  double beta = 500;
  ProposalKind proposals_from = ProposalKind::mixed;  // what measured best: docs/algorithms.md
  bool whole_operators = false;                       // device placement alone: no operator is split
  bool unequal_shares = false;                        // propose them, where devices are not alike
  bool slices = false;  // more parts than devices where the current strategy leaves little memory
};

struct McmcResult {
  Strategy best;
  Prediction best_prediction;
  std::string best_from;    // the candidate that the best chain started from
  double best_found_s = 0;  // into that chain
  int64_t proposals = 0, accepted = 0;
  double elapsed_s = 0;
  int chains_begun = 0;
  double slowest_evaluation_s = 0;  // of the chains': a start, or memory found exactly
  uint64_t chain_hash = 0;          // over every decision and cost of every chain: equal searches have equal hashes
  bool interrupted = false;
  DeltaStatistics statistics;
};

// Runs the chains. Each stops at its share of the budget, its start included, or when half of that has passed without a
// better strategy.
// The result is never worse than any candidate that a chain started from or that is predicted already, nor than any of
// the `others`, from which no chain starts.
McmcResult search_mcmc(const Problem& problem, const Vector<Candidate>& candidates, const McmcSettings& settings,
                       const SearchControl& control, const Vector<Candidate>& others = {});

}  // namespace ff
