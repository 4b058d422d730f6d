// Which device each rank runs on, and how the ranks exchange data: from what the user asked for, what the strategy was
// made for, and what this build and these machines have. All ranks decide alike.
#pragma once

#include <string>

#include "common/kernels/cuda/cuda_backend.h"
#include "executor/transport/transport.h"

namespace ff {

struct DeviceRequest {
  std::string backend = "auto";    // auto, cpu, cuda
  std::string transport = "auto";  // auto, mpi, nccl
  bool share_gpu = false;          // several ranks may use one GPU
  bool strategy_for_gpus = false;  // all devices of the strategy are GPUs
};

// What a rank sees on its machine.
struct GpusSeen {
  int count = 0;
  std::string why_none;  // where count is 0
  std::string bus_id;    // of the one that it would take: number local_rank % count
};

struct DeviceChoice {
  bool cuda = false;
  int gpu = 0;        // its number on this rank
  bool nccl = false;  // else MPI; on GPUs that means through the host
  std::string note;   // for the user: why not what the strategy was made for; on rank 0 alone
};

// What this rank sees; nothing that this build lacks.
GpusSeen look_for_gpus(const NodePlace& place);

// The same on every rank but for `gpu`. All ranks call. Throws MachineError on every rank when what was asked for is
// not there.
DeviceChoice choose_device(const DeviceRequest& request, const GpusSeen& seen, Transport& host);

}  // namespace ff
