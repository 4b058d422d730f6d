// The backend of one NVIDIA GPU, and what transports need of it. No CUDA header is needed to read this; handles are
// untyped pointers. In a build without CUDA every function here throws MachineError "this program was built without
// CUDA" (no_cuda.cpp), or says so by its result.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "common/kernels/backend.h"

namespace ff {

// An event of a GPU's stream: what was submitted to the stream before it was recorded is complete when it is.
using CudaEvent = void*;  // a cudaEvent_t

class CudaBackend : public Backend {
 public:
  virtual int device() const = 0;  // its number, as CUDA counts
  // Of matrix products, convolutions and attention's products; everything else is fp32. tf32 rounds the operands of
  // products to 10 bits of mantissa (tensor cores of compute capability 8.0 and newer).
  virtual Precision precision() const = 0;
  virtual void* stream() const = 0;  // cudaStream_t of all kernels, copies and updates
  // makes it the calling thread's device; the backend's own functions do it themselves
  virtual void use_device() const = 0;

  // Events for ordering streams with this backend's; `stream` null: the backend's own.
  virtual CudaEvent create_event() = 0;
  virtual void destroy_event(CudaEvent event) = 0;
  virtual void record_event(CudaEvent event, void* stream = nullptr) = 0;
  virtual void wait_for_event(CudaEvent event, void* stream = nullptr) = 0;  // the stream waits, not the caller
  virtual bool event_done(CudaEvent event) = 0;
  // Further streams, for communication; of high priority.
  virtual void* create_stream() = 0;
  virtual void destroy_stream(void* stream) = 0;

  // Host memory from and to which copies run concurrently with kernels.
  virtual void* allocate_pinned(int64_t bytes) = 0;
  virtual void release_pinned(void* memory) = 0;
  // Submitted to `stream` (null: the backend's own), the bytes as they lie; complete when the stream is.
  virtual void copy_to_host(const void* memory, void* host, int64_t bytes, void* stream = nullptr) = 0;
  virtual void copy_from_host(const void* host, void* memory, int64_t bytes, void* stream = nullptr) = 0;

  // Kernels that are being captured into a CUDA graph read the number of the iteration (KernelArguments::iteration)
  // from the device's memory instead; this submits a new one to the stream.
  virtual void set_iteration(int64_t iteration) = 0;
  // Work that was submitted so far has no error; throws MachineError with the first error otherwise.
  virtual void check() = 0;
};

bool built_with_cuda();

// How many GPUs there are. MachineError, "no GPU: cudaGetDeviceCount: no CUDA-capable device is detected", when there
// is none.
int cuda_device_count();

// The GPU with this number, and its memory; bf16: products of converted values (converted_kernel.h) are TF32.
// MachineError when there is no such GPU.
std::unique_ptr<CudaBackend> make_cuda_backend(int device = 0, Precision precision = Precision::fp32);

// What a GPU's profile says about the machine that it was measured on.
struct CudaDescription {
  std::string name;  // "NVIDIA H200"
  // The newest CUDA version that the driver serves, "13.0"; with the driver's own version where NVML tells it.
  std::string driver;
  std::string runtime, cudnn, cublas;  // versions, "13.0", "9.19.0", "13.1.0"
  int compute_capability = 0;          // 90: 9.0
  int multiprocessors = 0;
  int64_t memory_bytes = 0, l2_cache_bytes = 0;
  std::string
      clocks;  // "now 1980 MHz, memory 3201 MHz; at most 1980 MHz, memory 3201 MHz"; what is now where NVML tells it
};
CudaDescription describe_cuda_device(int device);

}  // namespace ff
