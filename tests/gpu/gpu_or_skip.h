// Tests that need a GPU: where there is none they print "skipped: no GPU: REASON", by which ctest counts them as
// skipped.
#pragma once

#include <catch2/catch.hpp>

#include "common/errors.h"
#include "common/kernels/cuda/cuda_backend.h"

namespace ff {

// Null where there is no GPU. A GPU that cannot be used is a failure.
inline std::unique_ptr<CudaBackend> gpu_or_skip(Precision precision = Precision::fp32) {
  try {
    cuda_device_count();
  } catch (const MachineError& error) {
    WARN("skipped: " << error.what());
    return nullptr;
  }
  return make_cuda_backend(0, precision);
}

}  // namespace ff
