// The CPU backend posing as a GPU, to test without one what transports do with streams and pinned memory. Its own
// stream runs at once, as the CPU does. Work given to another stream is done one piece at each question whether an
// event is done, so that it is late, as a GPU's is. Copies must be between this backend's memory and pinned memory;
// anything else throws MachineError.
#pragma once

#include <memory>

#include "common/kernels/cuda/cuda_backend.h"
#include "executor/transport/transport.h"

namespace ff {

class PosingBackend : public CudaBackend {
 public:
  virtual bool is_pinned(const void* memory, int64_t bytes) const = 0;
};

std::unique_ptr<PosingBackend> make_posing_backend();

// `transport`, which accepts messages in pinned memory of `backend` alone.
std::unique_ptr<Transport> make_pinned_only_transport(Transport& transport, PosingBackend& backend);

}  // namespace ff
