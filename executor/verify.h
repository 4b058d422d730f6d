// Does this strategy compute the same function as one device? Runs the same iterations on one and compares.
#pragma once

#include <algorithm>
#include <string>

#include "executor/checkpoint.h"
#include "executor/trainer.h"

namespace ff {

struct Verification {
  double max_relative_error = 0;  // over losses and final parameters
  double tolerance = 0;
  // Where the error exceeds the tolerance: that of a second one-device run whose initial weights differ by one unit in
  // the last place. A unit of relu or max pooling that sits on its kink makes much of such a difference, in any
  // framework.
  double rounding_error = 0;
  std::string worst;  // "the loss of iteration 7", "parameter conv1.weight"
  bool passed() const { return max_relative_error <= std::max(tolerance, 10 * rounding_error); }
};

// max |a - b| / max |b|; differences where both are below `floor` count as that much smaller. Infinite when a number is
// not finite.
double relative_error(std::span<const float> a, std::span<const float> b, float floor = 1e-3f);

// Called on one rank: `result` and `parameters` are those of the run with `file`, which began with `initial` (if not
// null) and followed `settings`.
Verification verify(const StrategyFile& file, Backend& backend, const TrainerSettings& trainer_settings,
                    const RunSettings& settings, const RunResult& result, const Checkpoint* initial,
                    const HostTensors& parameters);

// For people, of one that has not passed.
std::string failure_text(const Verification& verification);

// Restores a checkpoint on this rank.
void restore(Trainer& trainer, const Checkpoint& checkpoint);

}  // namespace ff
