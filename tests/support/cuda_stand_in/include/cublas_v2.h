// cuBLAS, as far as the product uses it (cuBLAS documentation; values of its enumerations).
#pragma once

#include "cuda_runtime_api.h"

enum cublasStatus_t {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_INITIALIZED = 1,
  CUBLAS_STATUS_ALLOC_FAILED = 3,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_EXECUTION_FAILED = 13,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68, CUBLAS_COMPUTE_32F_FAST_TF32 = 77 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
using cudaDataType = cudaDataType_t;
enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };
typedef struct CublasStandInHandle* cublasHandle_t;

const char* cublasGetStatusString(cublasStatus_t status);
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value);
cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType a_type,
                               int64_t a_stride, const void* b, cudaDataType b_type, int64_t b_stride, const void* beta,
                               void* c, cudaDataType c_type, int64_t c_stride, cublasComputeType_t compute_type,
                               cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                                             cublasOperation_t transpose_b, int64_t m, int64_t n, int64_t k,
                                             const void* alpha, const void* a, cudaDataType a_type, int64_t a_stride,
                                             long long a_step, const void* b, cudaDataType b_type, int64_t b_stride,
                                             long long b_step, const void* beta, void* c, cudaDataType c_type,
                                             int64_t c_stride, long long c_step, int64_t count,
                                             cublasComputeType_t compute_type, cublasGemmAlgo_t algorithm);
