// cuBLAS's products, in double precision and in one order. Argument checks as documented for cublasGemmEx.
#include "include/cublas_v2.h"

#include <vector>

#include "common/kernels/bf16.h"
#include "library.h"

using namespace cuda_stand_in;

struct CublasStandInHandle {
  int device = 0;
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
  size_t workspace_bytes = 0;
};

namespace {

// Column-major, as cuBLAS has them.
struct Product {
  cublasOperation_t transpose_a, transpose_b;
  int64_t m, n, k;
  float alpha, beta;
  int64_t a_stride, b_stride, c_stride;
  bool tf32;
};

double number(float value, bool tf32) { return static_cast<double>(tf32 ? to_tf32(value) : value); }
double number(ff::Bf16 value, bool) { return static_cast<double>(ff::f32_of(value)); }
void set(float& result, double value) { result = static_cast<float>(value); }
void set(ff::Bf16& result, double value) { result = ff::bf16_of(static_cast<float>(value)); }

template <class Element>
bool touch(const LibraryCall& call, const char* what, const Element* matrix, int64_t rows, int64_t columns,
           int64_t stride, bool write) {
  for (int64_t column = 0; column < columns; ++column) {
    const Element* begin = matrix + column * stride;
    const size_t bytes = static_cast<size_t>(rows) * sizeof(Element);
    if (!(write ? call.writes(what, begin, bytes) : call.reads(what, begin, bytes))) return false;
  }
  return true;
}

// op(matrix) with `rows` rows, each of them contiguous.
template <class Element>
std::vector<double> rows_of(const Element* matrix, bool transposed, int64_t rows, int64_t columns, int64_t stride,
                            bool tf32) {
  std::vector<double> values(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      const Element value = transposed ? matrix[row * stride + column] : matrix[column * stride + row];
      values[static_cast<size_t>(row * columns + column)] = number(value, tf32);
    }
  return values;
}

template <class Operand, class Result>
bool multiply(const LibraryCall& call, const Product& p, const Operand* a, const Operand* b, Result* c) {
  const bool at = p.transpose_a != CUBLAS_OP_N, bt = p.transpose_b != CUBLAS_OP_N;
  if (!touch(call, "a", a, at ? p.k : p.m, at ? p.m : p.k, p.a_stride, false) ||
      !touch(call, "b", b, bt ? p.n : p.k, bt ? p.k : p.n, p.b_stride, false) ||
      (p.beta != 0 && !touch(call, "c", c, p.m, p.n, p.c_stride, false)) ||
      !touch(call, "c", c, p.m, p.n, p.c_stride, true))
    return false;
  const std::vector<double> left = rows_of(a, at, p.m, p.k, p.a_stride, p.tf32),
                            right = rows_of(b, bt, p.k, p.n, p.b_stride, p.tf32);
  std::vector<double> sums(static_cast<size_t>(p.n));
  for (int64_t i = 0; i < p.m; ++i) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t l = 0; l < p.k; ++l) {
      const double factor = left[static_cast<size_t>(i * p.k + l)];
      const double* row = right.data() + l * p.n;
      for (int64_t j = 0; j < p.n; ++j) sums[static_cast<size_t>(j)] += factor * row[j];
    }
    for (int64_t j = 0; j < p.n; ++j) {
      Result& value = c[j * p.c_stride + i];
      set(value, static_cast<double>(p.alpha) * sums[static_cast<size_t>(j)] +
                     (p.beta != 0 ? static_cast<double>(p.beta) * number(value, false) : 0.0));
    }
  }
  return true;
}

cublasStatus_t check(cublasHandle_t handle, const Product& p, cudaDataType a_type, cudaDataType b_type,
                     cudaDataType c_type, cublasComputeType_t compute_type) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (p.m < 0 || p.n < 0 || p.k < 0) return CUBLAS_STATUS_INVALID_VALUE;
  const auto at_least = [](int64_t stride, int64_t rows) { return stride >= std::max<int64_t>(1, rows); };
  if (!at_least(p.a_stride, p.transpose_a == CUBLAS_OP_N ? p.m : p.k) ||
      !at_least(p.b_stride, p.transpose_b == CUBLAS_OP_N ? p.k : p.n) || !at_least(p.c_stride, p.m))
    return CUBLAS_STATUS_INVALID_VALUE;
  // The rows of cublasGemmEx's table of types that are there.
  const bool f32 = a_type == CUDA_R_32F && c_type == CUDA_R_32F &&
                   (compute_type == CUBLAS_COMPUTE_32F || compute_type == CUBLAS_COMPUTE_32F_FAST_TF32),
             bf16 = a_type == CUDA_R_16BF && (c_type == CUDA_R_16BF || c_type == CUDA_R_32F) &&
                    compute_type == CUBLAS_COMPUTE_32F;
  return a_type == b_type && (f32 || bf16) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

