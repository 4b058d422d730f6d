// A GPU's memory over NCCL: point-to-point transfers and all-reduces between GPUs, on streams of their own. Without
// CUDA no_nccl.cpp replaces it.
//
// Transfers go through one communicator of all ranks on one stream, all-reduces through a communicator for each group
// of ranks, split from it, on another stream. Events order them with the kernels: a transfer or an all-reduce starts
// after the kernels that made its data, and a kernel that needs the outcome starts after it; nothing else waits, and
// the caller never does before the end of an iteration. Kernels of NCCL spin until their peers take part, so all of
// them are started in one order on all ranks (transfer_order.h), and NCCL_LAUNCH_ORDER_IMPLICIT=1, set here unless it
// is set already, makes the GPU start those of different communicators in that order, too (NCCL user guide,
// "Environment variables"; 2.26 and newer). Without it all of them share one stream. So they do where iterations are
// recorded as CUDA graphs: a recorded order of kernels' starts made the driver crash (docs/gpu.md).
#pragma once

#include <memory>
#include <string>

#include "common/kernels/cuda/cuda_backend.h"
#include "executor/transport/transport.h"

namespace ff {

// All ranks call. `host` carries control data; both outlive it. `recorded`: will iterations be recorded? MachineError
// where NCCL cannot connect them, as ranks on one GPU.
std::unique_ptr<Transport> make_nccl_transport(Transport& host, CudaBackend& backend, bool recorded);

// Whether this NCCL may start operations of different communicators in another order than they were called in, unless
// they are of one stream. `version`: 22809 is 2.28.9; `launch_order_implicit`: the environment variable, null if not
// set.
inline bool nccl_needs_one_stream(int version, const char* launch_order_implicit) {
  constexpr int with_implicit_order = 22600;
  return version < with_implicit_order || !launch_order_implicit || std::string(launch_order_implicit) != "1";
}

// "2.28.9"; "" in a build without CUDA.
std::string nccl_version();

}  // namespace ff
