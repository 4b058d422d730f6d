// Measures this machine as ffexec uses it, and describes it as a topology: kernels through the backend, messages and
// all-reduces through the transport's own calls.
#pragma once

#include "common/json_file.h"
#include "common/kernels/cuda/cuda_backend.h"
#include "executor/processor_share.h"
#include "executor/transport/transport.h"

namespace ff {

struct Calibration {
  Json topology;              // fftopology/1
  std::string text;           // for people: what was measured, and how well it fits what a topology can say
  Vector<std::string> notes;  // what they should know before they believe it
};

// This rank's device.
struct CalibratedDevice {
  Backend& backend;
  int cores = 0;                // what the CPU backend was made with
  CudaBackend* gpu = nullptr;   // the backend, if it is a GPU's
  CudaBackend* tf32 = nullptr;  // of the same GPU, if it has this precision
  std::string name = "";        // the GPU's
  int64_t memory_bytes = 0;     // the GPU's, for one rank
};

// On rank 0; on the others it is empty. All ranks call. `processors`: what each rank may use.
Calibration calibrate(const CalibratedDevice& device, Transport& transport, const Vector<RankProcessors>& processors);

}  // namespace ff
