// Does a split strategy compute what one device computes? For any backend and transport, in threads or in processes.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "common/vector.h"
#include "executor/trainer.h"

namespace ff {

// What training iterations and an evaluation leave, on rank 0; the other ranks' outcomes are empty.
struct EquivalenceOutcome {
  Vector<double> losses;
  Vector<HostTensors> gradients, weights;  // after each iteration
  bool has_gradients = true;               // no: the sums of shards give way to the values
  std::map<std::string, HostTensors> states;
  Evaluation evaluation;
};

// A random network with a random strategy for `ranks` devices, and the same network on one.
struct EquivalenceCase {
  StrategyFile one_device, split;
  int ranks = 1;
  std::string text;  // what it is, for messages
};
EquivalenceCase random_case(unsigned seed, int ranks);

// A chain of proposals that begins with a strategy file, under --simulator checked, which throws
// SimulationDisagreement. How many answers of delta simulation were compared: none with recomputation or sharding.
int64_t check_delta_simulation(StrategyFile file, int ranks, unsigned seed);

// By rank: the bytes that ffsearch predicts for a strategy file on so many processors.
Vector<int64_t> predicted_memory(StrategyFile file, int ranks);

// On one rank; all ranks call. `look` sees the program before the first iteration.
EquivalenceOutcome train_for_comparison(const StrategyFile& file, Backend& backend, Transport& transport,
                                        const std::function<void(Program&)>& look = {}, int iterations = 2);

// "" when all agree within `tolerance` (relative), else one line for each difference.
std::string differences(const EquivalenceOutcome& found, const EquivalenceOutcome& expected, double tolerance);

}  // namespace ff
