// What ranks compute at: device models and devices of a topology.
#pragma once

#include <string>

#include "common/kernels/backend.h"
#include "executor/calibration/calibrate.h"

namespace ff {

// What one rank's device does.
struct ComputeRates {
  double peak_tflops, memory_gb_per_s, launch_us;
  double products_per_s;        // in the long run: what a quota of processor time leaves
  double peak_tf32_tflops = 0;  // 0: none, or not measured
};

// Takes some 1.3 s.
ComputeRates measure_compute(Backend& backend);
// By the GPU's clock. `tf32`: the same GPU with this precision; null where it has none.
ComputeRates measure_compute_of_gpu(Backend& backend, Backend* tf32);

// What a topology says of the ranks' devices beside their rates.
struct DeviceKindText {
  std::string kind;    // "cpu", "gpu"
  std::string model;   // key of the device model
  std::string shared;  // what ranks would share that hinder each other: "processors"
  int cores = 0;       // 0: none to tell
  int64_t memory_bytes = 0;
};

// Have ranks much less of their speed when all compute? `alone`: of rank 0 while the others slept. `at_once`: by rank.
bool ranks_hinder_each_other(const ComputeRates& alone, const Vector<ComputeRates>& at_once);

// Adds models and devices to the topology, and notes. Slower ranks have a model of their own, whose kernels are those
// of the fastest ranks, at a speed; and where ranks hinder each other, as those do that share processors, all have
// such models: ffsearch measures kernels alone.
// `nodes`: by rank.
void add_devices(const ComputeRates& alone, const Vector<ComputeRates>& at_once, const Vector<std::string>& nodes,
                 const DeviceKindText& text, Calibration& calibration);

}  // namespace ff
