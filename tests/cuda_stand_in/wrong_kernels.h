// Launches of wrong_kernels.cu.
#pragma once

#include <cuda_runtime_api.h>

cudaError_t reverse(cudaStream_t stream, const float* source, float* destination, bool with_barrier);  // of 64 elements
cudaError_t read_unwritten_shared(cudaStream_t stream, float* destination);
cudaError_t diverge(cudaStream_t stream, float* destination);  // half of the threads reach a barrier
// Lanes after the first `lanes` end before.
cudaError_t shuffle(cudaStream_t stream, float* destination, unsigned lanes, unsigned mask = 0xffffffffu);
cudaError_t write(cudaStream_t stream, float* destination, int64_t first, unsigned threads);
cudaError_t write_same_place(cudaStream_t stream, float* destination);
cudaError_t add(cudaStream_t stream, int* sum, bool atomic);  // 1 by each of 64 threads
cudaError_t read_misaligned(cudaStream_t stream, const char* source, double* destination);
cudaError_t copy(cudaStream_t stream, const float* source, float* destination);  // 64 elements

// destination [16, 16] = source [16, 8] source [8, 16], after shared memory; without a synchronization of the warp
// between writing that and loading it, with a lane that does not come, from memory that is not aligned, or from
// different places.
enum class MatrixFault { none, no_synchronization, lane_missing, misaligned, different_places };
cudaError_t multiply(cudaStream_t stream, const float* source, float* destination, MatrixFault fault, bool rounded);

// destination [16, 8], f32 = source [16, 16] source [16, 8], of the first 8 columns; in bf16, by asynchronous copies to
// shared memory; without waiting for these, or with a fault as above.
enum class Bf16Fault { none, no_wait, no_synchronization, lane_missing, misaligned };
cudaError_t multiply_bf16(cudaStream_t stream, const float* source, float* destination, Bf16Fault fault);
