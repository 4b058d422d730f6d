// One Markov chain over strategies.
#pragma once

#include <limits>
#include <string>

#include "common/hash.h"
#include "search/optimizer/mcmc/candidate.h"
#include "search/optimizer/mcmc/oracle_team.h"
#include "search/optimizer/mcmc/progress_board.h"
#include "search/optimizer/mcmc/proposals.h"

namespace ff {

struct ChainSettings {
  double beta = 0;
  bool slices = false;
  uint64_t seed = 0;
  double look_ahead_from_s = 0;  // 0: always, for tests
};

// How far a chain goes before it rests.
struct Leg {
  static constexpr int64_t any_number = std::numeric_limits<int64_t>::max();
  int64_t proposals = any_number;
  double seconds = 0;                // 0: not limited
  bool half_without_better = false;  // ends when half of it passed without a better strategy (paper, section 6.2)
  double no_better_than = 0;         // ends at a strategy that costs no more
};

// Share `number` of `count` that together are `whole`: the first take one more where it does not divide.
inline int64_t equal_share(int64_t whole, int number, int count) { return whole / count + (number < whole % count); }

// Of what is left of a budget, the share of chain `number` of `count` that run on so many lanes: what earlier chains
// took beyond theirs is missing.
inline double share_of_rest(double left, int number, int count, int lanes) {
  const int rounds_left = (count - number + lanes - 1) / lanes;
  return left / rounds_left;
}

struct ChainResult {
  Strategy best;
  Prediction best_prediction;
  double best_at_s = 0;  // since the search began
  int64_t proposals = 0, accepted = 0;
  // Over every decision and every accepted cost, so that an oracle may reject without knowing the cost.
  uint64_t hash = hash_basis;
};

class Chain {
 public:
  // The source must outlive the chain. Chains of other numbers draw other proposals.
  Chain(const ProposalSource& source, const ChainSettings& settings, uint64_t number, Candidate start);

  // Goes on where the chain rested. The same for a team of any size, but where time limits the leg.
  void run(OracleTeam& team, const Leg& leg, const std::atomic<bool>& stop, ProgressBoard& board);

  const ChainResult& result() const { return result_; }
  const std::string& from() const { return start_.name; }

 private:
  void begin(OracleTeam& team, ProgressBoard& board);
  bool used_up(const Leg& leg) const;
  int64_t proposals_left(const Leg& leg) const;
  int undecided_at_once(const OracleTeam& team, const Leg& leg) const;
  void draw(OracleTeam& team, int undecided);
  void step(OracleTeam& team, int undecided, ProgressBoard& board);
  void accept(OracleTeam& team, const Prediction& prediction, ProgressBoard& board);
  void keep(const Strategy& strategy, const Prediction& prediction, ProgressBoard& board);
  void verify_unverified(OracleTeam& team, ProgressBoard& board);
  void report(ProgressBoard& board);

  const ProposalSource& source_;
  const ChainSettings settings_;
  const Candidate start_;
  RandomStream random_;       // after the last decision
  ChainOracle::State state_;  // where the chain rests
  Prediction current_;        // of its strategy
  ChainResult result_;
  Strategy unverified_;  // better than the best, if it fits as estimated; empty: none
  Prediction unverified_prediction_;
  int64_t verified_at_ = 0;  // proposals
  bool begun_ = false;
  // Of the current leg: when it began, and when it last found a better strategy.
  std::chrono::steady_clock::time_point leg_begin_;
  double leg_best_at_s_ = 0;
  int64_t leg_begin_proposals_ = 0, leg_best_at_proposal_ = 0;
  int64_t reported_proposals_ = 0, reported_accepted_ = 0;
  double accepted_share_ = 1;  // of late
  // What proposals of this leg took: one by one, and side by side.
  struct Pace {
    int64_t proposals = 0, timed = 0;
    double seconds = 0;
    void add(double took_s);
    bool known() const { return timed >= 64; }
    double each_s() const { return seconds / static_cast<double>(timed); }
  };
  Pace alone_, ahead_;
  RandomStream random_ahead_;               // after the last proposal that was drawn
  std::deque<RandomStream> random_behind_;  // of each that is undecided, and then of some that were discarded
};

}  // namespace ff
