// Replaces nccl.cpp in a build without CUDA.
#include "executor/transport/nccl.h"

namespace ff {

std::unique_ptr<Transport> make_nccl_transport(Transport&, CudaBackend&, bool) {
  throw MachineError("no GPU: this program was built without CUDA");
}
std::string nccl_version() { return ""; }

}  // namespace ff
