#include "search/algorithms/mcmc.h"

#include <algorithm>
#include <optional>

#include "search/optimizer/mcmc/coarse_problem.h"
#include "search/optimizer/mcmc/local_optimum.h"

namespace ff {
namespace {

bool whole(const Strategy& strategy) {
  return std::all_of(strategy.begin(), strategy.end(),
                     [](const Configuration& configuration) { return configuration.parts() == 1; });
}

bool contains(const Vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Of some, at least one, whose predictions are known.
const Candidate& best_of(const Vector<Candidate>& candidates) {
  return *std::min_element(candidates.begin(), candidates.end(),
                           [](const Candidate& a, const Candidate& b) { return better(*a.prediction, *b.prediction); });
}

// The heuristic baselines that a search evaluates.
struct BaselineCandidates {
  Vector<Candidate> list;
  Vector<std::string> no_time;  // those that the deadline left out
};

// Those that --init names; all of them where it names none, or the best. Those that do not apply are left out unless
// named, and so are those for which there is no time, but for the first.
BaselineCandidates baseline_candidates(const AlgorithmRequest& request, const Deadline& deadline) {
  const Vector<std::string>& init = request.settings.init;
  const bool all = init.empty() || contains(init, "best");
  BaselineCandidates result;
  if (request.known) {
    Candidate known = *request.known;
    known.prediction = request.evaluator.evaluate(known.strategy);
    if (request.control.found) request.control.found(known.strategy, *known.prediction);
    result.list.push_back(std::move(known));
  }
  for (const Algorithm& algorithm : algorithms()) {
    const bool named = contains(init, algorithm.name);
    if (!algorithm.baseline || (!all && !named)) continue;
    // Without annotations it is data parallelism once more.
    if (algorithm.name == "propagate" && !request.problem().annotations && !named) continue;
    if (!named && !result.list.empty() && (request.control.stop || deadline.left_s() < request.evaluator.slowest_s())) {
      result.no_time.push_back(algorithm.name);
      continue;
    }
    AlgorithmRequest own = request;
    own.thorough = named;
    own.control.deadline = named ? Deadline() : deadline.before(request.evaluator.slowest_s());
    try {
      std::optional<Evaluator::Watch> watch;  // but of the first one: a search needs some strategy
      if (!named && !result.list.empty()) watch.emplace(request.evaluator, own.control);
      AlgorithmResult found = algorithm.run(own);
      if (request.settings.search.whole_operators && !whole(found.strategy)) continue;
      if (!found.prediction) found.prediction = request.evaluator.evaluate(found.strategy);
      if (request.control.found) request.control.found(found.strategy, *found.prediction);
      result.list.push_back({algorithm.name, std::move(found.strategy), found.prediction});
    } catch (const NoTimeLeft&) {
      result.no_time.push_back(algorithm.name);
    } catch (const GivenUp&) {
      result.no_time.push_back(algorithm.name);
    } catch (const NotApplicable&) {
      if (named) throw;
    }
  }
  return result;
}

// Data parallelism as the paper has it, the best existing strategy, and random ones. Why not the best alone:
// docs/algorithms.md. With annotations, what follows from these in place of data parallelism. Chains that compete go
// round, for each of these starts may lead to the best, and the best one comes first, as there may be time for one.
Vector<std::string> default_init(const McmcSettings& search, bool annotated, const std::string& best) {
  const bool compete = search.proposals_from == ProposalKind::structured;
  const std::string first = annotated ? "propagate" : "data-parallel";
  Vector<std::string> init;
  if (!search.whole_operators) init.push_back(first);
  if (search.whole_operators || best != first) init.insert(compete ? init.begin() : init.end(), "best");
  init.push_back("random");
  for (int i = 0; compete && init.count() < search.chains; ++i) init.push_back(std::string(init[i]));
  return init;
}

// What each chain starts from. `best` is one of the baselines.
Vector<Candidate> chain_starts(const AlgorithmRequest& request, const Vector<Candidate>& baselines,
                               const Candidate* best) {
  const McmcSettings& search = request.settings.search;
  const Vector<std::string> init = request.settings.init.empty()
                                       ? default_init(search, request.problem().annotations, best->name)
                                       : request.settings.init;
  std::optional<SearchSpace> whole;
  if (search.whole_operators) whole.emplace(request.graph(), request.topology(), true, request.problem().annotations);
  const SearchSpace& space = whole ? *whole : request.space;
  RandomStream random(search.seed, ~uint64_t{0});
  Vector<Candidate> starts;
  for (int chain = 0; chain < search.chains; ++chain) {
    const std::string& name = init[std::min(chain, init.count() - 1)];
    if (name == "random") {
      starts.push_back({name, space.random_strategy(random)});
    } else if (name == "best") {
      starts.push_back(*best);
    } else {
      const auto found = std::find_if(baselines.begin(), baselines.end(),
                                      [&](const Candidate& candidate) { return candidate.name == name; });
      const bool left_out = found == baselines.end() && request.settings.init.empty();  // for lack of time
      if (left_out) starts.push_back(*best);
      else if (found == baselines.end())
        throw InputError("--init: \"" + name + "\" splits operators, which placement does not");
      else starts.push_back(*found);
    }
  }
  return starts;
}

void check_locally(const AlgorithmRequest& request, AlgorithmResult& result) {
  const McmcResult& chains = *result.chains;
  const SearchSpace space(request.graph(), request.topology(), request.settings.search.whole_operators,
                          request.problem().annotations);
  const Neighbourhood neighbourhood(request.graph(), request.topology(), space);
  SearchControl control{request.control.stop};
  if (request.control.progress)
    control.progress = [&](SearchProgress now) {
      now.elapsed_s += chains.elapsed_s;
      now.proposals += chains.proposals;
      now.accepted = chains.accepted;
      request.control.progress(now);
    };
  const LocalOptimum optimum =
      local_optimum(request.problem(), neighbourhood, result.strategy, request.settings.search.simulator, control);
  result.strategy = optimum.strategy;
  if (optimum.improvements > 0)
    result.note = "found from " + chains.best_from + ", and then by changes of one operator";
  result.details["local_optimum"] = {{"proven", optimum.proven},
                                     {"neighbourhood", neighbourhood.text()},
                                     {"neighbours", optimum.neighbours},
                                     {"evaluated", optimum.evaluated},
                                     {"operators", optimum.operators},
                                     {"improvements", optimum.improvements},
                                     {"before_us", to_us(chains.best_prediction.makespan)},
                                     {"elapsed_s", optimum.elapsed_s}};
}

// Placement splits nothing.
void expect_nothing_annotated_is_split(const AlgorithmRequest& request) {
  const Annotations* annotations = request.problem().annotations;
  if (!annotations) return;
  for (const OperatorId op : request.graph().operator_ids())
    if (const Annotation* annotation = annotations->find(op))
      for (const int degree : annotation->degrees)
        if (degree > 1) cannot_keep(request, "placement", op, "as it splits no operator");
}

// What was not done for lack of time.
std::string no_time_text(const BaselineCandidates& baselines, const McmcSettings& search, const McmcResult& chains) {
  std::string text;
  for (const std::string& name : baselines.no_time) text += (text.empty() ? "" : ", ") + name;
  if (chains.chains_without_time > 0)
    text += (text.empty() ? "" : ", ") + std::to_string(chains.chains_without_time) + " of " +
            std::to_string(search.chains) + " chains";
  return text.empty() ? "" : "; no time for " + text;
}

// In evaluations, which nothing cuts short: of the found strategy once more, with its memory, and of what a chain has
// still to verify; of a strategy in some orders of tasks; and of a chain's first one, which is recorded.
constexpr double evaluations_of_result = 4, evaluations_of_orders = 5, evaluations_of_start = 2;

// Seconds that chains leave for what comes after them. Heuristic baselines in these orders have a part of the time
// at most.
double reserved_s(const AlgorithmRequest& request, int baseline_count) {
  constexpr double most_of_orders = 0.1;
  const double evaluation_s = request.evaluator.slowest_s();
  const double result_s = evaluations_of_result * evaluation_s, orders_s = evaluations_of_orders * evaluation_s;
  const McmcSettings& search = request.settings.search;
  if (task_order_of(search.whole_operators ? "placement" : "mcmc", request.settings) == TaskOrder::fifo)
    return result_s;
  return result_s + orders_s + std::min(most_of_orders * search.budget_s, orders_s * baseline_count);
}

// A search without a limit ends when nothing better is to be expected, and then at the latest; chains that do not know
// of each other have so long together.
constexpr double most_s_until_settled = 120, independent_chains_s = 30;

// Where memory is short a strategy has to get slower for long before it fits: chains that compete end too early.
constexpr int chains_to_fit = 2;

// The first level of a multilevel search, which has half of the time or of the proposals: what is found for fewer nodes
// with their share of the samples (and there for fewer still), projected onto all. An --init is followed to the letter.
struct CoarseLevel {
  Candidate candidate;
  McmcResult chains;
};

std::optional<CoarseLevel> search_coarse_level(const AlgorithmRequest& request, const Deadline& deadline) {
  const McmcSettings& search = request.settings.search;
  constexpr int64_t fewest_proposals = 200;
  if (search.proposals > 0 && search.proposals < fewest_proposals) return std::nullopt;
  if (search.proposals_from != ProposalKind::structured || search.whole_operators || search.slices ||
      request.problem().annotations || !request.settings.init.empty() || request.control.stop ||
      request.problem().order != TaskOrder::fifo)
    return std::nullopt;
  const std::optional<CoarseProblem> coarse = coarse_problem(request.problem(), coarse_copies(request.topology()));
  if (!coarse) return std::nullopt;
  const Topology& topology = coarse->cluster.topology;
  const SearchSpace space(coarse->graph, topology);
  Evaluator evaluator(request.problem().with(coarse->graph, topology));
  AlgorithmRequest own{
      .evaluator = evaluator, .space = space, .settings = {.search = search}, .control = {request.control.stop}};
  if (request.control.progress)
    own.control.progress = [&](SearchProgress now) {
      if (now.devices == 0) now.devices = topology.devices.count();
      request.control.progress(now);
    };
  own.settings.task_order = TaskOrder::fifo;
  own.settings.search.unequal_shares = false;
  own.settings.search.no_better_than = 0;
  own.settings.search.proposals = search.proposals / 2;
  if (deadline.limited()) {
    own.settings.search.budget_s = deadline.left_s() / 2;
    own.control.deadline = Deadline(own.settings.search.budget_s);
    if (own.settings.search.budget_s < 2 * request.evaluator.slowest_s()) return std::nullopt;
  }
  AlgorithmResult found = search_by_chains(own, false);
  CoarseLevel level{{"a search of " + std::to_string(topology.devices.size()) + " devices",
                     coarse->projected(request.graph(), found.strategy)},
                    *std::move(found.chains)};
  level.candidate.prediction = request.evaluator.evaluate(level.candidate.strategy);
  return level;
}

// What both levels did together.
void add_level(McmcResult& result, const McmcResult& coarse) {
  result.proposals += coarse.proposals;
  result.accepted += coarse.accepted;
  result.elapsed_s += coarse.elapsed_s;
  result.best_found_s += coarse.elapsed_s;
  for (Improvement& improvement : result.improvements) improvement.after_s += coarse.elapsed_s;
  result.chain_hash = hash_step(coarse.chain_hash, result.chain_hash);
}

}  // namespace

AlgorithmResult search_by_chains(AlgorithmRequest request, bool whole_operators) {
  if (whole_operators) expect_nothing_annotated_is_split(request);
  McmcSettings& search = request.settings.search;
  search.whole_operators = whole_operators;
  if (search.budget_s <= 0 && search.proposals == 0) {
    search.until_settled = search.proposals_from == ProposalKind::structured;
    search.budget_s = search.until_settled ? most_s_until_settled : independent_chains_s;
  }
  const Deadline deadline = request.control.deadline.limited() ? request.control.deadline : Deadline(search.budget_s);
  // Half of the budget is for the chains.
  const BaselineCandidates baselines = baseline_candidates(request, deadline.before(search.budget_s / 2));
  AlgorithmResult result;
  for (const Candidate& candidate : baselines.list)
    result.baselines.push_back(
        {candidate.name, candidate.prediction->makespan, candidate.prediction->feasible(), candidate.strategy});
  search.slices = !baselines.list.empty() && !best_of(baselines.list).prediction->feasible();
  if (search.slices && search.proposals_from == ProposalKind::structured) {
    search.proposals_from = ProposalKind::mixed;
    search.chains = std::min(search.chains, chains_to_fit);
  }
  const std::optional<CoarseLevel> coarse = search_coarse_level(request, deadline);
  if (coarse && search.proposals > 0) search.proposals -= coarse->chains.proposals;
  Vector<Candidate> known = baselines.list;
  if (coarse) known.push_back(coarse->candidate);
  const Vector<Candidate> starts = chain_starts(request, known, known.empty() ? nullptr : &best_of(known));
  if (deadline.limited()) {
    search.start_s = evaluations_of_start * request.evaluator.slowest_s();
    search.budget_s = std::max(1e-9, deadline.left_s() - reserved_s(request, baselines.list.count()));
    if (search.until_settled && search.slices) search.budget_s = std::min(search.budget_s, independent_chains_s);
  }
  result.chains = search_mcmc(request.problem(), starts, search, request.control, known);
  if (coarse) add_level(*result.chains, coarse->chains);
  result.strategy = result.chains->best;
  const auto unbeaten = std::find_if(baselines.list.begin(), baselines.list.end(),
                                     [&](const Candidate& candidate) { return candidate.strategy == result.strategy; });
  result.note = (unbeaten != baselines.list.end() ? "nothing better than " + unbeaten->name + " was found"
                                                  : "found from " + result.chains->best_from) +
                no_time_text(baselines, search, *result.chains);
  if (request.settings.check_local) check_locally(request, result);
  return result;
}

}  // namespace ff
