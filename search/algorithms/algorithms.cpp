#include "search/algorithms/algorithms.h"

#include <algorithm>
#include <chrono>

#include "search/algorithms/mcmc.h"
#include "search/optimizer/baselines/expert.h"
#include "search/optimizer/baselines/gshard.h"
#include "search/optimizer/baselines/megatron.h"
#include "search/optimizer/baselines/model_parallel.h"
#include "search/optimizer/baselines/optcnn.h"
#include "search/optimizer/baselines/pipeline.h"
#include "search/optimizer/baselines/propagate.h"
#include "search/optimizer/baselines/reinforce.h"
#include "search/optimizer/baselines/sub_cluster.h"
#include "search/optimizer/exhaustive/search.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/operator_groups.h"

namespace ff {
namespace {

// Pairs of blocks that OptCNN's tables may look at: one or two seconds, and an hour.
constexpr double quick_steps = 1e8, thorough_steps = 1e11;

// Where there are more devices, sub-clusters are tried with data parallelism alone, and pipelines are not tried by a
// search, whose level of fewer devices does.
constexpr int most_devices_of_all_algorithms = 64;

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

AlgorithmResult run_data_parallel(const AlgorithmRequest& request) {
  return by_rule(request, data_parallel(request.graph(), request.topology()),
                 "every operator split by sample over all devices");
}

AlgorithmResult run_single_device(const AlgorithmRequest& request) {
  const DeviceId first = request.topology().by_links()[0];
  return by_rule(request, single_device(request.graph(), first),
                 "every operator on device " + request.topology().devices[first].name);
}

AlgorithmResult run_model_parallel(const AlgorithmRequest& request) {
  return by_rule(request, model_parallel(request.problem(), request.evaluator.cost_model()),
                 "operators in topological order, contiguous stages of balanced time, a device each");
}

AlgorithmResult run_expert(const AlgorithmRequest& request) {
  ExpertStrategy expert = expert_strategy(request.problem(), request.evaluator.cost_model());
  return by_rule(request, std::move(expert.strategy), std::move(expert.note));
}

AlgorithmResult run_pipeline(const AlgorithmRequest& request) {
  if (!request.thorough && request.topology().devices.count() > most_devices_of_all_algorithms)
    throw NotApplicable("pipeline: takes longer than a baseline may");
  if (request.topology().devices.size() == 1) throw NotApplicable("pipeline: one device is one stage");
  std::optional<Pipeline> found = pipeline(request.evaluator, request.control);
  if (!found)
    throw NotApplicable(
        "pipeline: no layer of " + request.graph().name +
        " has several steps; this is a strategy for unrolled recurrent networks, and with --micro-batches for any");
  std::string devices;
  for (const int count : found->devices) devices += (devices.empty() ? "" : ", ") + std::to_string(count);
  AlgorithmResult result = by_rule(
      request, std::move(found->strategy),
      "layers in stages, split by sample over " + devices + " devices, " +
          (found->across_nodes ? "each stage across nodes" : "each stage on neighbouring devices") +
          (found->chunks > 1 ? ", " + std::to_string(found->chunks) + " chunks of layers each (interleaved)" : ""));
  result.prediction = found->prediction;
  return result;
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
    return by_rule(request, data_parallel(request.graph(), request.topology()),
                   "interrupted before the cost tables were complete: data parallelism, not what optcnn would find");
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
                              {"objective_us", to_us(found->objective)}};
  return result;
}

// Sub-clusters take optcnn where its tables take this share of quick_steps.
constexpr double sub_cluster_effort = 0.2;

struct SubClusterStrategy {
  std::string algorithm;
  int devices = 0;
  Strategy on_whole;
  double cost = 0;  // on the whole cluster
};

// The best of the heuristic baselines on all sub-clusters, from the largest down to where the time that no strategy
// beats is longer than the best found.
SubClusterStrategy best_on_sub_clusters(const AlgorithmRequest& request) {
  SubClusterStrategy best;
  const Vector<int> sizes = sub_cluster_sizes(request.topology());
  for (auto size = sizes.rbegin(); size != sizes.rend() && !request.control.ended(); ++size) {
    const SubCluster part = sub_cluster(request.topology(), *size);
    const SearchSpace space(request.graph(), part.topology);
    Evaluator evaluator(request.problem().with(request.graph(), part.topology));
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
      if (!algorithm.baseline || algorithm.name == "sub-cluster" || algorithm.name == "propagate" ||
          (algorithm.name == "single-device") != (*size == 1))
        continue;
      if (large && algorithm.name != "data-parallel") continue;
      if (best.devices > 0 && request.control.ended()) break;
      try {
        Strategy strategy = part.on_whole(algorithm.run(own).strategy);
        const Prediction prediction = request.evaluator.evaluate(strategy);
        const double cost = prediction.cost;
        if (request.control.found) request.control.found(strategy, prediction);
        if (best.devices == 0 || cost < best.cost || (cost == best.cost && *size < best.devices))
          best = {algorithm.name, *size, std::move(strategy), cost};
      } catch (const NotApplicable&) {
      } catch (const GivenUp&) {
        if (best.devices == 0) throw;
      }
    }
  }
  if (best.devices == 0) throw NoTimeLeft("sub-cluster: no time is left");
  return best;
}

