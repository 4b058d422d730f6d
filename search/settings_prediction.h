// What an iteration takes under settings (optimizer/parallelism.h), for many devices and micro-batches: of
// data-parallel groups that do the same one is simulated (optimizer/folding.h), of the devices of a tensor-parallel
// group that do the same one of them (optimizer/alike_ranks.h), and of a long row of micro-batches the first ones.
#pragma once

#include "search/optimizer/evaluator.h"
#include "search/optimizer/folding.h"
#include "search/problem_files.h"

namespace ff {

struct SettingsPrediction {
  Parallelism parallelism;  // with all its values
  Nanoseconds makespan = 0;
  int64_t memory_bytes = 0;   // of the device that needs the largest fraction of its memory
  double memory_share = 0;    // that is needed of the fullest device's memory; 0 where the topology states none
  bool extrapolated = false;  // from fewer micro-batches
  bool exact = true;          // the time is that of a simulation of all
  bool fits() const { return memory_share <= 1; }
};

// A plan, of the groups that stand for all.
class SimulatedSettings {
 public:
  // `parallelism` has its data-parallel degree and its micro-batch. Throws InputError as plan_of does.
  SimulatedSettings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                    const CostOptions& costs);

  const Strategy& strategy() const { return strategy_; }  // of one micro-batch
  const Topology& topology() const { return plan_.topology; }
  int groups() const { return groups_; }  // that are simulated
  int64_t devices_alike(DeviceId device) const { return plan_.replicas ? plan_.replicas->devices_alike(device) : 1; }

  // With so many micro-batches.
  class Iteration {
   public:
    Iteration(const SimulatedSettings& settings, int micro_batches);
    Evaluator& evaluator() { return evaluator_; }
    // In 1F1B order; a single micro-batch as tasks become ready. Without memory. `further`: so many more micro-batches
    // are to repeat the last ones (Evaluator::simulated_one_forward_one_backward).
    Evaluator::Details simulated(int further = 0);

   private:
    const SimulatedSettings& settings_;
    Loaded loaded_;
    Evaluator evaluator_;
  };

 private:
  const CostOptions costs_;
  FoldedPlan plan_;
  Strategy strategy_;
  int groups_ = 1;
};

// The data-parallel degree and the micro-batch, where they are 0, as plan_of sets them. Throws InputError where devices
// or samples are not divisible by them.
Parallelism completed(Parallelism parallelism, const Graph& graph, const Topology& topology);

// How the time of many micro-batches follows from that of few.
enum class Extrapolation {
  exact,  // where the state of the simulation comes back (simulator/repetition.h)
  steady  // or where each further one takes the same time, but for 0.1 %, as those before
};

// In 1F1B order. Micro-batches that follow from others are not simulated, and memory is what a few need, with further
// preallocated buffers. `graph` has the samples of an iteration. Throws InputError as plan_of does.
SettingsPrediction predict_settings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                                    const CostOptions& costs, Extrapolation extrapolation = Extrapolation::exact);

// What a device of a stage does in an iteration: times that its compute tasks and the collectives that it takes part in
// take, summed. Collectives may run beside compute tasks.
struct StageTimes {
  int layers = 0;
  Nanoseconds forward = 0, backward = 0, recompute = 0, update = 0;
  Nanoseconds collectives = 0;      // of its layers: tensor parallelism, exchanges of experts
  Nanoseconds transfers = 0;        // that begin there: between stages, mostly
  Nanoseconds synchronization = 0;  // of gradients and parameters
  Nanoseconds busy() const { return forward + backward + recompute + update; }
};
// [stage], of the device there that computes longest.
Vector<StageTimes> stage_times(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                               const CostOptions& costs);

}  // namespace ff
