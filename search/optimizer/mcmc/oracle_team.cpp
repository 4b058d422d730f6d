#include "search/optimizer/mcmc/oracle_team.h"

#include <algorithm>
#include <utility>

namespace ff {

OracleTeam::OracleTeam(const Vector<ChainOracle*>& oracles) {
  for (ChainOracle* oracle : oracles) members_.push_back({oracle});
  for (int number = 1; number < size(); ++number) helpers_.emplace_back([this, number] { help(number); });
}

OracleTeam::~OracleTeam() {
  proposals_ = nullptr;
  ++round_;
  round_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
  leave_for_another_chain();  // other teams take oracles that are not asked anything
}

Prediction OracleTeam::start(const Strategy& strategy, const std::optional<Prediction>& known) {
  leave_for_another_chain();
  return lead().start(strategy, known);
}

void OracleTeam::resume(const ChainOracle::Place& place) {
  leave_for_another_chain();
  lead().resume(place);
}

void OracleTeam::leave_for_another_chain() {
  for (Member& member : members_) {
    if (member.asked) member.oracle->reject();
    member.asked = false;
    member.elsewhere = true;
    member.missed.clear();
  }
}

void OracleTeam::propose(Vector<Proposal>& proposals, int count) {
  if (count == 1) {
    predict(members_[0], proposals[0]);
    return;
  }
  bool some_elsewhere = false;
  for (int number = 1; number < count; ++number) {
    Member& member = members_[number];
    some_elsewhere = some_elsewhere || member.elsewhere;
    sort_and_unique(member.missed);
    member.to_follow.clear();
    for (const OperatorId op : member.missed) member.to_follow.push_back({op, strategy()[op]});
    member.missed.clear();
  }
  if (some_elsewhere) place_ = place();
  place_.memory_scale = lead().memory_scale();
  place_.feasible = lead().feasible();
  proposals_ = &proposals;
  count_ = count;
  working_ = helpers_.count();
  ++round_;
  round_.notify_all();
  try_to_predict(0);
  for (int left = working_; left > 0; left = working_) working_.wait(left);
  for (Member& member : members_)
    if (member.failure) std::rethrow_exception(std::exchange(member.failure, nullptr));
}

void OracleTeam::predict(Member& member, Proposal& proposal) {
  if (member.asked) member.oracle->reject();
  member.asked = false;
  if (&member != &members_[0]) {
    if (member.elsewhere) {
      member.oracle->resume(place_);
    } else {
      std::erase_if(member.to_follow,
                    [&](const Change& change) { return member.oracle->strategy()[change.op] == change.configuration; });
      member.oracle->follow(member.to_follow, place_.memory_scale, place_.feasible);
    }
    member.elsewhere = false;
  }
  proposal.prediction = member.oracle->propose(proposal.changes, proposal.largest_cost);
  member.asked = true;
}

void OracleTeam::try_to_predict(int number) {
  try {
    predict(members_[number], (*proposals_)[number]);
  } catch (...) {
    members_[number].failure = std::current_exception();
  }
}

void OracleTeam::help(int number) {
  for (int seen = 0;; ++seen) {
    round_.wait(seen);
    if (!proposals_) return;
    if (number < count_) try_to_predict(number);
    if (--working_ == 0) working_.notify_one();
  }
}

// Members that were asked in vain reject when they are asked again, all but the lead.
void OracleTeam::settle(const Vector<Proposal>& proposals, int accepted) {
  if (accepted > 0) std::swap(members_[0], members_[accepted]);
  members_[0].asked = false;
  if (accepted < 0) return members_[0].oracle->reject();
  members_[0].oracle->accept();
  for (int number = 1; number < size(); ++number)
    for (const Change& change : proposals[accepted].changes) members_[number].missed.push_back(change.op);
}

}  // namespace ff
