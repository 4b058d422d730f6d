#include "executor/cuda/bus_id.h"

#include "common/kernels/cuda/check.h"

namespace ff {

std::string cuda_bus_id(int device) {
  char text[32] = "";
  FF_CHECK(cudaDeviceGetPCIBusId(text, sizeof text, device));
  cudaDeviceProp properties{};
  FF_CHECK(cudaGetDeviceProperties(&properties, device));
  std::string id = text;
  if (std::string(properties.name).find(" MIG ") == std::string::npos) return id;
  for (const char byte : properties.uuid.bytes) {
    constexpr char digits[] = "0123456789abcdef";
    id += digits[byte >> 4 & 15];
    id += digits[byte & 15];
  }
  return id;
}

}  // namespace ff
