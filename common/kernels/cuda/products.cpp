// Matrix products by cuBLAS. It knows column-major matrices: a row-major c = a b is its c^T = b^T a^T, so the operands
// change places.
#include <cassert>

#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

cublasOperation_t operation(char transpose) { return transpose == 'T' ? CUBLAS_OP_T : CUBLAS_OP_N; }

void multiply_bf16(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                   int64_t n, int64_t k, const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride,
                   float beta, void* c, cudaDataType_t c_type, int64_t c_stride, float alpha) {
  FF_CHECK(cublasGemmStridedBatchedEx_64(context.blas, operation(transpose_b), operation(transpose_a), n, m, k, &alpha,
                                         b, CUDA_R_16BF, b_stride, batch.b_step, a, CUDA_R_16BF, a_stride, batch.a_step,
                                         &beta, c, c_type, c_stride, batch.c_step, batch.count, CUBLAS_COMPUTE_32F,
                                         CUBLAS_GEMM_DEFAULT));
}

}  // namespace

void multiply_matrices(const Context& context, char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                       const float* a, int64_t a_stride, const float* b, int64_t b_stride, float beta, float* c,
                       int64_t c_stride, float alpha) {
  FF_CHECK(cublasGemmEx_64(context.blas, operation(transpose_b), operation(transpose_a), n, m, k, &alpha, b, CUDA_R_32F,
                           b_stride, a, CUDA_R_32F, a_stride, &beta, c, CUDA_R_32F, c_stride, context.compute_type(),
                           CUBLAS_GEMM_DEFAULT));
}

void multiply_matrices(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                       int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b, int64_t b_stride,
                       float beta, float* c, int64_t c_stride, float alpha) {
  FF_CHECK(cublasGemmStridedBatchedEx_64(context.blas, operation(transpose_b), operation(transpose_a), n, m, k, &alpha,
                                         b, CUDA_R_32F, b_stride, batch.b_step, a, CUDA_R_32F, a_stride, batch.a_step,
                                         &beta, c, CUDA_R_32F, c_stride, batch.c_step, batch.count,
                                         context.compute_type(), CUBLAS_GEMM_DEFAULT));
}

void multiply_matrices(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                       int64_t n, int64_t k, const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride,
                       float beta, uint16_t* c, int64_t c_stride, float alpha) {
  multiply_bf16(context, batch, transpose_a, transpose_b, m, n, k, a, a_stride, b, b_stride, beta, c, CUDA_R_16BF,
                c_stride, alpha);
}
void multiply_matrices(const Context& context, const MatrixBatch& batch, char transpose_a, char transpose_b, int64_t m,
                       int64_t n, int64_t k, const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride,
                       float beta, float* c, int64_t c_stride, float alpha) {
  multiply_bf16(context, batch, transpose_a, transpose_b, m, n, k, a, a_stride, b, b_stride, beta, c, CUDA_R_32F,
                c_stride, alpha);
}

template <class Result>
void multiply_matrices(const Context& context, char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k,
                       const uint16_t* a, int64_t a_stride, const uint16_t* b, int64_t b_stride, float beta, Result* c,
                       int64_t c_stride, float alpha) {
  multiply_matrices(context, {1, 0, 0, 0}, transpose_a, transpose_b, m, n, k, a, a_stride, b, b_stride, beta, c,
                    c_stride, alpha);
}
template void multiply_matrices(const Context&, char, char, int64_t, int64_t, int64_t, const uint16_t*, int64_t,
                                const uint16_t*, int64_t, float, uint16_t*, int64_t, float);
template void multiply_matrices(const Context&, char, char, int64_t, int64_t, int64_t, const uint16_t*, int64_t,
                                const uint16_t*, int64_t, float, float*, int64_t, float);

}  // namespace ff::cuda
