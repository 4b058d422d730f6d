// The one place that knows how CUDA's libraries report errors: each call goes through `check`, which throws
// MachineError with the call and the library's own words.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <cstdint>

namespace ff::cuda {

void check(cudaError_t status, const char* call);
void check(cublasStatus_t status, const char* call);
void check(cudnnStatus_t status, const char* call);

}  // namespace ff::cuda

// FF_CHECK(cudaMalloc(&memory, bytes)): "cudaMalloc: out of memory".
#define FF_CHECK(call) ::ff::cuda::check(call, #call)
