#include "search/optimizer/algorithms.h"

#include <algorithm>
#include <chrono>

#include "search/optimizer/exhaustive/search.h"
#include "search/optimizer/baselines/expert.h"
#include "search/optimizer/mcmc/local_optimum.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/baselines/model_parallel.h"
#include "search/optimizer/baselines/optcnn.h"
#include "search/optimizer/baselines/reinforce.h"
#include "search/optimizer/baselines/sub_cluster.h"

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

AlgorithmResult run_data_parallel(const AlgorithmRequest& request) {
  return of(data_parallel(request.graph, request.topology), "every operator split by sample over all devices");
}

AlgorithmResult run_single_device(const AlgorithmRequest& request) {
  return of(single_device(request.graph), "every operator on device " + request.topology.devices[0].name);
}

AlgorithmResult run_model_parallel(const AlgorithmRequest& request) {
  return of(model_parallel(request.graph, request.topology, request.evaluator.cost_model()),
            "operators in topological order, contiguous stages of balanced time, a device each");
}

AlgorithmResult run_expert(const AlgorithmRequest& request) {
  ExpertStrategy expert = expert_strategy(request.graph, request.topology, request.evaluator.cost_model());
  return of(std::move(expert.strategy), std::move(expert.note));
}

AlgorithmResult run_optcnn(const AlgorithmRequest& request) {
  const auto found = optcnn(
      request.graph, request.topology, request.space, request.evaluator.builder(), request.evaluator.cost_model(),
      request.thorough ? thorough_steps : quick_steps * request.effort, request.thorough ? &request.stop : nullptr);
  if (!found && request.thorough && request.stop)
    throw MachineError("interrupted while optcnn computed its cost tables; nothing was written");
  if (!found)
    throw NotApplicable("optcnn: the cost tables of " + request.graph.name + " on " +
                        std::to_string(request.topology.devices.size()) +
                        " devices are too large; use fewer devices or another algorithm");
  const bool proven = found->not_eliminated == 0 && !found->groups_are_split;
  std::string note =
      std::to_string(request.graph.operators.size()) + " operators as " + std::to_string(found->layers) + " layers; ";
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
  const Vector<int> sizes = sub_cluster_sizes(request.topology);
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    const SubCluster part = sub_cluster(request.topology, *size);
    const SearchSpace space(request.graph, part.topology);
    Evaluator evaluator(request.graph, part.topology, request.kernels);
    const bool large = *size > most_devices_of_all_algorithms;
    if (best.devices > 0 && !large &&
        static_cast<double>(lower_bound(request.graph, part.topology, space, evaluator.cost_model())) >= best.cost)
      break;
    const AlgorithmRequest own{
        request.graph, part.topology,       request.kernels, space,        evaluator, request.search,    {},
        false,         request.assignments, false,           request.stop, nullptr,   sub_cluster_effort};
    for (const Algorithm& algorithm : algorithms()) {
      // On one device all algorithms do the same.
      if (!algorithm.cheap || algorithm.name == "sub-cluster" || (algorithm.name == "single-device") != (*size == 1))
        continue;
      if (large && algorithm.name != "data-parallel") continue;
      try {
        Strategy strategy = part.on_whole(algorithm.run(own).strategy);
        const double cost = request.evaluator.evaluate(strategy).cost;
        if (best.devices == 0 || cost < best.cost || (cost == best.cost && *size < best.devices))
          best = {algorithm.name, *size, std::move(strategy), cost};
      } catch (const NotApplicable&) {}
    }
  }
  return best;
}

AlgorithmResult run_sub_cluster(const AlgorithmRequest& request) {
  SubClusterStrategy best = best_on_sub_clusters(request);
  AlgorithmResult result =
      of(std::move(best.on_whole), best.algorithm + " on " + std::to_string(best.devices) + " of " +
                                       std::to_string(request.topology.devices.size()) + " devices, the others idle");
  result.details["sub_cluster"] = {{"algorithm", best.algorithm}, {"devices", best.devices}};
  return result;
}

bool whole(const Strategy& strategy) {
  return std::all_of(strategy.begin(), strategy.end(),
                     [](const Configuration& configuration) { return configuration.parts() == 1; });
}

// The cheap algorithms' strategies that a search looks at: all of them, or the named ones. Those that do not apply are
// left out unless named.
Vector<Candidate> candidates(const AlgorithmRequest& request, bool all, bool whole_operators) {
  Vector<Candidate> result;
  for (const Algorithm& algorithm : algorithms()) {
    const bool named = std::find(request.init.begin(), request.init.end(), algorithm.name) != request.init.end();
    if (!algorithm.cheap || (!all && !named)) continue;
    AlgorithmRequest own = request;
    own.thorough = named;
    try {
      Candidate candidate{algorithm.name, algorithm.run(own).strategy};
      if (!whole_operators || whole(candidate.strategy)) result.push_back(std::move(candidate));
    } catch (const NotApplicable&) {
      if (named) throw;
    }
  }
  return result;
}

