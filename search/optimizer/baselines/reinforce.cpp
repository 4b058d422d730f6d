#include "search/optimizer/baselines/reinforce.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "search/optimizer/random.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

// A softmax over devices for each group, and Adam's moments (Kingma & Ba 2015, algorithm 1, with its default
// constants).
class Policy {
 public:
  Policy(int groups, int devices) : groups_(groups), devices_(devices) {
    for (auto* values : {&logits_, &gradient_, &first_moment_, &second_moment_})
      values->assign(static_cast<size_t>(groups * devices), 0);
    update_probabilities();
  }

  Vector<DeviceId> draw(RandomStream& random) const {
    Vector<DeviceId> placement;
    for (int group = 0; group < groups_; ++group) {
      double rest = random.uniform();
      int device = 0;
      while (device + 1 < devices_ && rest >= probability(group, device)) rest -= probability(group, device++);
      placement.push_back(device);
    }
    return placement;
  }

  // Adds weight times the gradient of the placement's log-probability.
  void reinforce(const Vector<DeviceId>& placement, double weight) {
    for (int group = 0; group < groups_; ++group)
      for (int device = 0; device < devices_; ++device)
        gradient_[index(group, device)] += weight * ((placement[group] == device ? 1 : 0) - probability(group, device));
  }

  // Adds weight times the gradient of the groups' entropies: d H / d logit = -p (log p + H).
  void spread(double weight) {
    for (int group = 0; group < groups_; ++group) {
      const double h = entropy(group);
      for (int device = 0; device < devices_; ++device) {
        const double p = probability(group, device);
        if (p > 0) gradient_[index(group, device)] -= weight * p * (std::log(p) + h);
      }
    }
  }

  void step(double learning_rate) {
    constexpr double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
    ++steps_;
    for (size_t i = 0; i < logits_.size(); ++i) {
      first_moment_[i] = beta1 * first_moment_[i] + (1 - beta1) * gradient_[i];
      second_moment_[i] = beta2 * second_moment_[i] + (1 - beta2) * gradient_[i] * gradient_[i];
      const double mean = first_moment_[i] / (1 - std::pow(beta1, steps_)),
                   square = second_moment_[i] / (1 - std::pow(beta2, steps_));
      logits_[i] += learning_rate * mean / (std::sqrt(square) + epsilon);
      gradient_[i] = 0;
    }
    update_probabilities();
  }

  double mean_entropy() const {
    double sum = 0;
    for (int group = 0; group < groups_; ++group) sum += entropy(group);
    return sum / groups_;
  }

 private:
  size_t index(int group, int device) const { return static_cast<size_t>(group * devices_ + device); }
  double probability(int group, int device) const { return probabilities_[index(group, device)]; }
  double entropy(int group) const {
    double sum = 0;
    for (int device = 0; device < devices_; ++device)
      if (probability(group, device) > 0) sum -= probability(group, device) * std::log(probability(group, device));
    return sum;
  }
  void update_probabilities() {
    probabilities_.resize(logits_.size());
    for (int group = 0; group < groups_; ++group) {
      const auto begin = logits_.begin() + static_cast<int64_t>(index(group, 0));
      const double largest = *std::max_element(begin, begin + devices_);
      double sum = 0;
      for (int device = 0; device < devices_; ++device) sum += std::exp(logits_[index(group, device)] - largest);
      for (int device = 0; device < devices_; ++device)
        probabilities_[index(group, device)] = std::exp(logits_[index(group, device)] - largest) / sum;
    }
  }

  int groups_, devices_, steps_ = 0;
  Vector<double> logits_, probabilities_, gradient_, first_moment_, second_moment_;
};

}  // namespace

Vector<int> colocation_groups(const Graph& graph) {
  Vector<int> leader(graph.operators.size());
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](int op) {
    while (leader[op] != op) op = leader[op];
    return op;
  };
  const auto join = [&](int a, int b) {
    a = find(a);
    b = find(b);
    leader[std::max(a, b)] = std::min(a, b);
  };
  for (const Parameter& parameter : graph.parameters)
    for (const auto& [op, which] : parameter.uses) join(op, parameter.uses[0].first);
  for (OperatorId op = 0; op < static_cast<OperatorId>(graph.operators.size()); ++op) {
    if (!graph.operators[op].parameters.empty()) continue;
    for (TensorId input : graph.operators[op].inputs)
      if (graph.tensors[input].producer >= 0) {
        join(op, graph.tensors[input].producer);
        break;
      }
  }
  Vector<int> groups(leader.size(), -1);
  int next = 0;
  for (size_t op = 0; op < leader.size(); ++op) {
    const size_t first = static_cast<size_t>(find(static_cast<int>(op)));
    if (groups[first] < 0) groups[first] = next++;
    groups[op] = groups[first];
  }
  return groups;
}

ReinforceResult search_reinforce(const Graph& graph, const Topology& topology, KernelCosts& kernels,
                                 const ReinforceSettings& settings, const std::atomic<bool>& stop,
                                 const std::function<void(const ReinforceProgress&)>& progress) {
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const Vector<int> group_of = colocation_groups(graph);
  ReinforceResult result;
  result.groups = 1 + *std::max_element(group_of.begin(), group_of.end());
  Evaluator evaluator(graph, topology, kernels);
  Policy policy(result.groups, static_cast<int>(topology.devices.size()));
  RandomStream random(settings.seed, 0);
  Strategy strategy = single_device(graph);
  double baseline = 0, next_report_s = 0.2;
  bool ended = false;
  while (!ended) {
    Vector<Vector<DeviceId>> placements;
    Vector<double> rewards;
    for (int i = 0; i < settings.placements_per_step; ++i) {
      result.interrupted = stop;
      ended = stop || (settings.evaluations > 0 && result.evaluations >= settings.evaluations) ||
              (settings.budget_s > 0 && elapsed() >= settings.budget_s);
      if (ended && result.evaluations > 0) break;
      placements.push_back(policy.draw(random));
      for (size_t op = 0; op < strategy.size(); ++op) strategy[op].devices[0] = placements.back()[group_of[op]];
      const Evaluation evaluation = evaluator.evaluate(strategy);
      ++result.evaluations;
      rewards.push_back(-std::sqrt(evaluation.cost));
      if (result.best.empty() || evaluation.cost < result.best_evaluation.cost) {
        result.best = strategy;
        result.best_evaluation = evaluation;
        result.best_found_at = result.evaluations;
      }
    }
    if (ended) break;
    const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / static_cast<double>(rewards.size());
    baseline = result.evaluations == static_cast<int64_t>(rewards.size())
                   ? mean
                   : settings.baseline_decay * baseline + (1 - settings.baseline_decay) * mean;
    double square = 0;
    for (double reward : rewards) square += (reward - baseline) * (reward - baseline);
    const double deviation = std::sqrt(square / static_cast<double>(rewards.size()));
    if (deviation > 0)
      for (size_t i = 0; i < rewards.size(); ++i)
        policy.reinforce(placements[i], (rewards[i] - baseline) / deviation / static_cast<double>(rewards.size()));
    policy.spread(settings.entropy_weight);
    policy.step(settings.learning_rate);
    if (progress && elapsed() >= next_report_s) {
      next_report_s = elapsed() + 0.2;
      progress({elapsed(), result.evaluations, result.best_evaluation.makespan});
    }
  }
  result.final_entropy = policy.mean_entropy();
  result.elapsed_s = elapsed();
  return result;
}

}  // namespace ff
