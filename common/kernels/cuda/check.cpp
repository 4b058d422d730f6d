#include <string>

#include "common/errors.h"
#include "common/kernels/cuda/check.h"

namespace ff::cuda {
namespace {

[[noreturn]] void fail(const char* call, const std::string& words) {
  std::string name(call);  // the function alone
  name = name.substr(0, name.find('('));
  throw MachineError(name + ": " + words);
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasGetStatusString(status));
}

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  char details[512] = "";
  cudnnGetLastErrorString(details, sizeof details);
  fail(call, *details ? std::string(cudnnGetErrorString(status)) + " (" + details + ")" : cudnnGetErrorString(status));
}

}  // namespace ff::cuda
