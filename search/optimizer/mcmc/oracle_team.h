// Several oracles that follow one chain and look at its proposals side by side.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

#include "search/optimizer/mcmc/chain_oracle.h"

namespace ff {

// Proposals of one chain that are drawn as if those before were rejected do not depend on each other: each oracle
// predicts one. The first of them that is accepted is the chain's next step; what was drawn behind it was in vain.
// Oracles make up for an accepted proposal that they did not predict when they are asked next, so that a chain which
// does not use them pays nothing for them.
class OracleTeam {
 public:
  // The oracles must outlive the team. Each but the first gets a thread.
  explicit OracleTeam(const Vector<ChainOracle*>& oracles);
  ~OracleTeam();
  OracleTeam(const OracleTeam&) = delete;
  OracleTeam& operator=(const OracleTeam&) = delete;

  int size() const { return members_.count(); }
  Prediction start(const Strategy& strategy, const std::optional<Prediction>& known = {});
  void resume(const ChainOracle::Place& place);
  ChainOracle::Place place() const { return lead().place(); }
  const Strategy& strategy() const { return lead().strategy(); }
  Prediction verify() { return lead().verify(); }  // of the current strategy, exactly

  struct Proposal {
    Vector<Change> changes;
    double largest_cost = 0;
    std::optional<Prediction> prediction = {};  // found by propose
    bool accepted() const { return prediction && prediction->cost <= largest_cost; }
  };
  // Predicts the first `count` proposals. To be followed by settle.
  void propose(Vector<Proposal>& proposals, int count);
  // The proposal of this number is accepted; -1: none is.
  void settle(const Vector<Proposal>& proposals, int accepted);

 private:
  struct Member {
    ChainOracle* oracle;
    bool asked = false;              // has a proposal that is neither accepted nor rejected
    bool elsewhere = true;           // follows another chain, or none
    Vector<OperatorId> missed = {};  // those whose configurations may not be the lead's
    Vector<Change> to_follow = {};   // in this round
    std::exception_ptr failure = {};
  };

  ChainOracle& lead() const { return *members_[0].oracle; }
  void leave_for_another_chain();
  void predict(Member& member, Proposal& proposal);
  void try_to_predict(int number);  // keeps what it throws, for all members end a round
  void help(int number);

  Vector<Member> members_;  // the first is the lead, which has the chain's current strategy
  Vector<std::thread> helpers_;
  // The helpers' work, by a count that rises when there is some; `working_` of them have not done it yet.
  std::atomic<int> round_{0}, working_{0};
  Vector<Proposal>* proposals_ = nullptr;
  int count_ = 0;
  // Of the lead when the round began: where it is, if a member is elsewhere, and its factor of memory.
  ChainOracle::Place place_;
};

}  // namespace ff
