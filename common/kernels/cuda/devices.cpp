// Which GPUs there are, and what a profile says about one.
#include <dlfcn.h>

#include "common/errors.h"
#include "common/kernels/cuda/check.h"
#include "common/kernels/cuda/cuda_backend.h"

namespace ff {
namespace {

// CUDA's numbers: 13000 is 13.0.
std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

// NVML comes with the driver and has no header in the toolkit: signatures and constants from the NVML API reference.
struct Nvml {
  Nvml() : library(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto initialize = function<int()>("nvmlInit_v2");
    ready = initialize && initialize() == 0;
  }
  ~Nvml() {
    if (ready)
      if (const auto shut_down = function<int()>("nvmlShutdown")) shut_down();
    if (library) dlclose(library);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  template <class Signature>
  Signature* function(const char* name) const {
    return library ? reinterpret_cast<Signature*>(dlsym(library, name)) : nullptr;
  }

  void* library;
  bool ready = false;
};

// The driver's own version, "580.95.05"; "" without NVML.
std::string driver_version(const Nvml& nvml) {
  char text[96] = "";
  const auto version = nvml.function<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  return nvml.ready && version && version(text, sizeof text) == 0 ? text : "";
}

// "now 1980 MHz, memory 3201 MHz; "; "" without NVML.
std::string clocks_now(const Nvml& nvml, int device) {
  constexpr int multiprocessor_clock = 1, memory_clock = 2;  // nvmlClockType_t
  const auto handle_of = nvml.function<int(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
  const auto clock = nvml.function<int(void*, int, unsigned*)>("nvmlDeviceGetClockInfo");
  char address[32] = "";
  void* handle = nullptr;
  unsigned multiprocessor_mhz = 0, memory_mhz = 0;
  if (!nvml.ready || !handle_of || !clock || cudaDeviceGetPCIBusId(address, sizeof address, device) != cudaSuccess ||
      handle_of(address, &handle) != 0 || clock(handle, multiprocessor_clock, &multiprocessor_mhz) != 0 ||
      clock(handle, memory_clock, &memory_mhz) != 0)
    return "";
  return "now " + std::to_string(multiprocessor_mhz) + " MHz, memory " + std::to_string(memory_mhz) + " MHz; ";
}

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  FF_CHECK(cudaDeviceGetAttribute(&value, name, device));
  return value;
}

}  // namespace

bool built_with_cuda() { return true; }

int cuda_device_count() {
  int count = 0;  // stays as it is where there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess)
    throw MachineError(std::string("no GPU: cudaGetDeviceCount: ") + cudaGetErrorString(status));
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
  const Nvml nvml;
  description.driver = driver_version(nvml);
  description.driver += (description.driver.empty() ? "CUDA " : " (CUDA ") + cuda_version(driver) +
                        (description.driver.empty() ? "" : ")");
  description.runtime = cuda_version(runtime);
  const size_t cudnn = cudnnGetVersion();  // 91900 is 9.19.0
  description.cudnn =
      std::to_string(cudnn / 10000) + "." + std::to_string(cudnn % 10000 / 100) + "." + std::to_string(cudnn % 100);
  int part[3] = {};
  FF_CHECK(cublasGetProperty(MAJOR_VERSION, &part[0]));
  FF_CHECK(cublasGetProperty(MINOR_VERSION, &part[1]));
  FF_CHECK(cublasGetProperty(PATCH_LEVEL, &part[2]));
  description.cublas = std::to_string(part[0]) + "." + std::to_string(part[1]) + "." + std::to_string(part[2]);
  description.compute_capability = properties.major * 10 + properties.minor;
  description.multiprocessors = properties.multiProcessorCount;
  description.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  description.l2_cache_bytes = properties.l2CacheSize;
  // in kHz
  description.clocks = clocks_now(nvml, device) + "at most " +
                       std::to_string(attribute(cudaDevAttrClockRate, device) / 1000) + " MHz, memory " +
                       std::to_string(attribute(cudaDevAttrMemoryClockRate, device) / 1000) + " MHz";
  return description;
}

}  // namespace ff