// `run` does what the call does, once its turn has come.
cublasStatus_t submit_call(cublasHandle_t handle, const char* name, std::function<void(const LibraryCall&)> run) {
  const std::lock_guard lock(state_mutex());
  if (!handle->stream) return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto work = std::make_shared<Work>();
  work->name = name;
  const LibraryCall call(name, handle->device);
  work->run = [call, run, workspace = handle->workspace, bytes = handle->workspace_bytes] {
    // Some products use all that they are given.
    if (call.takes_workspace(workspace, std::min(bytes, size_t{4096}))) run(call);
    return Progress::done;
  };
  return submit(handle->stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

float scalar(const void* memory) { return *static_cast<const float*>(memory); }

}  // namespace

const char* cublasGetStatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS: return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED: return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "<unknown>";
}
cublasStatus_t cublasGetProperty(libraryPropertyType, int* value) {
  *value = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  const std::lock_guard lock(state_mutex());
  if (forbidden_while_capturing() != cudaSuccess) return CUBLAS_STATUS_ALLOC_FAILED;
  *handle = new CublasStandInHandle;
  (*handle)->device = current_device();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
// Also takes the workspace back to the default one (cuBLAS documentation, cublasSetStream).
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = nullptr;
  handle->workspace_bytes = 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return CUBLAS_STATUS_INVALID_VALUE;
  handle->workspace = workspace;
  handle->workspace_bytes = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType a_type,
                               int64_t a_stride, const void* b, cudaDataType b_type, int64_t b_stride, const void* beta,
                               void* c, cudaDataType c_type, int64_t c_stride, cublasComputeType_t compute_type,
                               cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(handle, transpose_a, transpose_b, m, n, k, alpha, a, a_type, a_stride, 0, b,
                                       b_type, b_stride, 0, beta, c, c_type, c_stride, 0, 1, compute_type, algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                                             cublasOperation_t transpose_b, int64_t m, int64_t n, int64_t k,
                                             const void* alpha, const void* a, cudaDataType a_type, int64_t a_stride,
                                             long long a_step, const void* b, cudaDataType b_type, int64_t b_stride,
                                             long long b_step, const void* beta, void* c, cudaDataType c_type,
                                             int64_t c_stride, long long c_step, int64_t count,
                                             cublasComputeType_t compute_type, cublasGemmAlgo_t) {
  const Product product{transpose_a,
                        transpose_b,
                        m,
                        n,
                        k,
                        scalar(alpha),
                        scalar(beta),
                        a_stride,
                        b_stride,
                        c_stride,
                        compute_type == CUBLAS_COMPUTE_32F_FAST_TF32};
  if (const cublasStatus_t status = check(handle, product, a_type, b_type, c_type, compute_type);
      status != CUBLAS_STATUS_SUCCESS)
    return status;
  // Matrices of c must not overlap.
  if (count < 0 || (count > 1 && std::abs(c_step) < m)) return CUBLAS_STATUS_INVALID_VALUE;
  return submit_call(handle, "cublasGemmStridedBatchedEx_64", [=](const LibraryCall& call) {
    const auto all = [&](const auto* left, const auto* right, auto* result) {
      for (int64_t i = 0; i < count; ++i)
        if (!multiply(call, product, left + i * a_step, right + i * b_step, result + i * c_step)) return;
    };
    const auto *const left = static_cast<const ff::Bf16*>(a), *const right = static_cast<const ff::Bf16*>(b);
    if (a_type == CUDA_R_32F) all(static_cast<const float*>(a), static_cast<const float*>(b), static_cast<float*>(c));
    else if (c_type == CUDA_R_32F) all(left, right, static_cast<float*>(c));
    else all(left, right, static_cast<ff::Bf16*>(c));
  });
}
