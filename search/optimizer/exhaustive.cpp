#include "search/optimizer/exhaustive.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "search/optimizer/exhaustive_prefix.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/mcmc.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

// Costs are whole nanoseconds, or more for strategies that do not fit; a strategy costs less than `cost` if its bound does.
Nanoseconds limit_of(double cost) { return static_cast<Nanoseconds>(std::ceil(cost)); }

class Search {
 public:
  Search(const Graph& graph, const Topology& topology, KernelCosts& kernels, const ExhaustiveSettings& settings, const std::atomic<bool>& stop,
         const std::function<void(const ExhaustiveProgress&)>& progress)
      : settings_(settings), stop_(stop), progress_(progress), begin_(Clock::now()), evaluator_(graph, topology, kernels),
        search_space_(graph, topology),
        space_(evaluator_.builder(), topology, kernels, evaluator_.cost_model(), search_space_, settings.assignments) {
    result.log10_size = space_.log10_size();
    result.symmetries = static_cast<int64_t>(space_.symmetries().size());
    find_first(graph, topology, kernels);
    result.lower_bound = std::min(lower_bound(graph, topology, search_space_, evaluator_.cost_model()), limit_of(result.best_evaluation.cost));
  }

  ExhaustiveResult result;

  void run() {
    result.too_large = !space_.enumerable();
    if (!result.too_large) prove();
    result.interrupted = stopped_;
    result.proven = static_cast<double>(result.lower_bound) >= result.best_evaluation.cost;
    result.elapsed_s = seconds();
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  void find_first(const Graph& graph, const Topology& topology, KernelCosts& kernels) {
    std::vector<Candidate> candidates{{"data-parallel", data_parallel(graph, topology)}, {"single-device", single_device(graph)}};
    RandomStream random(settings_.seed, ~uint64_t{0});
    for (int i = 0; i < 2; ++i) candidates.push_back({"random", search_space_.random_strategy(random)});
    const bool all = settings_.assignments == Assignments::all;  // else chains would leave the space
    if (all) {
      const McmcSettings chains{.proposals = settings_.proposals, .seed = settings_.seed, .chains = 4};
      const McmcResult found = search_mcmc(graph, topology, kernels, candidates, chains, stop_, nullptr);
      result.best = found.best;
      result.best_evaluation = found.best_evaluation;
    } else {
      candidates.resize(2);
      for (const Candidate& candidate : candidates) {
        const Evaluation evaluation = evaluator_.evaluate(candidate.strategy);
        if (!result.best.empty() && evaluation.cost >= result.best_evaluation.cost) continue;
        result.best = candidate.strategy;
        result.best_evaluation = evaluation;
      }
    }
    result.first_cost = result.best_evaluation.makespan;
    result.first_found_s = seconds();
  }

  void prove() {
    ExhaustiveBounds bounds(space_);
    PrefixBounds prefix(bounds);
    prefix_ = &prefix;
    bounds_ = &bounds;
    for (double gap : {0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 0.005, 0.002, 0.0}) {
      const Nanoseconds best = limit_of(result.best_evaluation.cost);
      limit_ = gap == 0 ? best : static_cast<Nanoseconds>(static_cast<double>(best) * (1 - gap));
      if (limit_ <= result.lower_bound && gap > 0) continue;
      if (limit_ <= result.lower_bound || out_of_time()) break;
      const bool any = bounds.reduce(limit_, [this] { return out_of_time(); });
      if (out_of_time()) break;
      if (any) descend(space_.symmetries());
      if (stopped_) break;
      result.lower_bound = std::max(result.lower_bound, limit_);  // `limit_` has come down to the best cost where a strategy was found
    }
  }

  // The configurations of the next operator, one of those that the remaining symmetries map onto each other.
  void descend(const std::vector<DevicePermutation>& symmetries) {
    const OperatorId op = prefix_->size();
    if (op == static_cast<OperatorId>(space_.graph().operators.size())) return visit_leaf();
    struct Child {
      Nanoseconds bound;
      int32_t choice;
    };
    std::vector<Child> children;
    const std::vector<Choice>& choices = space_.choices(op).choices;
    prefix_->evaluate(no_limit);  // for glances
    for (size_t i = 0; i < choices.size(); ++i) {
      const Choice& choice = choices[i];
      if (!bounds_->alive(op, choice.orbit) || !canonical(choice, symmetries) || prefix_->glance(choice) >= limit_) continue;
      children.push_back({0, static_cast<int32_t>(i)});
    }
    std::erase_if(children, [&](Child& child) {
      if (out_of_time()) return true;
      ++result.nodes;
      prefix_->push(choices[static_cast<size_t>(child.choice)]);
      child.bound = prefix_->evaluate(limit_);
      prefix_->pop();
      return child.bound >= limit_;
    });
    std::stable_sort(children.begin(), children.end(), [](const Child& a, const Child& b) { return a.bound < b.bound; });
    for (const Child& child : children) {
      if (stopped_) return;
      if (child.bound >= limit_) return;  // it has come down
      const Choice& choice = choices[static_cast<size_t>(child.choice)];
      std::vector<DevicePermutation> remaining;
      for (const DevicePermutation& symmetry : symmetries)
        if (space_.image(choice, symmetry).devices == choice.devices) remaining.push_back(symmetry);
      prefix_->push(choice);
      descend(remaining);
      prefix_->pop();
    }
  }

  bool canonical(const Choice& choice, const std::vector<DevicePermutation>& symmetries) const {
    return std::all_of(symmetries.begin(), symmetries.end(),
                       [&](const DevicePermutation& symmetry) { return choice.devices <= space_.image(choice, symmetry).devices; });
  }

  void visit_leaf() {
    const Strategy strategy = prefix_->strategy();
    consider(strategy);
    const std::vector<std::pair<std::vector<DeviceId>, int64_t>> collectives = collectives_of(strategy);
    if (collectives.empty()) return;
    for (const DevicePermutation& symmetry : space_.symmetries()) {
      if (simulates_alike(collectives, symmetry)) continue;
      Strategy image = strategy;
      for (Configuration& configuration : image)
        for (DeviceId& device : configuration.devices) device = symmetry.device[static_cast<size_t>(device)];
      consider(image);
    }
  }

  void consider(const Strategy& strategy) {
    ++result.leaves;
    const Evaluation evaluation = evaluator_.evaluate(strategy);
    if (evaluation.cost >= result.best_evaluation.cost) return;
    result.best = strategy;
    result.best_evaluation = evaluation;
    limit_ = std::min(limit_, limit_of(evaluation.cost));
  }

  // Holders and bytes of all collectives.
  std::vector<std::pair<std::vector<DeviceId>, int64_t>> collectives_of(const Strategy& strategy) {
    std::vector<std::pair<std::vector<DeviceId>, int64_t>> result;
    const Graph& graph = space_.graph();
    const TaskGraph tasks = evaluator_.builder().build(strategy);
    for (const Task& task : tasks.tasks) {
      if (task.kind == TaskKind::synchronization) result.emplace_back(tasks.units[static_cast<size_t>(task.unit)].holders, task.bytes);
      if (is_reduction(task.kind))
        result.emplace_back(reduction_holders(*graph.operators[task.op].definition, strategy[static_cast<size_t>(task.op)], task.part), task.bytes);
    }
    std::erase_if(result, [](const auto& collective) { return collective.first.size() < 2; });
    return result;
  }

  // Transfers and compute tasks take the same under a symmetry; do these collectives take the same time and the images of the same channels?
  bool simulates_alike(const std::vector<std::pair<std::vector<DeviceId>, int64_t>>& collectives, const DevicePermutation& symmetry) {
    CommunicationModel& communication = evaluator_.cost_model().communication();
    CommunicationCost cost, image_cost;
    const int devices = space_.device_count();
    const auto sorted = [](std::vector<ResourceUse>& uses) {
      std::sort(uses.begin(), uses.end(), [](const ResourceUse& a, const ResourceUse& b) { return a.resource < b.resource; });
    };
    for (const auto& [holders, bytes] : collectives) {
      std::vector<DeviceId> image;
      for (DeviceId device : holders) image.push_back(symmetry.device[static_cast<size_t>(device)]);
      std::sort(image.begin(), image.end());
      communication.all_reduce(holders, bytes, cost);
      communication.all_reduce(image, bytes, image_cost);
      if (cost.duration != image_cost.duration || cost.uses.size() != image_cost.uses.size()) return false;
      for (ResourceUse& use : cost.uses)
        use.resource = use.resource < devices ? symmetry.device[static_cast<size_t>(use.resource)]
                                              : devices + symmetry.channel[static_cast<size_t>(use.resource - devices)];
      sorted(cost.uses);
      sorted(image_cost.uses);
      for (size_t u = 0; u < cost.uses.size(); ++u)
        if (cost.uses[u].resource != image_cost.uses[u].resource || cost.uses[u].occupancy != image_cost.uses[u].occupancy) return false;
    }
    return true;
  }

  bool out_of_time() {
    if (stopped_) return true;
    stopped_ = stop_ || (settings_.nodes > 0 && result.nodes >= settings_.nodes);
    if (!stopped_ && settings_.budget_s > 0 && ++checks_ % 16 == 0) stopped_ = seconds() >= settings_.budget_s;
    if (progress_ && seconds() >= next_report_s_) {
      next_report_s_ = seconds() + 0.2;
      progress_({seconds(), result.nodes, result.leaves, result.best_evaluation.makespan, result.lower_bound});
    }
    return stopped_;
  }

  static constexpr Nanoseconds no_limit = INT64_MAX;
  const ExhaustiveSettings& settings_;
  const std::atomic<bool>& stop_;
  const std::function<void(const ExhaustiveProgress&)>& progress_;
  Clock::time_point begin_;
  Evaluator evaluator_;
  SearchSpace search_space_;
  ExhaustiveSpace space_;
  ExhaustiveBounds* bounds_ = nullptr;
  PrefixBounds* prefix_ = nullptr;
  Nanoseconds limit_ = 0;
  bool stopped_ = false;
  int64_t checks_ = 0;
  double next_report_s_ = 0.2;
};

}  // namespace

ExhaustiveResult search_exhaustive(const Graph& graph, const Topology& topology, KernelCosts& kernels, const ExhaustiveSettings& settings,
                                   const std::atomic<bool>& stop, const std::function<void(const ExhaustiveProgress&)>& progress) {
  Search search(graph, topology, kernels, settings, stop, progress);
  search.run();
  return search.result;
}

}  // namespace ff
