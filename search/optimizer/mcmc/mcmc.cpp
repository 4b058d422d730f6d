#include "search/optimizer/mcmc/mcmc.h"

#include <algorithm>
#include <thread>

#include "search/optimizer/mcmc/portfolio.h"

namespace ff {
namespace {

// Takes what is better than the result so far.
void consider(McmcResult& result, const Strategy& strategy, const Prediction& prediction, const std::string& from,
              double found_s) {
  if (!result.best.empty() && !better(prediction, result.best_prediction)) return;
  result.best = strategy;
  result.best_prediction = prediction;
  result.best_from = from;
  result.best_found_s = found_s;
}

// Chains that do not know of each other, each with its share of the budget.
void run_independent_chains(const ProposalSource& source, const Vector<Candidate>& candidates,
                            const McmcSettings& settings, const SearchControl& control, OraclePool& pool,
                            McmcResult& result) {
  const int lanes = std::min(pool.threads(), settings.chains);
  ProgressBoard board(control);
  Vector<std::unique_ptr<Chain>> chains(settings.chains);
  pool.for_each(settings.chains, [&](int number, OracleTeam& team) {
    if (control.stop && candidates[number % candidates.count()].prediction) return;  // nothing is found any more
    Leg leg{.seconds = settings.budget_s * lanes / settings.chains, .half_without_better = true};
    if (settings.budget_s > 0) {
      const double left = settings.budget_s - board.elapsed_s();
      if (left <= settings.start_s) return;
      leg.seconds = std::min(leg.seconds, share_of_rest(left, number, settings.chains, lanes));
    }
    if (settings.proposals > 0)
      leg.proposals = std::max<int64_t>(1, equal_share(settings.proposals, number, settings.chains));
    chains[number] = std::make_unique<Chain>(
        source, ChainSettings{beta_of(settings), settings.slices, settings.seed, settings.look_ahead_from_s},
        static_cast<uint64_t>(number), candidates[number % candidates.count()]);
    chains[number]->run(team, leg, control.stop, board);
  });
  for (const auto& chain : chains) {
    if (!chain) {
      ++result.chains_without_time;
      continue;
    }
    const ChainResult& found = chain->result();
    consider(result, found.best, found.best_prediction, chain->from(), found.best_at_s);
    result.proposals += found.proposals;
    result.accepted += found.accepted;
    result.chain_hash = hash_step(result.chain_hash, found.hash);
  }
  result.improvements = board.improvements();
  result.elapsed_s = board.elapsed_s();
  const bool all_proposals = settings.proposals > 0 && result.proposals >= settings.proposals;
  result.end = control.stop                                                     ? SearchEnd::interrupted
               : all_proposals                                                  ? SearchEnd::proposals
               : settings.budget_s > 0 && result.elapsed_s >= settings.budget_s ? SearchEnd::budget
                                                                                : SearchEnd::nothing_better;
}

}  // namespace

std::string end_text(SearchEnd end, const McmcSettings& settings) {
  switch (end) {
    case SearchEnd::proposals: return "all proposals made";
    case SearchEnd::budget: return "the budget is used up";
    case SearchEnd::nothing_better:
      return std::string("nothing better for half of the ") + (settings.proposals == 0 ? "time"
                                                               : settings.budget_s > 0 ? "budget"
                                                                                       : "proposals");
    case SearchEnd::lower_bound: return "no strategy can be better";
    case SearchEnd::interrupted: return "interrupted";
  }
  return "";
}

int default_threads(int devices, int chains) {
  constexpr int most_devices_together = 1024;
  const int processors = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return std::max(1, std::min({processors, chains, most_devices_together / devices}));
}

McmcResult search_mcmc(const Problem& problem, const Vector<Candidate>& candidates, const McmcSettings& settings,
                       const SearchControl& control, const Vector<Candidate>& others) {
  SearchSpace space(problem.graph, problem.topology, settings.whole_operators, problem.annotations);
  space.set_unequal_shares(settings.unequal_shares);
  const ProposalSource source(settings.proposals_from, problem.graph, problem.topology, space);
  OraclePool pool(problem, settings.simulator, settings.threads);
  McmcResult result;
  Evaluator evaluator(problem);
  const auto look_at = [&](const Candidate& candidate) {
    consider(result, candidate.strategy,
             candidate.prediction ? *candidate.prediction : evaluator.evaluate(candidate.strategy), candidate.name, 0);
  };
  if (settings.proposals_from == ProposalKind::structured) {
    for (const Vector<Candidate>* known : {&candidates, &others})
      for (const Candidate& candidate : *known)
        if (candidate.prediction) look_at(candidate);
    Portfolio(source, candidates, settings, control, pool, result).run();
  } else {
    run_independent_chains(source, candidates, settings, control, pool, result);
  }
  // What no chain started from.
  for (const Candidate& other : others) look_at(other);
  for (const int number : candidates.indices())
    if (number >= settings.chains - result.chains_without_time &&
        (candidates[number].prediction || result.best.empty()))
      look_at(candidates[number]);
  result.statistics = pool.statistics();
  result.slowest_evaluation_s = pool.slowest_s();
  result.interrupted = control.stop;
  return result;
}

}  // namespace ff
