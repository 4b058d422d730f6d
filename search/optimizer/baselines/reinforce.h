// Device placement learned by policy gradient, with the simulator as the environment: the approach of Mirhoseini et
// al., "Device Placement Optimization with Reinforcement Learning", ICML 2017 (arXiv 1706.04972), called ColocRL there:
// whole operators, co-located in groups, on one device each, drawn from a stochastic policy that REINFORCE improves.
//
// As there: the reward is minus the square root of the iteration time, the baseline its moving average, and several
// placements are drawn for each step of the policy. Otherwise than there: the policy is a table, a softmax over the
// devices for each group, instead of a recurrent network with attention that reads the groups one after the other and
// sees the devices chosen so far. A table cannot carry over to another graph and cannot prefer "the same device as the
// group before"; it has no more than groups times devices parameters, so it needs fewer evaluations. Advantages are
// divided by their spread, an entropy bonus keeps the policy from settling early, and steps are Adam's.
#pragma once

#include "search/optimizer/evaluator.h"
#include "search/optimizer/search_control.h"

namespace ff {

struct ReinforceSettings {
  int64_t evaluations = 10000;  // placements to be simulated; 0: not limited
  double budget_s = 0;          // wall time; 0: not limited
  uint64_t seed = 0;
  int placements_per_step = 10;
  double learning_rate = 0.1;    // of Adam
  double entropy_weight = 0.02;  // of the entropy's gradient relative to the normalized advantage's
  double baseline_decay = 0.9;   // of the moving average, a step
};

struct ReinforceResult {
  Strategy best;  // the best placement drawn, not the policy's last
  Prediction best_prediction;
  int64_t evaluations = 0;    // placements simulated
  int64_t best_found_at = 0;  // evaluations until `best`
  int groups = 0;             // co-location groups
  double final_entropy = 0;   // mean over groups, in nats; log(devices) is where the policy begins
  double elapsed_s = 0;
  bool interrupted = false;
};

// Deterministic for a seed and a number of evaluations. Draws at least one placement, even when stopped at once.
ReinforceResult search_reinforce(const Problem& problem, const ReinforceSettings& settings,
                                 const SearchControl& control);

}  // namespace ff
