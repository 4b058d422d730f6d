// A search by chains that compete, and start again.
//
// A search goes through epochs, each twice as long as the one before. An epoch is a race: a chain starts from every
// candidate, all go equally far, the better half of them go on, and so until one is left. In later epochs one chain
// starts from the best strategy so far, the others again from the candidates with other random numbers: chains that
// start alike end up to ten per cent apart (docs/results/search-quality.md), so that several short ones and a long one
// find more than one alone.
//
// The search ends with its budget; or when half of it has passed without a better strategy (paper, section 6.2); or,
// `until_settled`, when half of the time that it took so far has.
#pragma once

#include <memory>

#include "search/optimizer/mcmc/chain.h"
#include "search/optimizer/mcmc/mcmc.h"
#include "search/optimizer/mcmc/oracle_pool.h"

namespace ff {

class Portfolio {
 public:
  // All must outlive the portfolio.
  Portfolio(const ProposalSource& source, const Vector<Candidate>& candidates, const McmcSettings& settings,
            const SearchControl& control, OraclePool& pool, McmcResult& result);

  // Fills in the result, which may know of a strategy already.
  void run();

 private:
  using Chains = Vector<std::unique_ptr<Chain>>;

  // Sizes and places are in proposals where these are limited, else in seconds.
  double now() const { return by_proposals_ ? static_cast<double>(result_.proposals) : board_.elapsed_s(); }
  double first_epoch() const;
  void run_epoch(double size);
  Chains new_chains(double size) const;
  void run_leg(const Vector<Chain*>& contenders, double size);
  void note(const Chain& chain, int64_t proposals_before, int64_t accepted_before);
  bool over();

  const ProposalSource& source_;
  const Vector<Candidate>& candidates_;
  const McmcSettings& settings_;
  const SearchControl& control_;
  OraclePool& pool_;
  McmcResult& result_;
  ProgressBoard board_;
  const bool by_proposals_;
  const double limit_;  // infinite: none
  int epoch_ = 0;
  double improved_at_ = 0;  // by a fraction worth waiting for
  double improved_cost_ = 0;
};

}  // namespace ff
