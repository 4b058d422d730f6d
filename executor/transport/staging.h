// A GPU's memory over a transport of host memory: data goes through pinned buffers. For several ranks on one GPU (NCCL
// refuses them) and for machines without NCCL.
//
// Copies out run on a stream of their own after an event of the backend's; a message starts when its copy is done,
// found out whenever this transport is called. So the caller never waits for a kernel, only for other ranks' messages.
// Copies in go to the backend's own stream, in front of the kernel that needs them.
#pragma once

#include <memory>

#include "common/kernels/cuda/cuda_backend.h"
#include "executor/transport/transport.h"

namespace ff {

// `host` and `backend` outlive it.
std::unique_ptr<Transport> make_staging_transport(Transport& host, CudaBackend& backend);

}  // namespace ff
