// Times kernels on this machine, by running the executor's own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/kernels/backend.h"
#include "common/kernels/cuda/cuda_backend.h"
#include "common/vector.h"
#include "search/cost/profile.h"

namespace ff {

struct MeasurementSettings {
  // run the kernel on so many threads at once, as the ranks of one node would: they share caches and memory
  int concurrent = 1;
  int threads = 1;       // of each such rank (the device model's cores)
  double least_ms = 12;  // keep repeating until so much time has been measured
  int least_samples = 5;
  int most_samples = 60;
  // buffers are rotated through at most so many bytes, so that a kernel finds its data as cold as in training
  int64_t rotated_bytes = 24 << 20;
  size_t most_sets = 16;  // and at most so many sets of buffers
  // read and written before each time, as by other kernels; then the inputs are written; 0: neither
  int64_t other_work_bytes = 2 << 20;
  // memory of these other kernels, that is as much of an iteration's as a cache might hold
  int64_t other_memory_bytes = 64 << 20;
  // of a GPU: so long a row of the same kernel is timed as a whole, as part of a CUDA graph (Backend::times_in_row_us);
  // 0: each alone
  double row_us = 0;
  double warm_up_ms = 0;  // of work before the first measurement: a GPU that was idle raises its clocks meanwhile
  int gpu = -1;           // number of the GPU that is measured; -1: the CPU
  Precision precision = Precision::fp32;  // of a GPU's products
};

class MeasurementLane;

class KernelMeasurement {
 public:
  using MakeBackend = std::function<std::unique_ptr<Backend>()>;

  KernelMeasurement(MakeBackend make_backend, MeasurementSettings settings);
  ~KernelMeasurement();

  // The phases of one kernel, by Phase; backward only when asked for, statistics only of operators that have them.
  using Result = std::map<Phase, ProfileEntry>;
  Result kernel(const OperatorDefinition& definition, const Block& part, bool backward, KernelUse use);
  ProfileEntry copy(int64_t bytes);
  ProfileEntry update(int64_t bytes, OptimizerKind optimizer);

 private:
  // Lane 0 repeats the phases of `work` in turn and times each, while the other lanes run the same work to load the
  // machine. Not timed: `make_ready`, before each. In a row, a phase that comes right after the one before it
  // (`follows`, by phase) is timed with it, and the time of that one alone is taken off.
  using Prepare = std::function<void(MeasurementLane&)>;
  using Work = std::function<void(MeasurementLane&, int phase, int repetition)>;
  Vector<ProfileEntry> time(const Vector<bool>& follows, const Prepare& prepare, const Work& make_ready,
                            const Work& work);

  MeasurementSettings settings_;
  Vector<std::unique_ptr<MeasurementLane>> lanes_;
};

// Adds "copy" and "update" entries for a range of sizes, unless the profile has them.
void measure_rates(KernelMeasurement& measurement, Profile& profile, OptimizerKind optimizer);

// The settings for a GPU of this machine. Its level-2 cache holds what a kernel of training has just written, so that
// is rotated through a few times.
MeasurementSettings gpu_settings(int gpu, Precision precision);

// Has a GPU's name ("NVIDIA H200") the device model's ("h200") as a word, whatever the case?
bool names_model(const std::string& gpu_name, const std::string& model);

// The number of this machine's first GPU whose name names the device model; -1 without one.
int gpu_of_model(const std::string& model);

// Where and with what this machine measures: goes into a profile's "measured".
Json describe_this_machine(const MeasurementSettings& settings);

}  // namespace ff
