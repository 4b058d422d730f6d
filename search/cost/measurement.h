// Times kernels on this machine, by running the executor's own.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/kernels/backend.h"
#include "search/cost/profile.h"

namespace ff {

struct MeasurementSettings {
  int concurrent = 1;          // run the kernel on so many threads at once, as the ranks of one node would: they share caches and memory
  int threads = 1;             // of each such rank (the device model's cores)
  double least_ms = 12;        // keep repeating until so much time has been measured
  int least_samples = 5;
  int most_samples = 60;
  int64_t rotated_bytes = 24 << 20;  // buffers are rotated through at most so many bytes, so that a kernel finds its data as cold as in training
};

class KernelMeasurement {
 public:
  using MakeBackend = std::function<std::unique_ptr<Backend>()>;

  KernelMeasurement(MakeBackend make_backend, MeasurementSettings settings);
  ~KernelMeasurement();

  // The phases of one kernel, by Phase; backward only when asked for, statistics only of operators that have them.
  using Result = std::map<Phase, ProfileEntry>;
  Result kernel(const OperatorDefinition& definition, const Block& part, bool backward, KernelUse use);
  ProfileEntry copy(int64_t bytes);
  ProfileEntry update(int64_t bytes);

 private:
  class Lane;  // one thread's backend, kernel and buffers
  // Lane 0 repeats the phases of `work` in turn and times each, while the other lanes run the same work to load the machine.
  std::vector<ProfileEntry> time(int phases, const std::function<void(Lane&)>& prepare,
                                 const std::function<void(Lane&, int phase, int repetition)>& work);

  MeasurementSettings settings_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

// Adds "copy" and "update" entries for a range of sizes, unless the profile has them.
void measure_rates(KernelMeasurement& measurement, Profile& profile);

// Where and with what this machine measures: goes into a profile's "measured".
Json describe_this_machine(const MeasurementSettings& settings);

}  // namespace ff
