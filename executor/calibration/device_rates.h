// What ranks compute at: device models and devices of a topology.
#pragma once

#include "common/kernels/backend.h"
#include "executor/calibration/calibrate.h"

namespace ff {

// What one rank's device does.
struct ComputeRates {
  double peak_tflops, memory_gb_per_s, launch_us;
  double products_per_s;  // in the long run: what a quota of processor time leaves
};

// Takes some 1.3 s.
ComputeRates measure_compute(Backend& backend);

// Have ranks much less of their speed when all compute? `alone`: of rank 0 while the others slept. `at_once`: by rank.
bool ranks_hinder_each_other(const ComputeRates& alone, const Vector<ComputeRates>& at_once);

// Adds models and devices to the topology, and notes. Slower ranks have a model of their own, whose kernels are those
// of the fastest ranks, at a speed; and where ranks hinder each other, as those do that share processors, all have
// such models: ffsearch measures kernels alone.
// `nodes`: by rank.
void add_devices(const ComputeRates& alone, const Vector<ComputeRates>& at_once, const Vector<std::string>& nodes,
                 int cores, int64_t memory_bytes, Calibration& calibration);

}  // namespace ff
