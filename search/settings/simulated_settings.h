// An iteration under settings (optimizer/parallelism.h), simulated: of data-parallel groups that do the same one
// (optimizer/folding.h), of the devices of a tensor-parallel group that do the same one of them
// (optimizer/alike_ranks.h), and of a long row of micro-batches the first ones.
#pragma once

#include <memory>
#include <optional>

#include "search/optimizer/alike_ranks.h"
#include "search/optimizer/evaluator.h"
#include "search/optimizer/folding.h"
#include "search/problem_files.h"

namespace ff {

// A plan, of the groups that stand for all.
class SimulatedSettings {
 public:
  // `parallelism` has its data-parallel degree and its micro-batch. `recompute`: other patterns than the settings say.
  // `folds`: of this topology, to be quicker. Throws InputError as plan_of does.
  SimulatedSettings(const Parallelism& parallelism, const Graph& graph, const Topology& topology,
                    const CostOptions& costs, const std::optional<Vector<std::string>>& recompute = {},
                    KnownFolds* folds = nullptr, StandIns stand_ins = StandIns::compared);

  const Strategy& strategy() const { return strategy_; }  // of one micro-batch
  const Topology& topology() const { return plan_.topology; }
  const Replicas* replicas() const { return plan_.replicas.get(); }  // null: each device is simulated
  // As many times the devices of a group are simulated. With stages of different width, of those with most groups.
  int groups() const { return simulated_.data; }
  Vector<int> stages_of_devices() const;  // [device]
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
  Parallelism simulated_;  // with the groups that are simulated
};

// How the time of many micro-batches follows from that of few.
enum class Extrapolation {
  exact,  // where the state of the simulation comes back (simulator/repetition.h)
  steady  // or where each further one takes the same time, but for 0.1 %, as those before
};

// The simulation of some micro-batches, of which further ones may repeat the last. The settings must outlive it.
class SimulatedMicroBatches {
 public:
  SimulatedMicroBatches(const SimulatedSettings& settings, int micro_batches, int further);

  Nanoseconds makespan() const;  // of all micro-batches
  int further() const { return further_; }
  bool exact() const { return exact_; }  // else the repetition is that of a steady growth

  // Of the few micro-batches; with all of them, preallocated buffers of transfers become more (`bytes`).
  MemoryModel::Needs memory(TransferBuffers buffers);
  // [device]: of all micro-batches. A device keeps what those in flight need.
  Vector<int64_t> bytes(const MemoryModel::Needs& needs);
  // [device]: of all micro-batches, with on-demand buffers where preallocated ones do not fit and need more.
  struct Memory {
    Vector<int64_t> bytes;
    TransferBuffers buffers;
    bool exact;  // else buffers of further transfers leave other gaps between them, mostly larger ones
  };
  Memory memory_of_all();
  // Kernels of all micro-batches of the simulated groups.
  CostCounts sources();
  // [task]: how many tasks of the simulated devices it stands for, those of further micro-batches included.
  Vector<int64_t> times();

  Evaluator& evaluator() { return iteration_.evaluator(); }  // of the few
  const Evaluator::Details& details() const& { return details_; }
  Evaluator::Details details() && { return std::move(details_); }

 private:
  friend std::unique_ptr<SimulatedMicroBatches> repeating_micro_batches(const SimulatedSettings& settings,
                                                                        const Parallelism& parallelism,
                                                                        int micro_batches, Extrapolation extrapolation);
  int64_t bytes_of_further(const MemoryPlan& plan);
  int micro_batch_of(const BufferKey& key);

  const SimulatedSettings& settings_;
  SimulatedSettings::Iteration iteration_;
  Evaluator::Details details_;
  const int further_;
  bool exact_ = true;
};

// Few micro-batches that the others repeat; null: there are too few for that, or they do not. `parallelism` has all its
// values.
std::unique_ptr<SimulatedMicroBatches> repeating_micro_batches(const SimulatedSettings& settings,
                                                               const Parallelism& parallelism, int micro_batches,
                                                               Extrapolation extrapolation);
// Those, else all.
std::unique_ptr<SimulatedMicroBatches> simulated_micro_batches(const SimulatedSettings& settings,
                                                               const Parallelism& parallelism, int micro_batches,
                                                               Extrapolation extrapolation);

}  // namespace ff
