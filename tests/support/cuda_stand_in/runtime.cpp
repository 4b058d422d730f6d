// Devices, memory and launches of CUDA's runtime.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "block.h"
#include "memory.h"
#include "streams.h"

using namespace cuda_stand_in;

namespace {

thread_local int device_of_thread = 0;

int device_count() {
  const char* text = std::getenv("FF_CUDA_STAND_IN_DEVICES");
  return text ? std::atoi(text) : 1;
}

// 80: 8.0, with which kernels may use tensor cores in TF32.
int compute_capability() {
  const char* text = std::getenv("FF_CUDA_STAND_IN_CAPABILITY");
  return text ? std::atoi(text) : 80;
}

#define FF_LOCKED                            \
  const std::lock_guard lock(state_mutex()); \
  if (device_failed()) return remember(cudaErrorLaunchFailure)

cudaError_t submit_work(cudaStream_t stream, const char* name, std::function<void()> run) {
  const auto work = std::make_shared<Work>();
  work->name = name;
  work->run = [run = std::move(run)] {
    run();
    return Progress::done;
  };
  return submit(stream, work);
}

// Whether a copy's end in device memory may be used; fails the device otherwise.
bool may_use(int device, const char* call, const void* memory, size_t bytes, Access access) {
  const std::string wrong = check_range(device, memory, bytes, access);
  if (!wrong.empty()) fail_for_ever(std::string(call) + (access == Access::read ? " reads " : " writes ") + wrong);
  return wrong.empty();
}

}  // namespace

