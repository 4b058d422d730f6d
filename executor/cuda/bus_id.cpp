#include "executor/cuda/bus_id.h"

#include "common/kernels/cuda/check.h"

namespace ff {

std::string cuda_bus_id(int device) {
  char text[32] = "";
  FF_CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device));
  return text;
}

}  // namespace ff