AlgorithmResult run_sub_cluster(const AlgorithmRequest& request) {
  if (request.problem().annotations)
    throw NotApplicable("sub-cluster: does not keep to annotations, which are for all devices");
  if (request.thorough && request.control.stop)
    return by_rule(request, data_parallel(request.graph(), request.topology()),
                   "interrupted before any sub-cluster was looked at: data parallelism on all devices");
  SubClusterStrategy best = best_on_sub_clusters(request);
  AlgorithmResult result =
      of(std::move(best.on_whole), best.algorithm + " on " + std::to_string(best.devices) + " of " +
                                       std::to_string(request.topology().devices.size()) + " devices, the others idle");
  result.details["sub_cluster"] = {{"algorithm", best.algorithm}, {"devices", best.devices}};
  return result;
}

AlgorithmResult run_exhaustive(const AlgorithmRequest& request) {
  if (!request.thorough) throw NotApplicable("exhaustive: takes longer than a baseline may");
  if (const Synchronization used = request.problem().settings.synchronization; used != Synchronization::all_reduce)
    throw NotApplicable("exhaustive: its bounds are for --synchronization all-reduce, not for " +
                        std::string(to_string(used)));
  if (request.problem().settings.micro_batches > 1)
    throw NotApplicable("exhaustive: its bounds are for one micro-batch");
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

void cannot_keep(const AlgorithmRequest& request, const std::string& algorithm, OperatorId op, const std::string& why) {
  throw NotApplicable(algorithm + ": cannot keep to the annotation of " + request.graph().operators[op].name + " (" +
                      request.problem().annotations->text(op) + "), " + why);
}

const Vector<Algorithm>& algorithms() {
  static const Vector<Algorithm> list{
      {"data-parallel", "all operators split by sample over all devices", true, run_data_parallel},
      {"single-device", "everything on the first device", true, run_single_device},
      {"model-parallel", "contiguous stages of balanced time, a device each", true, run_model_parallel},
      {"expert", "what experts do by hand for convolutional and for recurrent networks", true, run_expert},
      {"pipeline",
       "recurrent networks, or with micro-batches: layers in stages, each on own devices, split there by sample", true,
       run_pipeline},
      {"megatron", "transformers: tensor and sequence parallelism within a node, data parallelism across", true,
       run_megatron},
      {"gshard", "mixtures of experts: experts over all devices, all else by sample", true, run_gshard},
      {"propagate", "completes --annotations by data flow; without any, data parallelism", true, run_propagate},
      {"optcnn", "best degrees layer by layer if nothing overlapped, by dynamic programming", true, run_optcnn},
      {"sub-cluster", "the best of the above on a part of the devices, the others idle", true, run_sub_cluster},
      {"placement", "one device an operator, by mcmc", false,
       [](const AlgorithmRequest& request) { return search_by_chains(request, true); }},
      {"reinforce", "one device an operator, learned by policy gradient with the simulator as environment", false,
       run_reinforce},
      {"exhaustive", "the proven optimum of small problems, or how far from proven", false, run_exhaustive},
      {"mcmc", "degrees and devices by Markov Chain Monte Carlo search", false,
       [](const AlgorithmRequest& request) { return search_by_chains(request, false); }},
  };
  return list;
}

Vector<std::string> algorithm_names() {
  Vector<std::string> names;
  for (const Algorithm& algorithm : algorithms()) names.push_back(algorithm.name);
  return names;
}

Vector<std::string> heuristic_baseline_names() {
  Vector<std::string> names;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.baseline) names.push_back(algorithm.name);
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
