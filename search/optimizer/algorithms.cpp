#include "search/optimizer/algorithms.h"

#include <algorithm>
#include <chrono>

#include "search/optimizer/baselines/expert.h"
#include "search/optimizer/baselines/gshard.h"
#include "search/optimizer/baselines/megatron.h"
#include "search/optimizer/baselines/model_parallel.h"
#include "search/optimizer/baselines/optcnn.h"
#include "search/optimizer/baselines/propagate.h"
#include "search/optimizer/baselines/reinforce.h"
#include "search/optimizer/baselines/sub_cluster.h"
#include "search/optimizer/exhaustive/search.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/mcmc/coarse_problem.h"
#include "search/optimizer/mcmc/local_optimum.h"
#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

// Pairs of blocks that OptCNN's tables may look at: one or two seconds, and an hour.
constexpr double quick_steps = 1e8, thorough_steps = 1e11;

AlgorithmResult of(Strategy strategy, std::string note) {
  AlgorithmResult result;
  result.strategy = std::move(strategy);
  result.note = std::move(note);
  return result;
}

// A strategy made by a rule, which does not know of annotations.
AlgorithmResult by_rule(const AlgorithmRequest& request, Strategy strategy, std::string note) {
  return of(request.problem().keeping_annotations(std::move(strategy)),
            std::move(note) + (request.problem().annotations ? "; but for what is annotated" : ""));
}

// Of the time that a cheap algorithm has within a search.
class NoTimeLeft : public NotApplicable {
 public:
  using NotApplicable::NotApplicable;
};

[[noreturn]] void cannot_keep(const AlgorithmRequest& request, const std::string& algorithm, OperatorId op,
                              const std::string& why) {
  throw NotApplicable(algorithm + ": cannot keep to the annotation of " + request.graph().operators[op].name + " (" +
                      request.problem().annotations->text(op) + "), " + why);
}

AlgorithmResult run_data_parallel(const AlgorithmRequest& request) {
  return by_rule(request, data_parallel(request.graph(), request.topology()),
                 "every operator split by sample over all devices");
}

AlgorithmResult run_single_device(const AlgorithmRequest& request) {
  return by_rule(request, single_device(request.graph()),
                 "every operator on device " + request.topology().devices[0].name);
}

AlgorithmResult run_model_parallel(const AlgorithmRequest& request) {
  return by_rule(request, model_parallel(request.problem(), request.evaluator.cost_model()),
                 "operators in topological order, contiguous stages of balanced time, a device each");
}

AlgorithmResult run_expert(const AlgorithmRequest& request) {
  ExpertStrategy expert = expert_strategy(request.problem(), request.evaluator.cost_model());
  return by_rule(request, std::move(expert.strategy), std::move(expert.note));
}

AlgorithmResult run_megatron(const AlgorithmRequest& request) {
  std::optional<MegatronStrategy> found = megatron(request.graph(), request.topology());
  if (!found)
    throw NotApplicable("megatron: " + request.graph().name +
                        " has no multi_head_attention; this is a strategy for transformers");
  return by_rule(request, std::move(found->strategy),
                 "tensor and sequence parallelism of " + std::to_string(found->tensor_degree) +
                     " devices within a node, data parallelism of " + std::to_string(found->data_degree));
}

AlgorithmResult run_gshard(const AlgorithmRequest& request) {
  std::optional<Strategy> found = gshard(request.graph(), request.topology());
  if (!found)
    throw NotApplicable("gshard: " + request.graph().name +
                        " has no experts; this is a strategy for mixtures of experts");
  return by_rule(request, *std::move(found), "experts over all devices, everything else split by sample");
}

AlgorithmResult run_propagate(const AlgorithmRequest& request) {
  return of(propagate(request.problem()), request.problem().annotations
                                              ? "what is annotated, and from there on what moves the fewest bytes"
                                              : "nothing is annotated: data parallelism");
}

// OptCNN puts part p on device p and gives operators of one kind that share parameters one configuration.
void expect_optcnn_keeps_annotations(const AlgorithmRequest& request) {
  if (!request.problem().annotations) return;
  const int devices = request.topology().devices.count();
  for (const OperatorId op : request.graph().operator_ids()) {
    if (const Vector<DeviceId>* fixed = request.space.fixed_devices(op))
      for (const int part : fixed->indices())
        if ((*fixed)[part] != part) cannot_keep(request, "optcnn", op, "as it puts part p on device p");
    for (const Degrees& degrees : request.space.degrees(op))
      if (parts_of(degrees) > devices) cannot_keep(request, "optcnn", op, "as it puts part p on device p");
  }
  for (const Vector<OperatorId>& sharing : parameter_sharing_layers(request.graph()))
    for (const OperatorId op : sharing)
      for (const OperatorId other : sharing) {
        const auto &a = request.space.degrees(op), &b = request.space.degrees(other);
        if (request.problem().annotations->find(op) &&
            request.graph().operators[op].definition->type() == request.graph().operators[other].definition->type() &&
            std::none_of(a.begin(), a.end(),
                         [&](const Degrees& degrees) { return std::find(b.begin(), b.end(), degrees) != b.end(); }))
          cannot_keep(request, "optcnn", op,
                      "as it gives one configuration to all that share its parameters, " +
                          request.graph().operators[other].name + " too");
      }
}

