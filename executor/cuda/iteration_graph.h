// An iteration recorded once as a CUDA graph and launched as a whole afterwards: a kernel's launch costs the host
// several microseconds, a kernel of a graph about one, on the GPU. What is submitted to the backend's stream, and to
// streams that are ordered after it by events, is recorded instead of run. (CUDA Programming Guide, "CUDA Graphs",
// stream capture.) Without CUDA no_cuda.cpp replaces it.
#pragma once

#include <memory>

#include "common/kernels/cuda/cuda_backend.h"

namespace ff {

class IterationGraph {
 public:
  virtual ~IterationGraph() = default;
  virtual bool recorded() const = 0;
  // What is submitted between the two is recorded. All other streams have joined the backend's before the end.
  // MachineError when something in between cannot be part of a graph; then give_up.
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void give_up() = 0;  // after a failure between begin and end: the stream runs what it is given again
  virtual void launch(int64_t iteration) = 0;
};

std::unique_ptr<IterationGraph> make_iteration_graph(CudaBackend& backend);

}  // namespace ff
