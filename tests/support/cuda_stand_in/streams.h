// Work of streams, done late and in any order that streams and events allow. A piece of work runs only when the host
// waits or asks (cudaStreamSynchronize, cudaEventQuery, cudaFree, ...), in the calling thread; which one of those that
// are ready is drawn from a seed (FF_CUDA_STAND_IN_SEED). So a missing cudaStreamWaitEvent shows as a wrong result, or
// as memory that is read before it was written.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "include/cuda_runtime_api.h"

namespace cuda_stand_in {

enum class Progress { done, blocked };  // blocked: other ranks have to do something first

struct Work {
  std::string name;
  int device = 0;
  CudaStandInStream* stream = nullptr;
  std::function<Progress()> run;  // none: it only orders others
  std::vector<std::shared_ptr<Work>> follows;
  bool communicates = false;  // one such piece of work at a time occupies a device

  bool done = false;
  int waits_for = 0;                               // pieces of work
  std::vector<std::shared_ptr<Work>> followed_by;  // that wait for this one
  std::chrono::steady_clock::time_point end{};
};
using WorkPointer = std::shared_ptr<Work>;

struct Capture {
  CudaStandInStream* origin = nullptr;
  std::vector<WorkPointer> works;  // recorded, not run; in an order that fits what each follows
  std::vector<CudaStandInStream*> streams;
  cudaStreamCaptureMode mode{};
  bool invalid = false;
};

// The lock of all state of the stand-in. Work runs while it is held.
std::recursive_mutex& state_mutex();

int current_device();
cudaError_t last_failure();                   // sticky: what a kernel did wrong
void fail_for_ever(const std::string& what);  // of the device
const std::string& what_failed();
std::string& communication_failure();      // what NCCL found; "" for nothing
void forget_failure();                     // and all work that has not run; for tests of the stand-in
cudaError_t remember(cudaError_t status);  // for cudaGetLastError
uint64_t next_random();

// Gives `work` to the stream, or records it.
cudaError_t submit(CudaStandInStream* stream, WorkPointer work);
bool is_capturing(const CudaStandInStream* stream);
std::shared_ptr<Capture> capture_of(const CudaStandInStream* stream);
// cudaErrorStreamCaptureUnsupported, and the end of the capture, where this thread records one.
cudaError_t forbidden_while_capturing();
int device_of(const CudaStandInStream* stream);

void run_until(const WorkPointer& work);  // or until the device has failed
void run_some();                          // perhaps
void wait_for_device(int device);         // all that was submitted
bool device_failed();

}  // namespace cuda_stand_in
