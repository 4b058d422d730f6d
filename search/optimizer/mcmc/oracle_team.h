// Several oracles that follow one chain and look at its proposals side by side.
#pragma once

#include <atomic>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>

#include "search/optimizer/mcmc/chain_oracle.h"

namespace ff {

// Proposals of one chain that are drawn as if those before were rejected do not depend on each other. They queue up
// here, each oracle predicts the next that nobody has begun, and the chain decides on them one by one, in the order in
// which they were drawn. All that were drawn after the first acceptable one are discarded.
// Oracles make up for accepted proposals that they did not predict when they begin their next one, so that a chain
// which draws no more than one at a time pays nothing for them.
//
// All but the helpers' own functions are for the thread that made the team; its oracle is the first, the lead.
class OracleTeam {
 public:
  // The oracles must outlive the team. Each but the first gets a thread.
  explicit OracleTeam(const Vector<ChainOracle*>& oracles);
  ~OracleTeam();
  OracleTeam(const OracleTeam&) = delete;
  OracleTeam& operator=(const OracleTeam&) = delete;

  int size() const { return members_.count(); }
  // So many undecided proposals that nobody waits while one takes several times as long as the others.
  int most_ahead() const { return size() == 1 ? 1 : 8 * size(); }

  // These forget all undecided proposals.
  Prediction start(const Strategy& strategy, const std::optional<Prediction>& known = {});
  void resume(const ChainOracle::State& state);
  void forget();

  const ChainOracle::State& state() const { return state_; }
  const Strategy& strategy() const { return state_.strategy; }  // the chain's current one
  Prediction verify();                                          // of the current strategy, exactly

  // Are there fewer undecided proposals than that, and none that is known to be acceptable?
  bool wants_more_than(int undecided) const;
  // A proposal after the undecided ones; forgotten if one of these is known to be acceptable by now.
  void add(Vector<Change> changes, double largest_cost);
  // The prediction of the first undecided proposal if it is acceptable: costs no more than its largest cost. To be
  // followed by accept_first or reject_first. Rethrows what its oracle threw.
  std::optional<Prediction> predict_first();
  void accept_first();  // no others are left
  void reject_first();

 private:
  struct Proposal {
    Vector<Change> changes;
    double largest_cost = 0;
    int member = -1;  // who has begun it; -1: nobody
    bool done = false;
    std::optional<Prediction> prediction = {};
    std::exception_ptr failure = {};
    std::atomic<bool> in_vain{false};  // forgotten, but begun
    bool acceptable() const { return prediction && prediction->cost <= largest_cost; }
  };
  struct Member {
    ChainOracle* oracle;
    bool elsewhere = true;           // follows another chain, or none
    bool accepted = false;           // what it predicted last
    Vector<OperatorId> missed = {};  // those whose configurations may not be the chain's
    bool asked = false;              // its last proposal is neither accepted nor rejected: known to its thread alone
  };
  // What a member does before it predicts, so that its oracle is at the chain's current strategy.
  struct CatchUp {
    bool accept = false, resume = false;
    ChainOracle::State state = {};  // without a strategy unless to resume
    Vector<Change> missed = {};
  };

  void leave_for_another_chain();
  static void leave(Member& member);
  static void catch_up(Member& member, CatchUp what);
  bool predict_next(int number);
  void help(int number);
  void tell();
  // With the mutex locked:
  bool knows_next() const;                         // the last undecided one is acceptable
  CatchUp what_to_catch_up(Member& member) const;  // the member counts as there
  Proposal* begin_next(int number);
  void forget_behind(size_t count);

  mutable std::mutex mutex_;  // of all below but the threads, and of the members but for their oracles
  Vector<Member> members_;
  ChainOracle::State state_;
  std::deque<Proposal*> undecided_;
  Vector<std::unique_ptr<Proposal>> proposals_;  // all there are
  Vector<Proposal*> spare_;                      // that may be used again
  bool over_ = false;
  std::atomic<int> news_{0};  // counts what threads wait for
  Vector<std::thread> helpers_;
};

}  // namespace ff
