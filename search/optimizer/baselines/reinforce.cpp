#include "search/optimizer/baselines/reinforce.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "search/optimizer/operator_groups.h"
#include "search/optimizer/random.h"

namespace ff {
namespace {

using Clock = std::chrono::steady_clock;

// A softmax over devices for each group, and Adam's moments (Kingma & Ba 2015, algorithm 1, with its default
// constants).
class Policy {
 public:
  Policy(int groups, int devices) : groups_(groups), devices_(devices) {
    for (auto* values : {&logits_, &gradient_, &first_moment_, &second_moment_}) values->assign(groups * devices, 0);
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
  int index(int group, int device) const { return group * devices_ + device; }
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
      const auto begin = logits_.begin() + index(group, 0);
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

ReinforceResult search_reinforce(const Problem& problem, const ReinforceSettings& settings,
                                 const SearchControl& control) {
  const Clock::time_point begin = Clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  const Vector<int> group_of = colocation_groups(problem.graph);
  ReinforceResult result;
  result.groups = 1 + *std::max_element(group_of.begin(), group_of.end());
  Evaluator evaluator(problem);
  Policy policy(result.groups, problem.topology.devices.count());
  RandomStream random(settings.seed, 0);
  Strategy strategy = single_device(problem.graph);
  double baseline = 0, next_report_s = 0.2;
  while (true) {
    Vector<Vector<DeviceId>> placements;
    Vector<double> rewards;
    bool ended = false;
    for (int i = 0; i < settings.placements_per_step && !ended; ++i) {
      result.interrupted = control.stop;
      ended = control.stop || (settings.evaluations > 0 && result.evaluations >= settings.evaluations) ||
              (settings.budget_s > 0 && elapsed() >= settings.budget_s);
      if (ended && result.evaluations > 0) break;
      placements.push_back(policy.draw(random));
      for (OperatorId op : strategy.indices()) strategy[op].devices[0] = placements.back()[group_of[op]];
      const Prediction prediction = evaluator.evaluate(strategy);
      ++result.evaluations;
      rewards.push_back(-std::sqrt(prediction.cost));
      if (result.best.empty() || prediction.cost < result.best_prediction.cost) {
        result.best = strategy;
        result.best_prediction = prediction;
        result.best_found_at = result.evaluations;
        if (control.found) control.found(strategy, prediction);
      }
    }
    if (ended) break;
    const double mean = std::accumulate(rewards.begin(), rewards.end(), 0.0) / rewards.count();
    baseline = result.evaluations == rewards.count()
                   ? mean
                   : settings.baseline_decay * baseline + (1 - settings.baseline_decay) * mean;
    double square = 0;
    for (double reward : rewards) square += (reward - baseline) * (reward - baseline);
    const double deviation = std::sqrt(square / rewards.count());
    if (deviation > 0)
      for (int i : rewards.indices())
        policy.reinforce(placements[i], (rewards[i] - baseline) / deviation / rewards.count());
    policy.spread(settings.entropy_weight);
    policy.step(settings.learning_rate);
    if (control.progress && elapsed() >= next_report_s) {
      next_report_s = elapsed() + 0.2;
      control.progress({.elapsed_s = elapsed(),
                        .proposals = result.evaluations,
                        .current = result.best_prediction.makespan,
                        .best = result.best_prediction.makespan});
    }
  }
  result.final_entropy = policy.mean_entropy();
  result.elapsed_s = elapsed();
  return result;
}

}  // namespace ff