AlgorithmResult run_optcnn(const AlgorithmRequest& request) {
  expect_optcnn_keeps_annotations(request);
  const auto found = optcnn(request.evaluator, request.space,
                            request.thorough ? thorough_steps : quick_steps * request.effort, &request.control);
  if (!found && request.thorough && request.control.stop)
    throw MachineError("interrupted while optcnn computed its cost tables; nothing was written");
  if (!found && request.control.deadline.passed()) throw NoTimeLeft("optcnn: no time is left for its cost tables");
  if (!found)
    throw NotApplicable("optcnn: the cost tables of " + request.graph().name + " on " +
                        std::to_string(request.topology().devices.size()) +
                        " devices are too large; use fewer devices or another algorithm");
  const bool proven = found->not_eliminated == 0 && !found->groups_are_split;
  std::string note =
      std::to_string(request.graph().operators.size()) + " operators as " + std::to_string(found->layers) + " layers; ";
  if (found->not_eliminated > 0)
    note += std::to_string(found->not_eliminated) +
            " layers could not be eliminated: not proven best for its own cost model";
  else if (found->groups_are_split)
    note += "operators of different kinds share parameters: their synchronization is estimated";
  else note += "best for its own cost model, in which nothing overlaps";
  AlgorithmResult result = of(found->strategy, std::move(note));
  result.details["optcnn"] = {{"layers", found->layers},
                              {"not_eliminated", found->not_eliminated},
                              {"proven", proven},
                              {"objective_us", static_cast<double>(found->objective) / 1e3}};
  return result;
}

// Sub-clusters larger than this are tried with data parallelism alone; a smaller one takes optcnn where its tables take
// this share of quick_steps.
constexpr int most_devices_of_all_algorithms = 64;
constexpr double sub_cluster_effort = 0.2;

struct SubClusterStrategy {
  std::string algorithm;
  int devices = 0;
  Strategy on_whole;
  double cost = 0;  // on the whole cluster
};

// The best of the cheap algorithms on all sub-clusters, from the largest down to where the time that no strategy beats
// is longer than the best found.
SubClusterStrategy best_on_sub_clusters(const AlgorithmRequest& request) {
  SubClusterStrategy best;
  const Vector<int> sizes = sub_cluster_sizes(request.topology());
  for (auto size = sizes.rbegin(); size != sizes.rend() && !request.control.ended(); ++size) {
    const SubCluster part = sub_cluster(request.topology(), *size);
    const SearchSpace space(request.graph(), part.topology);
    Evaluator evaluator(
        {request.graph(), part.topology, request.problem().kernels, nullptr, request.problem().synchronization});
    const bool large = *size > most_devices_of_all_algorithms;
    if (best.devices > 0 && !large &&
        static_cast<double>(lower_bound(evaluator.problem(), space, evaluator.cost_model())) >= best.cost)
      break;
    const AlgorithmRequest own{.evaluator = evaluator,
                               .space = space,
                               .settings = {.search = request.settings.search},
                               .control = {request.control.stop, nullptr, request.control.deadline},
                               .thorough = false,
                               .effort = sub_cluster_effort};
    for (const Algorithm& algorithm : algorithms()) {
      // On one device all algorithms do the same.
      if (!algorithm.cheap || algorithm.name == "sub-cluster" || algorithm.name == "propagate" ||
          (algorithm.name == "single-device") != (*size == 1))
        continue;
      if (large && algorithm.name != "data-parallel") continue;
      if (best.devices > 0 && request.control.ended()) break;
      try {
        Strategy strategy = part.on_whole(algorithm.run(own).strategy);
        const double cost = request.evaluator.evaluate(strategy).cost;
        if (best.devices == 0 || cost < best.cost || (cost == best.cost && *size < best.devices))
          best = {algorithm.name, *size, std::move(strategy), cost};
      } catch (const NotApplicable&) {}
    }
  }
  if (best.devices == 0) throw NoTimeLeft("sub-cluster: no time is left");
  return best;
}

