// What compute work costs on each device model, from whichever source is allowed: profile, measurement, analytic model.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "common/busy_processors.h"
#include "common/graph.h"
#include "common/topology.h"
#include "common/vector.h"
#include "search/cost/conventions.h"
#include "search/cost/duration.h"
#include "search/cost/measurement.h"
#include "search/cost/profile.h"

namespace ff {

enum class CostMode { automatic, measure, profile, analytic };
enum class CostSource : uint8_t { profile, measured, analytic };

struct KernelCost {
  Nanoseconds ns;
  CostSource source;
};

// Thread-safe. A kernel that is to be measured is measured when first asked for, so ask for all before threads compute
// as well.
class KernelCosts {
 public:
  // `profiles`: entries to use, by device model; models without one get an empty profile. `working_set_bytes`: what an
  // iteration touches on one device (see working_set_bytes below); a measured kernel finds its data as cold in the
  // caches as among so much. `precision`: a profile of a GPU that was measured with another one is an
  // InputError.
  KernelCosts(const Topology& topology, CostMode mode, Vector<Profile> profiles, int64_t working_set_bytes = 0,
              Precision precision = Precision::fp32, OptimizerKind optimizer = OptimizerKind::sgd);

  // Throws InputError when the mode is `profile` and there is no entry, MachineError when it is `measure` and this
  // machine has no such device.
  KernelCost kernel(const OperatorDefinition& definition, const Block& part, Phase phase, bool backward_too,
                    KernelUse use, int model);
  // Where its answer comes from, as text: the terms of the analytic model, or the signature of an entry.
  std::string explanation(const OperatorDefinition& definition, const Block& part, Phase phase, bool backward_too,
                          KernelUse use, int model);
  Nanoseconds copy(int64_t bytes, int model);
  Nanoseconds update(int64_t bytes, int model);

  // Can (and may) costs of this model be measured here?
  bool measurable(int model) const;
  // Why this machine cannot measure it: ", no GPU: cudaGetDeviceCount: ...", or "".
  std::string why_not_measurable(int model) const;
  const Profile& profile(int model) const { return models_[model].profile; }
  // What was measured otherwise than ranks would run, for want of processors; "" for nothing.
  std::string measurement_note() const;
  // What else kept the processors busy meanwhile; "" for nothing.
  std::string busy_note() const;
  Precision precision() const { return precision_; }
  // Before the first question. Throws InputError for products in fp8 where all else is not in bf16.
  void follow(const FrameworkConventions& conventions);
  const FrameworkConventions& conventions() const { return conventions_; }
  OptimizerKind optimizer() const { return optimizer_; }      // of updates
  int64_t measured_count() const { return measured_count_; }  // kernels measured by this object

 private:
  struct Model {
    DeviceModel model;
    Profile profile;
    std::map<std::string, bool> measured_here;
    std::unique_ptr<KernelMeasurement> measurement;
    MeasurementSettings settings;
    int ranks_of_node = 0;  // that compute at once
    bool is_gpu = false;
    bool on_this_machine = false;
    bool has_rates = false;  // of copies and updates, as far as they are measured
  };
  // bf16 follows from the graph; tf32 is of GPUs alone.
  Precision precision_of(const OperatorDefinition& definition, const Model& model) const {
    if (definition.activation_type() == DataType::bf16) return Precision::bf16;
    return model.is_gpu && precision_ == Precision::tf32 ? Precision::tf32 : Precision::fp32;
  }
  KernelMeasurement& measurement(Model& model);
  void describe_machine(Model& model);
  // Counts what the processors do while a CPU's kernels are measured.
  void watched(const Model& model, const std::function<void()>& measure);
  Nanoseconds rate(const std::string& work, int64_t bytes, int model);

  CostMode mode_;
  Precision precision_;
  OptimizerKind optimizer_;
  FrameworkConventions conventions_;
  Vector<Model> models_;
  std::mutex mutex_;
  std::atomic<int64_t> measured_count_{0};
  ProcessorTime time_;      // of all processors, while kernels were measured on the CPU
  Vector<double> spreads_;  // of these kernels
};

// Bytes of all activations and their gradients, and of parameters with gradient and velocity, over the number of
// devices.
int64_t working_set_bytes(const Graph& graph, const Topology& topology);

}  // namespace ff
