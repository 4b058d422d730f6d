#include "search/optimizer/mcmc/portfolio.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace ff {
namespace {

// An epoch has fewer chains where these would not come far: what a chain is worth, in starts of a chain, each of which
// takes about as long as some proposals, or in proposals.
constexpr double starts_a_chain = 40, proposals_a_chain = 500;

constexpr double no_limit = std::numeric_limits<double>::infinity();

double limit_of(const McmcSettings& settings) {
  if (settings.proposals > 0) return static_cast<double>(settings.proposals);
  return settings.budget_s > 0 ? settings.budget_s : no_limit;
}

}  // namespace

Portfolio::Portfolio(const ProposalSource& source, const Vector<Candidate>& candidates, const McmcSettings& settings,
                     const SearchControl& control, OraclePool& pool, McmcResult& result)
    : source_(source), candidates_(candidates), settings_(settings), control_(control), pool_(pool), result_(result),
      board_(control), by_proposals_(settings.proposals > 0), limit_(limit_of(settings)),
      improved_cost_(result.best.empty() ? no_limit : result.best_prediction.cost) {}

// Long enough for some chains: proposals take longer where the start of a chain does.
double Portfolio::first_epoch() const {
  constexpr double epochs_together = 15, fewest_proposals = 128;  // 1 + 2 + 4 + 8
  if (by_proposals_) return limit_ < epochs_together * fewest_proposals ? limit_ : std::floor(limit_ / epochs_together);
  constexpr double least_s = 0.03;
  return std::max(least_s, 3 * starts_a_chain * settings_.start_s);
}

void Portfolio::run() {
  double size = first_epoch();
  while (!over()) {
    const double left = limit_ - now();
    run_epoch(left < 3 * size ? left : size);  // what is left after this one would not do for the next
    size *= 2;
    ++epoch_;
  }
  if (epoch_ == 0) result_.chains_without_time = settings_.chains;
  result_.improvements = board_.improvements();
  result_.elapsed_s = board_.elapsed_s();
}

Portfolio::Chains Portfolio::new_chains(double size) const {
  double most = static_cast<double>(settings_.chains);
  if (by_proposals_) most = size / proposals_a_chain;
  else if (settings_.start_s > 0) most = size * pool_.threads() / (starts_a_chain * settings_.start_s);
  const int least = std::min(2, settings_.chains);  // from the best and from data parallelism: either may lead nowhere
  const int count = static_cast<int>(std::clamp<double>(most, least, settings_.chains));
  Chains chains;
  for (int i = 0; i < count; ++i) {
    const auto number = static_cast<uint64_t>(epoch_ * settings_.chains + i);
    const ChainSettings own{beta_of(settings_), settings_.slices, settings_.seed, settings_.look_ahead_from_s};
    if (epoch_ > 0 && i == 0) {
      chains.push_back(std::make_unique<Chain>(source_, own, number,
                                               Candidate{result_.best_from, result_.best, result_.best_prediction}));
      continue;
    }
    const int place = epoch_ == 0 ? i : i + (epoch_ - 1) * (settings_.chains - 1);
    chains.push_back(std::make_unique<Chain>(source_, own, number, candidates_[place % candidates_.count()]));
  }
  return chains;
}

void Portfolio::run_epoch(double size) {
  Chains chains = new_chains(size);
  Vector<Chain*> contenders;
  for (const auto& chain : chains) contenders.push_back(chain.get());
  const int legs = 1 + static_cast<int>(std::bit_width(contenders.size() - 1));
  for (int leg = 0; leg < legs; ++leg) {
    const double own_size = by_proposals_ ? std::round(size / (legs - leg)) : size / (legs - leg);
    size -= own_size;
    run_leg(contenders, own_size);
    std::erase_if(contenders, [](const Chain* chain) { return chain->result().best.empty(); });
    if (contenders.empty() || over()) break;
    std::stable_sort(contenders.begin(), contenders.end(), [](const Chain* a, const Chain* b) {
      return better(a->result().best_prediction, b->result().best_prediction);
    });
    contenders.resize((contenders.size() + 1) / 2);
  }
  for (const auto& chain : chains) {
    result_.chains_without_time += epoch_ == 0 && chain->result().best.empty();
    result_.chain_hash = hash_step(result_.chain_hash, chain->result().hash);
  }
}

void Portfolio::run_leg(const Vector<Chain*>& contenders, double size) {
  const int count = contenders.count(), lanes = std::min(count, pool_.threads());
  Vector<std::pair<int64_t, int64_t>> before;
  for (const Chain* chain : contenders) before.push_back({chain->result().proposals, chain->result().accepted});
  pool_.for_each(count, [&](int number, OracleTeam& team) {
    Leg leg{.no_better_than = settings_.no_better_than};
    if (by_proposals_) leg.proposals = equal_share(std::llround(size), number, count);
    else leg.seconds = size * lanes / count;
    if (settings_.budget_s > 0) {
      const double left = settings_.budget_s - board_.elapsed_s();
      if (left <= settings_.start_s) return;
      leg.seconds = std::min(by_proposals_ ? left : leg.seconds, share_of_rest(left, number, count, lanes));
    }
    contenders[number]->run(team, leg, control_.stop, board_);
  });
  for (const int i : contenders.indices()) note(*contenders[i], before[i].first, before[i].second);
}

void Portfolio::note(const Chain& chain, int64_t proposals_before, int64_t accepted_before) {
  const ChainResult& found = chain.result();
  if (found.best.empty()) return;
  result_.proposals += found.proposals - proposals_before;
  result_.accepted += found.accepted - accepted_before;
  if (!result_.best.empty() && !better(found.best_prediction, result_.best_prediction)) return;
  result_.best = found.best;
  result_.best_prediction = found.best_prediction;
  result_.best_from = chain.from();
  result_.best_found_s = found.best_at_s;
}

// Is it? Asked between legs.
bool Portfolio::over() {
  constexpr double worth_waiting_for = 5e-4;
  const double here = now(), found_at = by_proposals_ ? here : result_.best_found_s;
  if (!result_.best.empty() &&
      result_.best_prediction.cost < improved_cost_ * (settings_.until_settled ? 1 - worth_waiting_for : 1)) {
    improved_at_ = improved_cost_ == no_limit ? 0 : found_at;
    improved_cost_ = result_.best_prediction.cost;
  }
  const auto ended = [&](SearchEnd why) {
    result_.end = why;
    return true;
  };
  if (control_.stop) return ended(SearchEnd::interrupted);
  if (!result_.best.empty() && result_.best_prediction.feasible() &&
      result_.best_prediction.cost <= settings_.no_better_than)
    return ended(SearchEnd::lower_bound);
  if (by_proposals_ && here >= limit_) return ended(SearchEnd::proposals);
  if (settings_.budget_s > 0 && board_.elapsed_s() >= settings_.budget_s - settings_.start_s)
    return ended(SearchEnd::budget);
  constexpr int least_epochs = 2;
  const bool settled = settings_.until_settled ? epoch_ >= least_epochs && here >= 2 * improved_at_
                                               : 2 * (here - improved_at_) >= limit_;
  return settled && ended(SearchEnd::nothing_better);
}

}  // namespace ff
