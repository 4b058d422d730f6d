#include "search/optimizer/exhaustive/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "search/optimizer/exhaustive/partial.h"
#include "search/optimizer/lower_bound.h"
#include "search/optimizer/mcmc/mcmc.h"

namespace ff::exhaustive {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int first_chains = 16;

// Costs are whole nanoseconds, or more for strategies that do not fit; a strategy costs less than `cost` if its bound
// does.
Nanoseconds limit_of(double cost) { return static_cast<Nanoseconds>(std::ceil(cost)); }

class Search {
 public:
  Search(const Problem& problem, const Settings& settings, const SearchControl& control)
      : problem_(problem), settings_(settings), control_(control), evaluator_(problem),
        search_space_(problem.graph, problem.topology, false, problem.annotations),
        space_(evaluator_, search_space_, settings.assignments) {
    result.log10_size = space_.log10_size();
    result.symmetries = space_.symmetries().count();
    find_first();
    if (!space_.enumerable())
      result.lower_bound =
          std::min(lower_bound(problem, search_space_, evaluator_.cost_model()), limit_of(result.best_prediction.cost));
  }

  Result result;

  void run() {
    result.too_large = !space_.enumerable();
    if (!result.too_large) prove();
    result.interrupted = stopped_;
    result.proven = static_cast<double>(result.lower_bound) >= result.best_prediction.cost;
    result.elapsed_s = seconds();
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  // Data parallelism may have degrees that do not divide the number of devices.
  bool in_space(const Strategy& strategy) const {
    for (OperatorId op : strategy.indices()) {
      const Vector<Degrees>& degrees = search_space_.degrees(op);
      if (std::find(degrees.begin(), degrees.end(), strategy[op].degrees) == degrees.end()) return false;
    }
    return true;
  }

  // The best of Markov chains; where these would leave the space, of two simple strategies.
  void find_first() {
    Vector<Candidate> candidates{
        {"data-parallel", problem_.keeping_annotations(data_parallel(problem_.graph, problem_.topology))},
        {"single-device", problem_.keeping_annotations(single_device(problem_.graph))}};
    std::erase_if(candidates, [&](const Candidate& candidate) { return !in_space(candidate.strategy); });
    if (settings_.assignments == Assignments::all) {
      RandomStream random(settings_.seed, ~uint64_t{0});
      while (candidates.count() < first_chains) candidates.push_back({"random", search_space_.random_strategy(random)});
      // warm: many basins
      const McmcSettings chains{.proposals = settings_.proposals,
                                .budget_s = settings_.budget_s / 4,
                                .seed = settings_.seed,
                                .chains = first_chains,
                                .beta = 20,
                                .proposals_from = ProposalKind::mixed};
      const McmcResult found = search_mcmc(problem_, candidates, chains, {control_.stop, nullptr, {}, control_.found});
      result.best = found.best;
      result.best_prediction = found.best_prediction;
      if (control_.found) control_.found(result.best, result.best_prediction);
    } else {
      for (const Candidate& candidate : candidates) {
        const Prediction prediction = evaluator_.evaluate(candidate.strategy);
        if (!result.best.empty() && prediction.cost >= result.best_prediction.cost) continue;
        result.best = candidate.strategy;
        result.best_prediction = prediction;
        if (control_.found) control_.found(result.best, prediction);
      }
    }
    result.first_cost = result.best_prediction.makespan;
    result.first_found_s = seconds();
  }

  void prove() {
    Bounds bounds(space_);
    PartialBounds partial(bounds);
    partial_ = &partial;
    bounds_ = &bounds;
    while (result.lower_bound < limit_of(result.best_prediction.cost) && !out_of_time()) {
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
    const double best = static_cast<double>(limit_of(result.best_prediction.cost)),
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
    const int count = space_.graph().operators.count();
    Vector<int> family(count);  // operators that share parameters have equal numbers
    std::iota(family.begin(), family.end(), 0);
    for (const ParameterGroup& group : space_.builder().groups())
      for (OperatorId op : group.operators) family[op] = std::min(family[op], group.operators[0]);
    Vector<double> family_weight(count, 0);
    for (OperatorId op = 0; op < count; ++op) family_weight[family[op]] += bounds_->least_own_work(op);
    for (int g : space_.builder().groups().indices())
      if (bounds_->shared(g))
        family_weight[family[space_.builder().groups()[g].operators[0]]] += bounds_->open_update(g).work;
    order_.clear();
    Vector<bool> taken(count), near(count);
    const auto rank = [&](OperatorId op) {
      return std::tuple(!order_.empty() && family[op] == family[order_.back()], bool{near[op]},
                        family_weight[family[op]]);
    };
    while (order_.count() < count) {
      OperatorId next = -1;
      for (OperatorId op = 0; op < count; ++op)
        if (!taken[op] && (next < 0 || rank(op) > rank(next))) next = op;
      taken[next] = true;
      order_.push_back(next);
      for (int e : space_.in_edges()[next]) near[space_.edges()[e].edge.producer] = true;
      for (int e : space_.out_edges()[next]) near[space_.edges()[e].edge.consumer] = true;
    }
  }

  // The configurations of the next operator, one of those that the remaining symmetries map onto each other.
  void descend(int depth, const Vector<DevicePermutation>& symmetries) {
    if (depth == order_.count()) return visit_leaf();
    const OperatorId op = order_[depth];
    struct Child {
      Nanoseconds bound;
      int choice;
    };
    Vector<Child> children;
    const Vector<Choice>& choices = space_.choices(op).choices;
    partial_->evaluate(no_limit);  // for glances
    for (int i : choices.indices()) {
      const Choice& choice = choices[i];
      if (bounds_->alive(op, choice.orbit) && canonical(choice, symmetries) && partial_->glance(op, choice) < limit_)
        children.push_back({0, i});
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
    const Vector<Collective> collectives = collectives_of(strategy);
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
    const Prediction prediction = evaluator_.evaluate(strategy);
    if (prediction.cost >= result.best_prediction.cost) return;
    result.best = strategy;
    result.best_prediction = prediction;
    if (control_.found) control_.found(strategy, prediction);
    limit_ = std::min(limit_, limit_of(prediction.cost));
  }

  // All collectives, in both directions.
  Vector<Collective> collectives_of(const Strategy& strategy) {
    Vector<Collective> result;
    const TaskGraph tasks = evaluator_.builder().build(strategy);
    for (const Task& task : tasks.tasks)
      if (is_collective(task.kind)) {
        const CollectiveKind kind = task.collective < 0
                                        ? CollectiveKind::all_reduce
                                        : tasks.collectives[task.collective].kind(direction_of(task.kind));
        result.push_back({kind, tasks.holders(task), -1, task.bytes});
      }
    std::erase_if(result, [](const Collective& collective) { return collective.holders.size() < 2; });
    return result;
  }

  // Transfers and compute tasks take the same under a symmetry; do these collectives take the same time and the images
  // of the same channels?
  bool simulates_alike(const Vector<Collective>& collectives, const DevicePermutation& symmetry) {
    CommunicationModel& communication = evaluator_.cost_model().communication();
    CommunicationCost cost, image_cost;
    const int devices = space_.device_count();
    const auto sorted = [](Vector<ResourceUse>& uses) {
      std::sort(uses.begin(), uses.end(),
                [](const ResourceUse& a, const ResourceUse& b) { return a.resource < b.resource; });
    };
    for (const Collective& collective : collectives) {
      Vector<DeviceId> image;
      for (DeviceId device : collective.holders) image.push_back(symmetry.device[device]);
      std::sort(image.begin(), image.end());
      communication.collective(collective.kind, collective.holders, collective.bytes, cost);
      communication.collective(collective.kind, image, collective.bytes, image_cost);
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
      std::map<DeviceId, Nanoseconds> beside, image_beside;
      for (const auto& [device, work] : cost.beside) beside[symmetry.device[device]] += work;
      for (const auto& [device, work] : image_cost.beside) image_beside[device] += work;
      if (beside != image_beside) return false;
    }
    return true;
  }

  bool out_of_time() {
    if (stopped_) return true;
    stopped_ = control_.stop || (settings_.nodes > 0 && result.nodes >= settings_.nodes);
    if (!stopped_ && settings_.budget_s > 0 && ++checks_ % 16 == 0) stopped_ = seconds() >= settings_.budget_s;
    if (control_.progress && seconds() >= next_report_s_) {
      next_report_s_ = seconds() + 0.2;
      control_.progress({seconds(), result.nodes, result.leaves, result.lower_bound, result.best_prediction.makespan});
    }
    return stopped_;
  }

  static constexpr Nanoseconds no_limit = INT64_MAX;
  const Problem& problem_;
  const Settings& settings_;
  const SearchControl& control_;
  const Clock::time_point begin_ = Clock::now();
  Evaluator evaluator_;
  SearchSpace search_space_;
  Space space_;
  Bounds* bounds_ = nullptr;
  PartialBounds* partial_ = nullptr;
  Vector<OperatorId> order_;
  Nanoseconds limit_ = 0;
  bool stopped_ = false;
  int64_t checks_ = 0;
  double next_report_s_ = 0.2;
};

}  // namespace

Result search(const Problem& problem, const Settings& settings, const SearchControl& control) {
  Search search(problem, settings, control);
  search.run();
  return search.result;
}

}  // namespace ff::exhaustive
