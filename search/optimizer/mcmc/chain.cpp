#include "search/optimizer/mcmc/chain.h"

#include <algorithm>
#include <bit>

#include "search/optimizer/mcmc/metropolis_hastings.h"

namespace ff {

Chain::Chain(const ProposalSource& source, const ChainSettings& settings, uint64_t number, Candidate start)
    : source_(source), settings_(settings), start_(std::move(start)), random_(settings.seed, number),
      random_ahead_(random_) {}

void Chain::run(OracleTeam& team, const Leg& leg, const std::atomic<bool>& stop, ProgressBoard& board) {
  leg_begin_ = std::chrono::steady_clock::now();
  leg_best_at_s_ = 0;
  random_ahead_ = random_;
  random_behind_.clear();
  leg_begin_proposals_ = leg_best_at_proposal_ = result_.proposals;
  if (begun_) team.resume(state_);
  else begin(team, board);
  report(board);
  constexpr int64_t timed_anew_every = 4096;  // proposals: what a chain accepts, and what that takes, changes
  alone_ = ahead_ = {};
  while (!stop && !used_up(leg)) {
    if (result_.proposals % timed_anew_every == 0) alone_ = ahead_ = {};
    const int undecided = undecided_at_once(team, leg);
    if (team.size() == 1 || (undecided == 1 && alone_.known())) {
      step(team, undecided, board);
    } else {
      const auto begin = std::chrono::steady_clock::now();
      step(team, undecided, board);
      (undecided == 1 ? alone_ : ahead_).add(seconds_since(begin));
    }
    if (result_.proposals - reported_proposals_ >= 16) report(board);
  }
  team.forget();
  state_ = team.state();
  verify_unverified(team, board);
  report(board);
}

void Chain::begin(OracleTeam& team, ProgressBoard& board) {
  begun_ = true;
  current_ = team.start(start_.strategy, start_.prediction);
  keep(start_.strategy, current_, board);
  result_.best_at_s = board.elapsed_s();
  result_.hash = hash_bytes(std::bit_cast<uint64_t>(current_.cost), result_.hash);
}

// All of the leg, or half of it without a better strategy, or a strategy than which none is better.
bool Chain::used_up(const Leg& leg) const {
  if (proposals_left(leg) <= 0) return true;
  if (result_.best_prediction.feasible() && result_.best_prediction.cost <= leg.no_better_than) return true;
  if (leg.seconds <= 0) return false;
  const double elapsed = seconds_since(leg_begin_);
  return elapsed >= leg.seconds || (leg.half_without_better && 2 * (elapsed - leg_best_at_s_) >= leg.seconds);
}

int64_t Chain::proposals_left(const Leg& leg) const {
  if (leg.proposals == Leg::any_number) return Leg::any_number;
  const int64_t left = leg_begin_proposals_ + leg.proposals - result_.proposals;
  if (!leg.half_without_better) return left;
  return std::min(left, leg_best_at_proposal_ + (leg.proposals + 1) / 2 - result_.proposals);
}

// The first ones find caches empty and threads elsewhere.
void Chain::Pace::add(double took_s) {
  constexpr int64_t first = 64;
  if (++proposals <= first) return;
  ++timed;
  seconds += took_s;
}

// Where many are accepted, most of what is drawn ahead is discarded; where a proposal takes a few microseconds, threads
// wait for each other longer. Otherwise what is faster: it depends on how much of the caches the threads share.
int Chain::undecided_at_once(const OracleTeam& team, const Leg& leg) const {
  if (team.size() == 1) return 1;
  const double pays = 1.0 / team.size();
  if (accepted_share_ > pays) return 1;
  if (settings_.look_ahead_from_s > 0) {
    if (!alone_.known() || alone_.each_s() < settings_.look_ahead_from_s) return 1;
    if (ahead_.known() && ahead_.each_s() > alone_.each_s()) return 1;
  }
  return static_cast<int>(std::min<int64_t>(team.most_ahead(), proposals_left(leg)));
}

// Proposals are drawn from the current strategy as if those before were rejected.
void Chain::draw(OracleTeam& team, int undecided) {
  constexpr double little_left = 0.9;
  while (team.wants_more_than(undecided)) {
    Vector<Change> changes =
        source_.draw(team.strategy(), random_ahead_, settings_.slices && current_.fullness > little_left);
    team.add(std::move(changes), largest_accepted_cost(current_.cost, settings_.beta, random_ahead_.uniform()));
    random_behind_.push_back(random_ahead_);
  }
}

// Decides on the first undecided proposal. After an accepted one the random numbers go on where it was drawn.
void Chain::step(OracleTeam& team, int undecided, ProgressBoard& board) {
  draw(team, undecided);
  const std::optional<Prediction> prediction = team.predict_first();
  random_ = random_behind_.front();
  random_behind_.pop_front();
  ++result_.proposals;
  constexpr double forgotten = 1.0 / 64;
  accepted_share_ += forgotten * ((prediction ? 1 : 0) - accepted_share_);
  if (!prediction) {
    result_.hash = hash_bytes(uint64_t{0}, result_.hash);
    return team.reject_first();
  }
  team.accept_first();
  random_ahead_ = random_;
  random_behind_.clear();
  accept(team, *prediction, board);
}

void Chain::accept(OracleTeam& team, const Prediction& prediction, ProgressBoard& board) {
  current_ = prediction;
  ++result_.accepted;
  result_.hash = hash_bytes(std::bit_cast<uint64_t>(prediction.cost), result_.hash);
  if (!better(prediction, unverified_.empty() ? result_.best_prediction : unverified_prediction_)) return;
  leg_best_at_proposal_ = result_.proposals;
  leg_best_at_s_ = seconds_since(leg_begin_);
  result_.best_at_s = board.elapsed_s();
  // Memory is estimated. What may not fit is looked at exactly, which takes as long as many proposals.
  constexpr double surely_fits = 0.7;
  constexpr int64_t verified_every = 64;  // proposals
  if (prediction.fullness < surely_fits) {
    keep(team.strategy(), prediction, board);
  } else if (result_.proposals - verified_at_ >= verified_every) {
    verified_at_ = result_.proposals;
    current_ = team.verify();
    if (better(current_, result_.best_prediction)) keep(team.strategy(), current_, board);
  } else {
    unverified_ = team.strategy();
    unverified_prediction_ = prediction;
  }
}

void Chain::keep(const Strategy& strategy, const Prediction& prediction, ProgressBoard& board) {
  if (prediction.feasible()) board.found(strategy, prediction);
  result_.best = strategy;
  result_.best_prediction = prediction;
  unverified_.clear();
}

void Chain::verify_unverified(OracleTeam& team, ProgressBoard& board) {
  if (unverified_.empty()) return;
  const Strategy strategy = std::move(unverified_);
  unverified_.clear();
  const Prediction exact = team.start(strategy);
  if (better(exact, result_.best_prediction)) keep(strategy, exact, board);
}

void Chain::report(ProgressBoard& board) {
  board.add(result_.proposals - reported_proposals_, result_.accepted - reported_accepted_, current_.makespan,
            result_.best_prediction.makespan);
  reported_proposals_ = result_.proposals;
  reported_accepted_ = result_.accepted;
}

}  // namespace ff
