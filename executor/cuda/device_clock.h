// Times on a GPU's stream: a host clock sees only when work was submitted. Without CUDA no_cuda.cpp stands in, whose
// functions throw MachineError.
#pragma once

#include <cstdint>
#include <memory>

#include "common/kernels/cuda/cuda_backend.h"
#include "common/vector.h"

namespace ff {

class DeviceClock {
 public:
  virtual ~DeviceClock() = default;
  virtual void begin() = 0;                // the stream's time 0; forgets the marks
  virtual void mark() = 0;                 // when all that was submitted so far is done
  virtual Vector<int64_t> times_ns() = 0;  // of the marks, since begin; the backend has been waited for
};

std::unique_ptr<DeviceClock> make_device_clock(CudaBackend& backend);

}  // namespace ff