void check_locally(const AlgorithmRequest& request, AlgorithmResult& result) {
  const SearchSpace space(request.graph, request.topology, request.search.whole_operators);
  const Neighbourhood neighbourhood(request.graph, request.topology, space);
  const double before_s = result.chains->elapsed_s;
  const auto progress = [&](int64_t evaluated, Nanoseconds best) {
    if (request.progress)
      request.progress({before_s, result.chains->proposals + evaluated, result.chains->accepted, best, best});
  };
  const LocalOptimum optimum = local_optimum(request.graph, request.topology, request.kernels, neighbourhood,
                                             result.strategy, request.search.simulator, request.stop, progress);
  const Nanoseconds before = result.chains->best_evaluation.makespan;
  result.strategy = optimum.strategy;
  if (optimum.improvements > 0)
    result.note = "found from " + result.chains->best_from + ", and then by changes of one operator";
  result.details["local_optimum"] = {{"proven", optimum.proven},
                                     {"neighbourhood", neighbourhood.text()},
                                     {"neighbours", optimum.neighbours},
                                     {"evaluated", optimum.evaluated},
                                     {"operators", optimum.operators},
                                     {"improvements", optimum.improvements},
                                     {"before_us", static_cast<double>(before) / 1e3},
                                     {"elapsed_s", optimum.elapsed_s}};
}

// Data parallelism as the paper has it, the best existing strategy, and random ones. Why not the best alone:
// docs/algorithms.md.
Vector<std::string> default_init(bool whole_operators, const std::string& best) {
  if (whole_operators) return {"best", "random"};
  if (best == "data-parallel") return {"data-parallel", "random"};
  return {"data-parallel", "best", "random"};
}

AlgorithmResult run_chains(const AlgorithmRequest& request, bool whole_operators) {
  AlgorithmRequest own = request;
  own.search.whole_operators = whole_operators;
  const bool all = request.init.empty();
  const bool wants_best = std::find(request.init.begin(), request.init.end(), "best") != request.init.end();
  const Vector<Candidate> cheap = candidates(own, all || wants_best, whole_operators);
  AlgorithmResult result;
  const Candidate* best = nullptr;
  double least = 0;
  for (const Candidate& candidate : cheap) {
    const Evaluation evaluation = request.evaluator.evaluate(candidate.strategy);
    result.baselines.push_back({candidate.name, evaluation.makespan, evaluation.feasible});
    if (best && evaluation.cost >= least) continue;
    best = &candidate;
    least = evaluation.cost;
  }
  const Vector<std::string> init = all ? default_init(whole_operators, best->name) : request.init;
  const SearchSpace space(request.graph, request.topology, whole_operators);
  RandomStream random(request.search.seed, ~uint64_t{0});
  Vector<Candidate> starts;
  for (int chain = 0; chain < request.search.chains; ++chain) {
    const std::string& name = init[std::min(static_cast<size_t>(chain), init.size() - 1)];
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
  result.chains = search_mcmc(request.graph, request.topology, request.kernels, starts, own.search, request.stop,
                              request.progress, cheap);
  result.strategy = result.chains->best;
  const auto unbeaten = std::find_if(cheap.begin(), cheap.end(),
                                     [&](const Candidate& candidate) { return candidate.strategy == result.strategy; });
  result.note = unbeaten != cheap.end() ? "nothing better than " + unbeaten->name + " was found"
                                        : "found from " + result.chains->best_from;
  if (request.check_local) check_locally(own, result);
  return result;
}

AlgorithmResult run_exhaustive(const AlgorithmRequest& request) {
  if (!request.thorough) throw NotApplicable("exhaustive: takes longer than a baseline may");
  const auto progress = [&](const ExhaustiveProgress& now) {
    if (request.progress) request.progress({now.elapsed_s, now.nodes, now.leaves, now.lower_bound, now.best});
  };
  ExhaustiveSettings settings{.budget_s = request.search.budget_s,
                              .nodes = request.search.proposals,
                              .seed = request.search.seed,
                              .assignments = request.assignments};
  if (settings.nodes > 0) settings.proposals = std::min(settings.proposals, settings.nodes);
  const ExhaustiveResult found =
      search_exhaustive(request.graph, request.topology, request.kernels, settings, request.stop, progress);
  if (found.too_large)
    throw NotApplicable("exhaustive: the strategies of " + request.graph.name + " on " +
                        std::to_string(request.topology.devices.size()) +
                        " devices are too many to be laid out (more than 8 parts an operator or 100,000 "
                        "configurations); use fewer devices or mcmc");
  const double best = found.best_evaluation.cost, bound = static_cast<double>(found.lower_bound);
  const double gap = best > 0 ? std::max(0.0, 1 - bound / best) : 0.0;
  char proof[100] = "proven best", note[200];
  if (!found.proven)
    std::snprintf(proof, sizeof proof, "not proven best (none is below %.3f ms, a gap of %.1f %%)", bound / 1e6,
                  100 * gap);
  std::snprintf(note, sizeof note, "%s, of 10^%.1f strategies, %s", proof, found.log10_size,
                request.assignments == Assignments::all ? "every part on any device" : "parts on consecutive devices");
  AlgorithmResult result = of(found.best, note);
  result.details["exhaustive"] = {{"proven", found.proven},
                                  {"gap", gap},
                                  {"proven_lower_bound_us", bound / 1e3},
                                  {"assignments", request.assignments == Assignments::all ? "all" : "consecutive"},
                                  {"log10_strategies", found.log10_size},
                                  {"symmetries", found.symmetries},
                                  {"nodes", found.nodes},
                                  {"leaves", found.leaves},
                                  {"interrupted", found.interrupted}};
  return result;
}

AlgorithmResult run_reinforce(const AlgorithmRequest& request) {
  const auto progress = [&](const ReinforceProgress& now) {
    if (request.progress) request.progress({now.elapsed_s, now.evaluations, 0, now.best, now.best});
  };
  const ReinforceResult found = search_reinforce(
      request.graph, request.topology, request.kernels,
      {.evaluations = request.search.proposals, .budget_s = request.search.budget_s, .seed = request.search.seed},
      request.stop, progress);
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