AlgorithmResult run_sub_cluster(const AlgorithmRequest& request) {
  if (request.problem().annotations)
    throw NotApplicable("sub-cluster: does not keep to annotations, which are for all devices");
  SubClusterStrategy best = best_on_sub_clusters(request);
  AlgorithmResult result =
      of(std::move(best.on_whole), best.algorithm + " on " + std::to_string(best.devices) + " of " +
                                       std::to_string(request.topology().devices.size()) + " devices, the others idle");
  result.details["sub_cluster"] = {{"algorithm", best.algorithm}, {"devices", best.devices}};
  return result;
}

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

// The cheap algorithms' strategies that a search looks at.
struct CheapCandidates {
  Vector<Candidate> list;
  Vector<std::string> no_time;  // those that the deadline left out
};

// Those that --init names; all of them where it names none, or the best. Those that do not apply are left out unless
// named, and so are those for which there is no time, but for the first.
CheapCandidates cheap_candidates(const AlgorithmRequest& request, const Deadline& deadline) {
  const Vector<std::string>& init = request.settings.init;
  const bool all = init.empty() || contains(init, "best");
  CheapCandidates result;
  for (const Algorithm& algorithm : algorithms()) {
    const bool named = contains(init, algorithm.name);
    if (!algorithm.cheap || (!all && !named)) continue;
    // Without annotations it is data parallelism once more.
    if (algorithm.name == "propagate" && !request.problem().annotations && !named) continue;
    if (!named && !result.list.empty() && deadline.left_s() < request.evaluator.slowest_s()) {
      result.no_time.push_back(algorithm.name);
      continue;
    }
    AlgorithmRequest own = request;
    own.thorough = named;
    own.control.deadline = named ? Deadline() : deadline.before(request.evaluator.slowest_s());
    try {
      Candidate candidate{algorithm.name, algorithm.run(own).strategy};
      if (request.settings.search.whole_operators && !whole(candidate.strategy)) continue;
      candidate.prediction = request.evaluator.evaluate(candidate.strategy);
      result.list.push_back(std::move(candidate));
    } catch (const NoTimeLeft&) {
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

// What each chain starts from. `best` is one of the cheap candidates.
Vector<Candidate> chain_starts(const AlgorithmRequest& request, const Vector<Candidate>& cheap, const Candidate* best) {
  const McmcSettings& search = request.settings.search;
  const Vector<std::string> init = request.settings.init.empty()
                                       ? default_init(search, request.problem().annotations, best->name)
                                       : request.settings.init;
  const SearchSpace space(request.graph(), request.topology(), search.whole_operators, request.problem().annotations);
  RandomStream random(search.seed, ~uint64_t{0});
  Vector<Candidate> starts;
  for (int chain = 0; chain < search.chains; ++chain) {
    const std::string& name = init[std::min(chain, init.count() - 1)];
    if (name == "random") {
      starts.push_back({name, space.random_strategy(random)});
    } else if (name == "best") {
      starts.push_back(*best);
    } else {
      const auto found =
          std::find_if(cheap.begin(), cheap.end(), [&](const Candidate& candidate) { return candidate.name == name; });
      if (found == cheap.end()) throw InputError("--init: \"" + name + "\" splits operators, which placement does not");
      starts.push_back(*found);
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
                                     {"before_us", static_cast<double>(chains.best_prediction.makespan) / 1e3},
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
std::string no_time_text(const CheapCandidates& cheap, const McmcSettings& search, const McmcResult& chains) {
  std::string text;
  for (const std::string& name : cheap.no_time) text += (text.empty() ? "" : ", ") + name;
  if (chains.chains_without_time > 0)
    text += (text.empty() ? "" : ", ") + std::to_string(chains.chains_without_time) + " of " +
            std::to_string(search.chains) + " chains";
  return text.empty() ? "" : "; no time for " + text;
}

// In evaluations, which nothing cuts short: of the found strategy once more, with its memory and in two orders of
// tasks, of a cheap one likewise, and of what a chain has still to verify; and of a chain's first one, which is
// recorded.
constexpr double evaluations_of_result = 9, evaluations_of_start = 2;

// A search without a limit ends when nothing better is to be expected, and then at the latest; chains that do not know
// of each other have so long together.
constexpr double most_s_until_settled = 120, independent_chains_s = 30;

// Where memory is short a strategy has to get slower for long before it fits: chains that compete end too early.
constexpr int chains_to_fit = 2;

AlgorithmResult run_chains(AlgorithmRequest request, bool whole_operators);

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
      request.problem().annotations || !request.settings.init.empty() || request.control.stop)
    return std::nullopt;
  const std::optional<CoarseProblem> coarse = coarse_problem(request.problem(), coarse_copies(request.topology()));
  if (!coarse) return std::nullopt;
  const Topology& topology = coarse->cluster.topology;
  const SearchSpace space(coarse->graph, topology);
  Evaluator evaluator({coarse->graph, topology, request.problem().kernels, nullptr, request.problem().synchronization});
  AlgorithmRequest own{
      .evaluator = evaluator, .space = space, .settings = {.search = search}, .control = {request.control.stop}};
  if (request.control.progress)
    own.control.progress = [&](SearchProgress now) {
      if (now.devices == 0) now.devices = topology.devices.count();
      request.control.progress(now);
    };
  own.settings.search.unequal_shares = false;
  own.settings.search.no_better_than = 0;
  own.settings.search.proposals = search.proposals / 2;
  if (deadline.limited()) {
    own.settings.search.budget_s = deadline.left_s() / 2;
    own.control.deadline = Deadline(own.settings.search.budget_s);
    if (own.settings.search.budget_s < 2 * request.evaluator.slowest_s()) return std::nullopt;
  }
  AlgorithmResult found = run_chains(own, false);
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

AlgorithmResult run_chains(AlgorithmRequest request, bool whole_operators) {
  if (whole_operators) expect_nothing_annotated_is_split(request);
  McmcSettings& search = request.settings.search;
  search.whole_operators = whole_operators;
  if (search.budget_s <= 0 && search.proposals == 0) {
    search.until_settled = search.proposals_from == ProposalKind::structured;
    search.budget_s = search.until_settled ? most_s_until_settled : independent_chains_s;
  }
  const Deadline deadline = request.control.deadline.limited() ? request.control.deadline : Deadline(search.budget_s);
  // Half of the budget is for the chains.
  const CheapCandidates cheap = cheap_candidates(request, deadline.before(search.budget_s / 2));
  AlgorithmResult result;
  for (const Candidate& candidate : cheap.list)
    result.baselines.push_back(
        {candidate.name, candidate.prediction->makespan, candidate.prediction->feasible(), candidate.strategy});
  search.slices = !cheap.list.empty() && !best_of(cheap.list).prediction->feasible();
  if (search.slices && search.proposals_from == ProposalKind::structured) {
    search.proposals_from = ProposalKind::mixed;
    search.chains = std::min(search.chains, chains_to_fit);
  }
  const std::optional<CoarseLevel> coarse = search_coarse_level(request, deadline);
  if (coarse && search.proposals > 0) search.proposals -= coarse->chains.proposals;
  Vector<Candidate> known = cheap.list;
  if (coarse) known.push_back(coarse->candidate);
  const Vector<Candidate> starts = chain_starts(request, known, known.empty() ? nullptr : &best_of(known));
  if (deadline.limited()) {
    const double evaluation_s = request.evaluator.slowest_s();
    search.start_s = evaluations_of_start * evaluation_s;
    search.budget_s = std::max(1e-9, deadline.left_s() - evaluations_of_result * evaluation_s);
    if (search.until_settled && search.slices) search.budget_s = std::min(search.budget_s, independent_chains_s);
  }
  result.chains = search_mcmc(request.problem(), starts, search, request.control, known);
  if (coarse) add_level(*result.chains, coarse->chains);
  result.strategy = result.chains->best;
  const auto unbeaten = std::find_if(cheap.list.begin(), cheap.list.end(),
                                     [&](const Candidate& candidate) { return candidate.strategy == result.strategy; });
  result.note = (unbeaten != cheap.list.end() ? "nothing better than " + unbeaten->name + " was found"
                                              : "found from " + result.chains->best_from) +
                no_time_text(cheap, search, *result.chains);
  if (request.settings.check_local) check_locally(request, result);
  return result;
}

AlgorithmResult run_exhaustive(const AlgorithmRequest& request) {
  if (!request.thorough) throw NotApplicable("exhaustive: takes longer than a baseline may");
  if (request.problem().synchronization == Synchronization::owner)
    throw NotApplicable("exhaustive: its bounds are for --synchronization all-reduce, not for owner");
  for (const OperatorId op : request.graph().operator_ids())
    if (request.space.fixed_devices(op)) cannot_keep(request, "exhaustive", op, "as it takes devices for exchangeable");
  const McmcSettings& search = request.settings.search;
  const bool all = request.settings.assignments == exhaustive::Assignments::all;
  exhaustive::Settings settings{.budget_s = search.budget_s,
                                .nodes = search.proposals,
                                .seed = search.seed,
                                .assignments = request.settings.assignments};
  if (settings.nodes > 0) settings.proposals = std::min(settings.proposals, settings.nodes);
  const exhaustive::Result found = exhaustive::search(request.problem(), settings, request.control);
  if (found.too_large)
    throw NotApplicable("exhaustive: the strategies of " + request.graph().name + " on " +
                        std::to_string(request.topology().devices.size()) +
                        " devices are too many to be laid out (more than 8 parts an operator or 100,000 "
                        "configurations); use fewer devices or mcmc");
  const double best = found.best_prediction.cost, bound = static_cast<double>(found.lower_bound);
  const double gap = best > 0 ? std::max(0.0, 1 - bound / best) : 0.0;
  char proof[100] = "proven best", note[200];
  if (!found.proven)
    std::snprintf(proof, sizeof proof, "not proven best (none is below %.3f ms, a gap of %.1f %%)", bound / 1e6,
                  100 * gap);
  std::snprintf(note, sizeof note, "%s, of 10^%.1f strategies, %s", proof, found.log10_size,
                all ? "every part on any device" : "parts on consecutive devices");
  AlgorithmResult result = of(found.best, note);
  result.details["exhaustive"] = {{"proven", found.proven},
                                  {"gap", gap},
                                  {"proven_lower_bound_us", bound / 1e3},
                                  {"assignments", all ? "all" : "consecutive"},
                                  {"log10_strategies", found.log10_size},
                                  {"symmetries", found.symmetries},
                                  {"nodes", found.nodes},
                                  {"leaves", found.leaves},
                                  {"interrupted", found.interrupted}};
  return result;
}

AlgorithmResult run_reinforce(const AlgorithmRequest& request) {
  if (request.problem().annotations)
    throw NotApplicable("reinforce: does not keep to annotations, as it places groups of operators");
  const McmcSettings& search = request.settings.search;
  const ReinforceResult found = search_reinforce(
      request.problem(), {.evaluations = search.proposals, .budget_s = search.budget_s, .seed = search.seed},
      request.control);
  AlgorithmResult result = of(found.best, std::to_string(found.groups) + " co-location groups placed; the best of " +
                                              std::to_string(found.evaluations) + " placements");
  result.details["reinforce"] = {{"evaluations", found.evaluations},
                                 {"best_found_at", found.best_found_at},
                                 {"groups", found.groups},
                                 {"final_entropy", found.final_entropy}};
  return result;
}

}  // namespace

const Vector<Algorithm>& algorithms() {
  static const Vector<Algorithm> list{
      {"data-parallel", "all operators split by sample over all devices", true, run_data_parallel},
      {"single-device", "everything on the first device", true, run_single_device},
      {"model-parallel", "contiguous stages of balanced time, a device each", true, run_model_parallel},
      {"expert", "what experts do by hand for convolutional and for recurrent networks", true, run_expert},
      {"megatron", "transformers: tensor and sequence parallelism within a node, data parallelism across", true,
       run_megatron},
      {"gshard", "mixtures of experts: experts over all devices, all else by sample", true, run_gshard},
      {"propagate", "completes --annotations by data flow; without any, data parallelism", true, run_propagate},
      {"optcnn", "best degrees layer by layer if nothing overlapped, by dynamic programming", true, run_optcnn},
      {"sub-cluster", "the best of the above on a part of the devices, the others idle", true, run_sub_cluster},
      {"placement", "one device an operator, by mcmc", false,
       [](const AlgorithmRequest& request) { return run_chains(request, true); }},
      {"reinforce", "one device an operator, learned by policy gradient with the simulator as environment", false,
       run_reinforce},
      {"exhaustive", "the proven optimum of small problems, or how far from proven", false, run_exhaustive},
      {"mcmc", "degrees and devices by Markov Chain Monte Carlo search", false,
       [](const AlgorithmRequest& request) { return run_chains(request, false); }},
  };
  return list;
}

Vector<std::string> algorithm_names() {
  Vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) names.push_back(algorithm.name);
  return names;
}

Vector<std::string> cheap_algorithm_names() {
  Vector<std::string> names;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.cheap) names.push_back(algorithm.name);
  return names;
}

AlgorithmResult run_algorithm(const std::string& name, const AlgorithmRequest& request) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.name != name) continue;
    const auto begin = std::chrono::steady_clock::now();
    AlgorithmResult result = algorithm.run(request);
    result.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }
  throw InputError("--algorithm: there is no \"" + name + "\"" + suggestion(name, algorithm_names()));
}

}  // namespace ff
