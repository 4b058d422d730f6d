#include "common/kernels/cuda/context.h"

#include <algorithm>

#include "common/errors.h"

namespace ff::cuda {

namespace {

// cuBLAS recommends 32 MiB on Hopper and newer, 4 MiB before (cuBLAS documentation, cublasSetWorkspace). Given by us,
// it does not depend on the stream's history, so that results are the same in every run, and in a captured graph.
constexpr size_t blas_workspace_bytes = size_t{32} << 20;

}  // namespace

Context::Context(int device_number, Precision wanted) : device(device_number), precision(wanted) {
  use();
  FF_CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  int capability = 0;
  FF_CHECK(cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, device));
  has_tf32 = capability >= 8;
  FF_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  FF_CHECK(cublasCreate(&blas));
  FF_CHECK(cublasSetStream(blas, stream));
  FF_CHECK(cudaMalloc(&blas_workspace_, blas_workspace_bytes));
  FF_CHECK(cublasSetWorkspace(blas, blas_workspace_, blas_workspace_bytes));
  FF_CHECK(cudnnCreate(&dnn));
  FF_CHECK(cudnnSetStream(dnn, stream));
  void* host = nullptr;
  FF_CHECK(cudaHostAlloc(&host, sizeof(Fault), cudaHostAllocMapped | cudaHostAllocPortable));
  fault_ = new (host) Fault;  // one address on the host and the device (unified addressing)
  FF_CHECK(cudaMalloc(reinterpret_cast<void**>(&iteration_), sizeof *iteration_));
  FF_CHECK(cudaMemsetAsync(iteration_, 0, sizeof *iteration_, stream));
}

Context::~Context() {  // errors here are those of earlier work, which was reported where it was waited for
  cudaSetDevice(device);
  if (stream) cudaStreamSynchronize(stream);
  if (dnn) cudnnDestroy(dnn);
  if (blas) cublasDestroy(blas);
  cudaFree(blas_workspace_);
  cudaFree(iteration_);
  if (fault_) cudaFreeHost(fault_);
  for (const auto& [memory, bytes] : scratch_) cudaFree(memory);
  if (stream) cudaStreamDestroy(stream);
}

void Context::reserve_scratch(int64_t bytes) const {
  if (bytes <= 0 || (!scratch_.empty() && scratch_.back().second >= bytes)) return;
  use();
  const int64_t grown = scratch_.empty() ? bytes : std::max(bytes, scratch_.back().second * 3 / 2);
  void* memory = nullptr;
  FF_CHECK(cudaMalloc(&memory, static_cast<size_t>(grown)));
  scratch_.push_back({static_cast<char*>(memory), grown});
}

int64_t Context::scratch_bytes() const {
  int64_t bytes = static_cast<int64_t>(blas_workspace_bytes);
  for (const auto& [memory, size] : scratch_) bytes += size;
  return bytes;
}

int Context::fault_number(const std::string& operator_name, const std::string& what) const {
  const std::string name = operator_name + ": found the " + what + " ";
  const auto known = std::find(fault_names_.begin(), fault_names_.end(), name);
  if (known != fault_names_.end()) return static_cast<int>(known - fault_names_.begin()) + 1;
  fault_names_.push_back(name);
  return static_cast<int>(fault_names_.size());
}

void Context::report_fault() const {
  if (fault_->raised == 0) return;
  const Fault fault = *fault_;
  *fault_ = {};
  throw InputError(fault_names_.at(static_cast<size_t>(fault.raised - 1)) + std::to_string(fault.found) +
                   ", expected one from 0 to " + std::to_string(fault.limit - 1));
}

const int64_t* Context::iteration_memory() const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  FF_CHECK(cudaStreamIsCapturing(stream, &status));
  return status == cudaStreamCaptureStatusNone ? nullptr : iteration_;
}

}  // namespace ff::cuda
