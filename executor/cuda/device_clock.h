// Times on a GPU's stream: a host clock sees only when work was submitted. Without CUDA no_cuda.cpp replaces it, which
// throws MachineError.
#pragma once

#include <memory>

#include "common/kernels/cuda/cuda_backend.h"
#include "executor/program/clock.h"

namespace ff {

std::unique_ptr<Clock> make_device_clock(CudaBackend& backend);

}  // namespace ff