namespace cuda_stand_in {
int current_device() { return device_of_thread; }
}  // namespace cuda_stand_in

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInvalidDevicePointer: return "invalid device pointer";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return what_failed().empty() ? "unspecified launch failure" : what_failed().c_str();
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge: return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
  }
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return *count > 0 ? cudaSuccess : remember(cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  FF_LOCKED;
  if (device < 0 || device >= device_count()) return remember(cudaErrorInvalidDevice);
  device_of_thread = device;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrClockRate: *value = 1'000'000; break;  // kHz: clock64 counts nanoseconds
    case cudaDevAttrMemoryClockRate: *value = 1'000'000; break;
    case cudaDevAttrMultiProcessorCount: *value = 4; break;
    case cudaDevAttrComputeCapabilityMajor: *value = compute_capability() / 10; break;
  }
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  const char* slice = std::getenv("FF_CUDA_STAND_IN_MIG");  // a slice's identifier
  std::snprintf(properties->name, sizeof properties->name, "CUDA stand-in on the CPU%s", slice ? " MIG 1g " : "");
  if (slice) std::snprintf(properties->uuid.bytes, sizeof properties->uuid.bytes, "%s", slice);
  properties->totalGlobalMem = static_cast<size_t>(total_memory_bytes());
  properties->major = compute_capability() / 10;
  properties->minor = compute_capability() % 10;
  properties->multiProcessorCount = 4;
  properties->l2CacheSize = 1 << 20;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
  std::snprintf(text, static_cast<size_t>(size), "FFFF:%02X:00.0", device);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) { return cudaDriverGetVersion(version); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  FF_LOCKED;
  if (const cudaError_t status = forbidden_while_capturing(); status != cudaSuccess) return status;
  *memory = bytes ? allocate(device_of_thread, bytes) : nullptr;
  return *memory || !bytes ? cudaSuccess : remember(cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* memory) {
  FF_LOCKED;
  if (!memory) return cudaSuccess;
  if (const cudaError_t status = forbidden_while_capturing(); status != cudaSuccess) return status;
  wait_for_device(device_of_thread);
  return release(memory) ? remember(last_failure()) : remember(cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  FF_LOCKED;
  if (const cudaError_t status = forbidden_while_capturing(); status != cudaSuccess) return status;
  *memory = allocate_pinned(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  const std::lock_guard lock(state_mutex());
  if (!device_failed()) wait_for_device(device_of_thread);
  return release_pinned(memory) ? cudaSuccess : remember(cudaErrorInvalidValue);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* all_bytes) {
  FF_LOCKED;
  *free_bytes = static_cast<size_t>(free_memory_bytes(device_of_thread));
  *all_bytes = static_cast<size_t>(total_memory_bytes());
  return cudaSuccess;
}

// From and to pageable memory as documented (CUDA Runtime API, "API synchronization behavior"): the call returns when
// the host's memory was read, or written.
cudaError_t cudaMemcpyAsync(void* destination, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  FF_LOCKED;
  if (!stream) return remember(cudaErrorInvalidResourceHandle);
  const int device = device_of(stream);
  if (kind == cudaMemcpyDeviceToDevice)
    return submit_work(stream, "cudaMemcpyAsync", [=] {
      // What was never written may be copied, and stays so.
      if (!check_range(device, source, bytes, Access::read).starts_with("device memory that was never written") &&
          !may_use(device, "cudaMemcpyAsync", source, bytes, Access::read))
        return;
      std::vector<char> values(static_cast<const char*>(source), static_cast<const char*>(source) + bytes);
      const auto written = written_words(source, bytes);
      if (!may_use(device, "cudaMemcpyAsync", destination, bytes, Access::write)) return;
      std::memcpy(destination, values.data(), bytes);
      set_written_words(destination, written);
    });
  const void* host = kind == cudaMemcpyHostToDevice ? source : destination;
  if (is_device_address(host)) return remember(cudaErrorInvalidValue);
  const bool pinned = is_pinned(host, bytes);
  if (!pinned && is_capturing(stream)) return forbidden_while_capturing();
  if (kind == cudaMemcpyHostToDevice) {
    std::shared_ptr<std::vector<char>> copy;
    if (!pinned)
      copy = std::make_shared<std::vector<char>>(static_cast<const char*>(source),
                                                 static_cast<const char*>(source) + bytes);
    return submit_work(stream, "cudaMemcpyAsync", [=] {
      if (may_use(device, "cudaMemcpyAsync", destination, bytes, Access::write))
        std::memcpy(destination, copy ? copy->data() : source, bytes);
    });
  }
  const cudaError_t status = submit_work(stream, "cudaMemcpyAsync", [=] {
    const std::string wrong = check_range(device, source, bytes, Access::read);
    if (!wrong.empty() && !wrong.starts_with("device memory that was never written")) {
      fail_for_ever("cudaMemcpyAsync reads " + wrong);
      return;
    }
    std::memcpy(destination, source, bytes);
    spoil_unwritten(source, destination, bytes);
  });
  if (status != cudaSuccess || pinned) return status;
  return cudaStreamSynchronize(stream);
}

cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  FF_LOCKED;
  if (!stream) return remember(cudaErrorInvalidResourceHandle);
  const int device = device_of(stream);
  return submit_work(stream, "cudaMemsetAsync", [=] {
    if (may_use(device, "cudaMemsetAsync", memory, bytes, Access::write)) std::memset(memory, value, bytes);
  });
}

// Limits of compute capability 7.5 (CUDA C++ Programming Guide, "Technical specifications per compute capability").
cudaError_t cuda_stand_in_launch(const cudaLaunchConfig_t& config, const void* kernel, std::shared_ptr<void> parameters,
                                 size_t parameter_bytes, void (*run)(const void* parameters)) {
  FF_LOCKED;
  const dim3 &grid = config.gridDim, &block = config.blockDim;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.x > 1024 || block.y > 1024 || block.z > 64 || grid.x == 0 ||
      grid.x > 0x7fffffffu || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535 ||
      config.dynamicSmemBytes > 48 * 1024 || parameter_bytes > 4096 + sizeof(void*))
    return remember(cudaErrorInvalidConfiguration);
  if (!config.stream) return remember(cudaErrorInvalidResourceHandle);
  Launch launch{device_of(config.stream), grid, block, config.dynamicSmemBytes, kernel, parameters,
                parameter_bytes,          run};
  if (launch.device != device_of_thread) return remember(cudaErrorInvalidResourceHandle);
  return submit_work(config.stream, "kernel", [launch] {
    const std::string wrong = run_kernel(launch, next_random());
    if (!wrong.empty()) fail_for_ever(wrong);
  });
}
