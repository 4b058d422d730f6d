#include "search/optimizer/exhaustive.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "search/optimizer/exhaustive_partial.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/mcmc.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int first_chains = 16;

// Costs are whole nanoseconds, or more for strategies that do not fit; a strategy costs less than `cost` if its bound
// does.
Nanoseconds limit_of(double cost) { return static_cast<Nanoseconds>(std::ceil(cost)); }

class Search {
 public:
  Search(const Graph& graph, const Topology& topology, KernelCosts& kernels, const ExhaustiveSettings& settings,
         const std::atomic<bool>& stop, const std::function<void(const ExhaustiveProgress&)>& progress)
      : settings_(settings), stop_(stop), progress_(progress), begin_(Clock::now()),
        evaluator_(graph, topology, kernels), search_space_(graph, topology),
        space_(evaluator_.builder(), topology, kernels, evaluator_.cost_model(), search_space_, settings.assignments) {
    result.log10_size = space_.log10_size();
    result.symmetries = static_cast<int64_t>(space_.symmetries().size());
    find_first(graph, topology, kernels);
    if (!space_.enumerable())
      result.lower_bound = std::min(lower_bound(graph, topology, search_space_, evaluator_.cost_model()),
                                    limit_of(result.best_evaluation.cost));
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

  // Data parallelism may have degrees that do not divide the number of devices.
  bool in_space(const Strategy& strategy) const {
    for (size_t op = 0; op < strategy.size(); ++op) {
      const Vector<Degrees>& degrees = search_space_.degrees(static_cast<OperatorId>(op));
      if (std::find(degrees.begin(), degrees.end(), strategy[op].degrees) == degrees.end()) return false;
    }
    return true;
  }

  void find_first(const Graph& graph, const Topology& topology, KernelCosts& kernels) {
    Vector<Candidate> candidates{{"data-parallel", data_parallel(graph, topology)},
                                 {"single-device", single_device(graph)}};
    std::erase_if(candidates, [&](const Candidate& candidate) { return !in_space(candidate.strategy); });
    const size_t fixed = candidates.size();
    RandomStream random(settings_.seed, ~uint64_t{0});
    for (size_t i = fixed; i < first_chains; ++i)
      candidates.push_back({"random", search_space_.random_strategy(random)});
    const bool all = settings_.assignments == Assignments::all;  // else chains would leave the space
    if (all) {
      // warm: many basins
      const McmcSettings chains{.proposals = settings_.proposals,
                                .budget_s = settings_.budget_s / 4,
                                .seed = settings_.seed,
                                .chains = first_chains,
                                .beta = 20};
      const McmcResult found = search_mcmc(graph, topology, kernels, candidates, chains, stop_, nullptr);
      result.best = found.best;
      result.best_evaluation = found.best_evaluation;
    } else {
      candidates.resize(fixed);
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
    PartialBounds partial(bounds);
    partial_ = &partial;
    bounds_ = &bounds;
    while (result.lower_bound < limit_of(result.best_evaluation.cost) && !out_of_time()) {
      limit_ = next_limit();
      const bool any = bounds.reduce(limit_, [this] { return out_of_time(); });
      if (out_of_time()) break;
      if (any) find_order();
      if (any) descend(0, space_.symmetries());
      if (stopped_) break;
      // `limit_` has come down to the best cost where a strategy was found
      result.lower_bound = std::max(result.lower_bound, limit_);
    }
  }

  // Towards the best cost from below, as a limit above the optimum leaves far more to be looked at than one below.
  Nanoseconds next_limit() const {
    const double best = static_cast<double>(limit_of(result.best_evaluation.cost)),
                 proven = static_cast<double>(result.lower_bound);
    if (best > 2 * proven) return static_cast<Nanoseconds>(best / 2) + 1;
    if (best > 1.3 * proven) return static_cast<Nanoseconds>(1.2 * proven) + 1;
    if (best > 1.1 * proven) return static_cast<Nanoseconds>(1.05 * proven) + 1;
    if (best > 1.002 * proven) return std::max(result.lower_bound + 1, static_cast<Nanoseconds>((best + proven) / 2));
    return static_cast<Nanoseconds>(best);
  }

  // The heaviest operator and those of its parameter group, then always the heaviest of the neighbours: what weighs
  // much decides early, and neighbours tell at once what the transfers between them take.
  void find_order() {
    const size_t count = space_.graph().operators.size();
    Vector<double> weight(count);
    Vector<int> family(count);  // operators that share parameters have equal numbers
    for (size_t op = 0; op < count; ++op) {
      weight[op] = bounds_->least_own_work(static_cast<OperatorId>(op));
      family[op] = static_cast<int>(op);
    }
    for (const ParameterGroup& group : space_.builder().groups())
      for (OperatorId op : group.operators) family[op] = std::min(family[op], group.operators[0]);
    Vector<double> family_weight(count, 0);
    for (size_t op = 0; op < count; ++op) family_weight[family[op]] += weight[op];
    for (size_t g = 0; g < space_.builder().groups().size(); ++g)
      if (bounds_->shared(static_cast<int>(g)))
        family_weight[family[space_.builder().groups()[g].operators[0]]] +=
            bounds_->open_update(static_cast<int>(g)).work;
    order_.clear();
    Vector<bool> taken(count), near(count);
    while (order_.size() < count) {
      int next = -1;
      for (size_t op = 0; op < count; ++op) {
        if (taken[op]) continue;
        const auto rank = [&](size_t candidate) {
          return std::tuple(!order_.empty() && family[candidate] == family[order_.back()],
                            static_cast<bool>(near[candidate]), family_weight[family[candidate]]);
        };
        if (next < 0 || rank(op) > rank(static_cast<size_t>(next))) next = static_cast<int>(op);
      }
      taken[next] = true;
      order_.push_back(next);
      for (int e : space_.in_edges()[next]) near[space_.edges()[e].edge.producer] = true;
      for (int e : space_.out_edges()[next]) near[space_.edges()[e].edge.consumer] = true;
    }
  }

  // The configurations of the next operator, one of those that the remaining symmetries map onto each other.
  void descend(size_t depth, const Vector<DevicePermutation>& symmetries) {
    if (depth == order_.size()) return visit_leaf();
    const OperatorId op = order_[depth];
    struct Child {
      Nanoseconds bound;
      int32_t choice;
    };
    Vector<Child> children;
    const Vector<Choice>& choices = space_.choices(op).choices;
    partial_->evaluate(no_limit);  // for glances
    for (size_t i = 0; i < choices.size(); ++i) {
      const Choice& choice = choices[i];
      if (!bounds_->alive(op, choice.orbit) || !canonical(choice, symmetries) || partial_->glance(op, choice) >= limit_)
        continue;
      children.push_back({0, static_cast<int32_t>(i)});
    }
    std::erase_if(children, [&](Child& child) {
      if (out_of_time()) return true;
      ++result.nodes;
      partial_->push(op, choices[child.choice]);
      child.bound = partial_->evaluate(limit_);
      partial_->pop();
      return child.bound >= limit_;
    });
    std::stable_sort(children.begin(), children.end(),
                     [](const Child& a, const Child& b) { return a.bound < b.bound; });
    for (const Child& child : children) {
      if (stopped_) return;
      if (child.bound >= limit_) return;  // it has come down
      const Choice& choice = choices[child.choice];
      Vector<DevicePermutation> remaining;
      for (const DevicePermutation& symmetry : symmetries)
        if (space_.image(choice, symmetry).devices == choice.devices) remaining.push_back(symmetry);
      partial_->push(op, choice);
      descend(depth + 1, remaining);
      partial_->pop();
    }
  }

  bool canonical(const Choice& choice, const Vector<DevicePermutation>& symmetries) const {
    return std::all_of(symmetries.begin(), symmetries.end(), [&](const DevicePermutation& symmetry) {
      return choice.devices <= space_.image(choice, symmetry).devices;
    });
  }

  void visit_leaf() {
    const Strategy strategy = partial_->strategy();
    consider(strategy);
    const Vector<std::pair<Vector<DeviceId>, int64_t>> collectives = collectives_of(strategy);
    if (collectives.empty()) return;
    for (const DevicePermutation& symmetry : space_.symmetries()) {
      if (simulates_alike(collectives, symmetry)) continue;
      Strategy image = strategy;
      for (Configuration& configuration : image)
        for (DeviceId& device : configuration.devices) device = symmetry.device[device];
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
  Vector<std::pair<Vector<DeviceId>, int64_t>> collectives_of(const Strategy& strategy) {
    Vector<std::pair<Vector<DeviceId>, int64_t>> result;
    const TaskGraph tasks = evaluator_.builder().build(strategy);
    for (const Task& task : tasks.tasks)
      if (is_collective(task.kind)) result.emplace_back(tasks.holders(task), task.bytes);
    std::erase_if(result, [](const auto& collective) { return collective.first.size() < 2; });
    return result;
  }

  // Transfers and compute tasks take the same under a symmetry; do these collectives take the same time and the images
  // of the same channels?
  bool simulates_alike(const Vector<std::pair<Vector<DeviceId>, int64_t>>& collectives,
                       const DevicePermutation& symmetry) {
    CommunicationModel& communication = evaluator_.cost_model().communication();
    CommunicationCost cost, image_cost;
    const int devices = space_.device_count();
    const auto sorted = [](Vector<ResourceUse>& uses) {
      std::sort(uses.begin(), uses.end(),
                [](const ResourceUse& a, const ResourceUse& b) { return a.resource < b.resource; });
    };
    for (const auto& [holders, bytes] : collectives) {
      Vector<DeviceId> image;
      for (DeviceId device : holders) image.push_back(symmetry.device[device]);
      std::sort(image.begin(), image.end());
      communication.all_reduce(holders, bytes, cost);
      communication.all_reduce(image, bytes, image_cost);
      if (cost.duration != image_cost.duration || cost.uses.size() != image_cost.uses.size()) return false;
      for (ResourceUse& use : cost.uses)
        use.resource =
            use.resource < devices ? symmetry.device[use.resource] : devices + symmetry.channel[use.resource - devices];
      sorted(cost.uses);
      sorted(image_cost.uses);
      for (size_t u = 0; u < cost.uses.size(); ++u)
        if (cost.uses[u].resource != image_cost.uses[u].resource ||
            cost.uses[u].occupancy != image_cost.uses[u].occupancy)
          return false;
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
  PartialBounds* partial_ = nullptr;
  Vector<OperatorId> order_;
  Nanoseconds limit_ = 0;
  bool stopped_ = false;
  int64_t checks_ = 0;
  double next_report_s_ = 0.2;
};

}  // namespace

ExhaustiveResult search_exhaustive(const Graph& graph, const Topology& topology, KernelCosts& kernels,
                                   const ExhaustiveSettings& settings, const std::atomic<bool>& stop,
                                   const std::function<void(const ExhaustiveProgress&)>& progress) {
  Search search(graph, topology, kernels, settings, stop, progress);
  search.run();
  return search.result;
}

}  // namespace ff
