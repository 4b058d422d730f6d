// Kernels with a fault each, and right ones.
#include "tests/cuda_stand_in/wrong_kernels.h"

#include <mma.h>

#include "common/kernels/cuda/tensor_core_instructions.cuh"

namespace {

__global__ void reverse_kernel(const float* source, float* destination, bool with_barrier) {
  __shared__ float values[64];
  values[threadIdx.x] = source[threadIdx.x];
  if (with_barrier) __syncthreads();
  destination[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

__global__ void unwritten_shared_kernel(float* destination) {
  __shared__ float values[64];
  if (threadIdx.x > 0) values[threadIdx.x] = 1;
  __syncthreads();
  destination[threadIdx.x] = values[threadIdx.x];
}

__global__ void divergent_kernel(float* destination) {
  if (threadIdx.x < 32) __syncthreads();
  destination[threadIdx.x] = 1;
}

__global__ void shuffle_kernel(float* destination, unsigned lanes, unsigned mask) {
  float value = static_cast<float>(threadIdx.x);
  if (threadIdx.x >= lanes) return;
  for (int other = 16; other > 0; other /= 2) value += __shfl_xor_sync(mask, value, other);
  destination[threadIdx.x] = value;
}

__global__ void write_kernel(float* destination, int64_t first) {
  destination[first + static_cast<int64_t>(threadIdx.x)] = 1;
}

__global__ void same_place_kernel(float* destination) { *destination = static_cast<float>(threadIdx.x); }

__global__ void add_kernel(int* sum, bool atomic) {
  if (atomic) atomicAdd(sum, 1);
  else *sum += 1;
}

__global__ void misaligned_kernel(const char* source, double* destination) {
  *destination = *reinterpret_cast<const double*>(source + 4);
}

__global__ void copy_kernel(const float* source, float* destination) { destination[threadIdx.x] = source[threadIdx.x]; }

__global__ void multiply_kernel(const float* source, float* destination, MatrixFault fault, bool rounded) {
  namespace wmma = nvcuda::wmma;
  struct alignas(32) Values {
    float of[128 + 8];
  };
  __shared__ Values values;
  for (unsigned i = threadIdx.x; i < 128; i += 32)
    values.of[i] = rounded ? wmma::__float_to_tf32(source[i]) : source[i];
  if (fault != MatrixFault::no_synchronization) __syncwarp();
  if (fault == MatrixFault::lane_missing && threadIdx.x == 7) return;
  const float* memory = values.of;
  if (fault == MatrixFault::misaligned) memory += 1;
  if (fault == MatrixFault::different_places && threadIdx.x == 7) memory += 8;
  wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a;
  wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::row_major> b;
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> c;
  wmma::fill_fragment(c, 0.0f);
  wmma::load_matrix_sync(a, memory, 8);
  wmma::load_matrix_sync(b, memory, 16);
  wmma::mma_sync(c, a, b, c);
  wmma::store_matrix_sync(destination, c, 16, wmma::mem_row_major);
}

__global__ void multiply_bf16_kernel(const float* source, float* destination, Bf16Fault fault) {
  using namespace ff::cuda;
  struct alignas(16) Values {
    ff::Bf16 of[16 * 16 + 8];
  };
  __shared__ Values values;
  const int lane = static_cast<int>(threadIdx.x), row = lane % 16, column = lane / 16 * 8;
  copy_async_16(values.of + 8 * lane, source + 4 * lane, true);
  commit_copies();
  if (fault != Bf16Fault::no_wait) wait_for_copies<0>();
  if (fault != Bf16Fault::no_synchronization) __syncwarp();
  if (fault == Bf16Fault::lane_missing && lane == 7) return;
  uint32_t a[4], b[4];
  load_matrices(a, values.of + 16 * row + column + (fault == Bf16Fault::misaligned ? 1 : 0));
  load_transposed_matrices(b, values.of + 16 * row + column);
  float d[4] = {};
  multiply_add_bf16(d, a, b[0], b[1]);
  for (int i = 0; i < 4; ++i) destination[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

template <class... Parameters, class... Arguments>
cudaError_t launch(cudaStream_t stream, unsigned threads, void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.blockDim = threads;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace

cudaError_t reverse(cudaStream_t stream, const float* source, float* destination, bool with_barrier) {
  return launch(stream, 64, reverse_kernel, source, destination, with_barrier);
}
cudaError_t read_unwritten_shared(cudaStream_t stream, float* destination) {
  return launch(stream, 64, unwritten_shared_kernel, destination);
}
cudaError_t diverge(cudaStream_t stream, float* destination) {
  return launch(stream, 64, divergent_kernel, destination);
}
cudaError_t shuffle(cudaStream_t stream, float* destination, unsigned lanes, unsigned mask) {
  return launch(stream, 32, shuffle_kernel, destination, lanes, mask);
}
cudaError_t write(cudaStream_t stream, float* destination, int64_t first, unsigned threads) {
  return launch(stream, threads, write_kernel, destination, first);
}
cudaError_t write_same_place(cudaStream_t stream, float* destination) {
  return launch(stream, 64, same_place_kernel, destination);
}
cudaError_t add(cudaStream_t stream, int* sum, bool atomic) { return launch(stream, 64, add_kernel, sum, atomic); }
cudaError_t read_misaligned(cudaStream_t stream, const char* source, double* destination) {
  return launch(stream, 1, misaligned_kernel, source, destination);
}
cudaError_t copy(cudaStream_t stream, const float* source, float* destination) {
  return launch(stream, 64, copy_kernel, source, destination);
}
cudaError_t multiply(cudaStream_t stream, const float* source, float* destination, MatrixFault fault, bool rounded) {
  return launch(stream, 32, multiply_kernel, source, destination, fault, rounded);
}
cudaError_t multiply_bf16(cudaStream_t stream, const float* source, float* destination, Bf16Fault fault) {
  return launch(stream, 32, multiply_bf16_kernel, source, destination, fault);
}
