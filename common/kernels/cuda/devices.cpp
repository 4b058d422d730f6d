// Which GPUs there are, and what a profile says about one.
#include <dlfcn.h>

#include "common/errors.h"
#include "common/kernels/cuda/check.h"
#include "common/kernels/cuda/cuda_backend.h"

namespace ff {
namespace {

// CUDA's numbers: 13000 is 13.0.
std::string cuda_version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

// The driver's own version, "580.95.05", from NVML, which comes with the driver and has no header in the toolkit; "" without it.
// nvmlReturn_t nvmlSystemGetDriverVersion(char* version, unsigned int length): NVML API reference, system queries.
std::string driver_version() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return "";
  const auto initialize = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto shut_down = reinterpret_cast<int (*)()>(dlsym(library, "nvmlShutdown"));
  const auto version = reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  char text[96] = "";
  if (initialize && shut_down && version && initialize() == 0) {
    if (version(text, sizeof text) != 0) text[0] = '\0';
    shut_down();
  }
  dlclose(library);
  return text;
}

double attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  FF_CHECK(cudaDeviceGetAttribute(&value, name, device));
  return value;
}

}  // namespace

bool built_with_cuda() { return true; }

int cuda_device_count() {
  int count = 0;  // stays as it is where there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) throw MachineError(std::string("no GPU: cudaGetDeviceCount: ") + cudaGetErrorString(status));
  if (count < 1) throw MachineError("no GPU: cudaGetDeviceCount: 0 devices");
  return count;
}

CudaDescription describe_cuda_device(int device) {
  CudaDescription description;
  cudaDeviceProp properties{};
  FF_CHECK(cudaGetDeviceProperties(&properties, device));
  int driver = 0, runtime = 0;
  FF_CHECK(cudaDriverGetVersion(&driver));
  FF_CHECK(cudaRuntimeGetVersion(&runtime));
  description.name = properties.name;
  description.driver = driver_version();
  description.driver += (description.driver.empty() ? "CUDA " : " (CUDA ") + cuda_version(driver) + (description.driver.empty() ? "" : ")");
  description.runtime = cuda_version(runtime);
  const size_t cudnn = cudnnGetVersion();  // 91900 is 9.19.0
  description.cudnn = std::to_string(cudnn / 10000) + "." + std::to_string(cudnn % 10000 / 100) + "." + std::to_string(cudnn % 100);
  int part[3] = {};
  FF_CHECK(cublasGetProperty(MAJOR_VERSION, &part[0]));
  FF_CHECK(cublasGetProperty(MINOR_VERSION, &part[1]));
  FF_CHECK(cublasGetProperty(PATCH_LEVEL, &part[2]));
  description.cublas = std::to_string(part[0]) + "." + std::to_string(part[1]) + "." + std::to_string(part[2]);
  description.compute_capability = properties.major * 10 + properties.minor;
  description.multiprocessors = properties.multiProcessorCount;
  description.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  description.l2_cache_bytes = properties.l2CacheSize;
  description.clock_mhz = attribute(cudaDevAttrClockRate, device) / 1e3;  // the attributes are in kHz
  description.memory_clock_mhz = attribute(cudaDevAttrMemoryClockRate, device) / 1e3;
  return description;
}

}  // namespace ff
