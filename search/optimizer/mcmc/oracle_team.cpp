#include "search/optimizer/mcmc/oracle_team.h"

#include <algorithm>
#include <utility>

namespace ff {

OracleTeam::OracleTeam(const Vector<ChainOracle*>& oracles) {
  for (ChainOracle* oracle : oracles) members_.push_back({oracle});
  const int members = size();
  try {
    for (int number = 1; number < members; ++number) helpers_.emplace_back([this, number] { help(number); });
  } catch (const std::exception&) {  // no more threads: a smaller team
    const std::lock_guard lock(mutex_);
    members_.resize(helpers_.size() + 1);
  }
}

OracleTeam::~OracleTeam() {
  forget();
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  tell();
  for (std::thread& helper : helpers_) helper.join();
  for (Member& member : members_) leave(member);  // other teams take oracles that are not asked anything
}

// ---- from chain to chain ----

Prediction OracleTeam::start(const Strategy& strategy, const std::optional<Prediction>& known) {
  leave_for_another_chain();
  Member& lead = members_[0];
  const Prediction prediction = lead.oracle->start(strategy, known);
  const std::lock_guard lock(mutex_);
  lead.elsewhere = false;
  state_ = lead.oracle->state();
  return prediction;
}

void OracleTeam::resume(const ChainOracle::State& state) {
  leave_for_another_chain();
  const std::lock_guard lock(mutex_);
  state_ = state;
}

void OracleTeam::leave_for_another_chain() {
  {
    const std::lock_guard lock(mutex_);
    forget_behind(0);
    for (Member& member : members_) {
      member.elsewhere = true;
      member.accepted = false;
      member.missed.clear();
    }
  }
  leave(members_[0]);
}

void OracleTeam::leave(Member& member) {
  if (std::exchange(member.asked, false)) member.oracle->reject();
}

Prediction OracleTeam::verify() {
  Member& lead = members_[0];
  CatchUp what;
  {
    const std::lock_guard lock(mutex_);
    what = what_to_catch_up(lead);
  }
  catch_up(lead, std::move(what));
  const Prediction exact = lead.oracle->verify();
  const std::lock_guard lock(mutex_);
  state_.memory_scale = lead.oracle->memory_scale();
  state_.feasible = lead.oracle->feasible();
  return exact;
}

OracleTeam::CatchUp OracleTeam::what_to_catch_up(Member& member) const {
  CatchUp what{.accept = std::exchange(member.accepted, false), .resume = std::exchange(member.elsewhere, false)};
  what.state.memory_scale = state_.memory_scale;
  what.state.feasible = state_.feasible;
  if (what.resume) what.state.strategy = state_.strategy;
  sort_and_unique(member.missed);
  for (const OperatorId op : member.missed) what.missed.push_back({op, state_.strategy[op]});
  member.missed.clear();
  return what;
}

void OracleTeam::catch_up(Member& member, CatchUp what) {
  if (what.accept && std::exchange(member.asked, false)) member.oracle->accept();
  leave(member);
  if (what.resume) return member.oracle->resume(what.state);
  std::erase_if(what.missed,
                [&](const Change& change) { return member.oracle->strategy()[change.op] == change.configuration; });
  member.oracle->follow(what.missed, what.state.memory_scale, what.state.feasible);
}

// ---- the queue ----

bool OracleTeam::wants_more_than(int undecided) const {
  const std::lock_guard lock(mutex_);
  return undecided_.size() < static_cast<size_t>(undecided) && !knows_next();
}

bool OracleTeam::knows_next() const { return !undecided_.empty() && undecided_.back()->acceptable(); }

void OracleTeam::add(Vector<Change> changes, double largest_cost) {
  bool for_helpers = false;
  {
    const std::lock_guard lock(mutex_);
    if (knows_next()) return;  // since it was asked
    if (spare_.empty()) {
      proposals_.push_back(std::make_unique<Proposal>());
      spare_.reserve(proposals_.size());  // so that taking back a proposal needs no memory
      spare_.push_back(proposals_.back().get());
    }
    Proposal& proposal = *spare_.back();
    spare_.pop_back();
    proposal.changes = std::move(changes);
    proposal.largest_cost = largest_cost;
    proposal.member = -1;
    proposal.done = proposal.in_vain = false;
    proposal.prediction.reset();
    proposal.failure = nullptr;
    undecided_.push_back(&proposal);
    for_helpers = undecided_.size() > 1;
  }
  if (for_helpers) tell();
}

void OracleTeam::forget() {
  const std::lock_guard lock(mutex_);
  forget_behind(0);
}

// So many are kept.
void OracleTeam::forget_behind(size_t count) {
  for (; undecided_.size() > count; undecided_.pop_back()) {
    Proposal* proposal = undecided_.back();
    if (proposal->member < 0 || proposal->done) spare_.push_back(proposal);
    else proposal->in_vain = true;  // spare when whoever has begun it sees that
  }
}

void OracleTeam::reject_first() {
  const std::lock_guard lock(mutex_);
  spare_.push_back(undecided_.front());
  undecided_.pop_front();
}

void OracleTeam::accept_first() {
  const std::lock_guard lock(mutex_);
  forget_behind(1);
  Proposal& accepted = *undecided_.front();
  for (const Change& change : accepted.changes) state_.strategy[change.op] = change.configuration;
  state_.feasible = accepted.prediction->feasible();
  for (const int number : members_.indices()) {
    Member& member = members_[number];
    if (number == accepted.member) member.accepted = true;
    else if (!member.elsewhere)
      for (const Change& change : accepted.changes) member.missed.push_back(change.op);
  }
  spare_.push_back(&accepted);
  undecided_.pop_front();
}

// ---- predicting ----

std::optional<Prediction> OracleTeam::predict_first() {
  for (;;) {
    const int seen = news_;
    {
      const std::lock_guard lock(mutex_);
      Proposal& first = *undecided_.front();
      if (first.failure) std::rethrow_exception(std::exchange(first.failure, nullptr));
      if (first.done) return first.acceptable() ? first.prediction : std::nullopt;
    }
    if (!predict_next(0)) news_.wait(seen);
  }
}

// The first is the lead's: where no more are drawn, helpers sleep.
OracleTeam::Proposal* OracleTeam::begin_next(int number) {
  const auto open = std::find_if(undecided_.begin() + (number > 0 && !undecided_.empty()), undecided_.end(),
                                 [](const Proposal* proposal) { return proposal->member < 0; });
  if (open == undecided_.end()) return nullptr;
  (*open)->member = number;
  return *open;
}

// False: there is none.
bool OracleTeam::predict_next(int number) {
  Member& member = members_[number];
  Proposal* proposal = nullptr;
  std::optional<Prediction> prediction;
  std::exception_ptr failure;
  try {
    CatchUp what;
    {
      const std::lock_guard lock(mutex_);
      proposal = begin_next(number);
      if (!proposal) return false;
      what = what_to_catch_up(member);  // which copies a strategy: there may be no memory for it
    }
    catch_up(member, std::move(what));
    prediction = member.oracle->propose(proposal->changes, proposal->largest_cost, &proposal->in_vain);
    member.asked = true;
  } catch (...) {
    failure = std::current_exception();
  }
  {
    const std::lock_guard lock(mutex_);
    if (failure) member.elsewhere = true;  // it may stand anywhere
    if (proposal->in_vain) {
      spare_.push_back(proposal);
      return true;
    }
    proposal->prediction = prediction;
    proposal->failure = failure;
    proposal->done = true;
    if (proposal->acceptable())
      forget_behind(
          static_cast<size_t>(std::find(undecided_.begin(), undecided_.end(), proposal) - undecided_.begin() + 1));
  }
  if (number > 0) tell();
  return true;
}

void OracleTeam::help(int number) {
  for (;;) {
    const int seen = news_;
    {
      const std::lock_guard lock(mutex_);
      if (over_) return;
    }
    if (!predict_next(number)) news_.wait(seen);
  }
}

void OracleTeam::tell() {
  ++news_;
  news_.notify_all();
}

}  // namespace ff
