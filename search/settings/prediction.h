// What an iteration takes under settings (optimizer/parallelism.h), for many devices and micro-batches.
#pragma once

#include <limits>

#include "search/settings/simulated_settings.h"

namespace ff {

struct SettingsPrediction {
  Parallelism parallelism;  // with all its values
  Nanoseconds makespan = 0;
  int64_t memory_bytes = 0;   // of the device that needs the largest fraction of its memory
  double memory_share = 0;    // that is needed of the fullest device's memory; 0 where the topology states none
  bool memory_known = true;   // else memory is 0: the plan takes longer than what was asked for
  bool extrapolated = false;  // from fewer micro-batches
  bool exact = true;          // the time is that of a simulation of all
  bool fits() const { return memory_share <= 1; }
};

// The data-parallel degree and the micro-batch, where they are 0, as plan_of sets them. Throws InputError where devices
// or samples are not divisible by them.
Parallelism completed(Parallelism parallelism, const Graph& graph, const Topology& topology);
// Of an iteration, with settings that have all their values.
int micro_batches_of(const Parallelism& completed, const Graph& graph);

// In 1F1B order. Micro-batches that follow from others are not simulated, and memory is what a few need, with further
// preallocated buffers. `graph` has the samples of an iteration, `folds` are those on the topology (SimulatedSettings).
// Of a plan that takes longer than `longest` memory is not computed.
// Throws InputError as plan_of does.
SettingsPrediction predict_settings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                    const CostOptions& costs, Extrapolation extrapolation = Extrapolation::exact,
                                    KnownFolds* folds = nullptr,
                                    Nanoseconds longest = std::numeric_limits<Nanoseconds>::max());

// What a device of a stage does in an iteration: times that its compute tasks and the collectives that it takes part in
// take, summed. Collectives may run beside compute tasks.
struct StageTimes {
  int layers = 0;
  Nanoseconds forward = 0, backward = 0, recompute = 0, update = 0;
  Nanoseconds slowed = 0;           // longer than these, beside collectives of gradients and parameters
  Nanoseconds collectives = 0;      // of its layers: tensor parallelism, exchanges of experts
  Nanoseconds transfers = 0;        // that begin there: between stages, mostly
  Nanoseconds synchronization = 0;  // of gradients and parameters
  Nanoseconds busy() const { return forward + backward + recompute + update + slowed; }
};
// [stage], of the device there that computes longest.
Vector<StageTimes> stage_times(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                               const CostOptions& costs);

}  // namespace ff
