// Device code that several kernels share. Reductions add in a fixed order, so that results are the same in every run.
#pragma once

#include <cfloat>
#include <cstdint>

#include "common/kernels/cuda/context.h"
#include "common/kernels/cuda/divisor.h"

namespace ff::cuda {

constexpr int block_threads = 256;

// The memory that a launch gives to each block, in addition to the kernel's own.
#ifndef FF_DYNAMIC_SHARED
#define FF_DYNAMIC_SHARED(Element, name) extern __shared__ Element name[]
#endif

// By cudaLaunchKernelEx, which is kernel<<<blocks, threads, shared_bytes, stream>>>(arguments...) as a function: the
// source is C++, and also compiles for CPUs (tests/support/cuda_stand_in).
template <class... Parameters, class... Arguments>
void launch(const Context& context, dim3 blocks, dim3 threads, size_t shared_bytes, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = blocks;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream;
  FF_CHECK(cudaLaunchKernelEx(&config, kernel, arguments...));
}

template <class Body>
__global__ void each_index_kernel(int64_t count, Body body) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) body(i);
}

inline int blocks_for(const Context& context, int64_t count) {
  const int64_t wanted = (count + block_threads - 1) / block_threads, most = int64_t{16} * context.multiprocessors;
  return static_cast<int>(wanted < most ? wanted : most);
}

// Calls body(i) on the device for every i below `count`.
template <class Body>
void for_each_index(const Context& context, int64_t count, const Body& body) {
  if (count > 0)
    launch(context, static_cast<unsigned>(blocks_for(context, count)), block_threads, 0, each_index_kernel<Body>, count,
           body);
}

// Sums and maxima over the 32 threads of a warp; all get the result.
__device__ inline float warp_sum(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ inline float warp_max(float value) {
  for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

// The threads that work on one row together: a warp, or a block of this many. All of a row's threads call sum and max
// alike.
template <int row_threads>
struct RowThreads {
  static constexpr int threads = row_threads;
  static constexpr int rows_in_block = 1;
  __device__ static int64_t row() { return blockIdx.x; }
  __device__ static int thread() { return threadIdx.x; }
  __device__ static float sum(float value) {
    __shared__ float of_warp[threads / 32];
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    float total = 0;
    for (int warp = 0; warp < threads / 32; ++warp) total += of_warp[warp];
    __syncthreads();
    return total;
  }
  __device__ static float max(float value) {
    __shared__ float of_warp[threads / 32];
    value = warp_max(value);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    float largest = of_warp[0];
    for (int warp = 1; warp < threads / 32; ++warp) largest = fmaxf(largest, of_warp[warp]);
    __syncthreads();
    return largest;
  }
};

template <>
struct RowThreads<32> {
  static constexpr int threads = 32;
  static constexpr int rows_in_block = block_threads / 32;
  __device__ static int64_t row() { return static_cast<int64_t>(blockIdx.x) * rows_in_block + threadIdx.x / 32; }
  __device__ static int thread() { return threadIdx.x % 32; }
  __device__ static float sum(float value) { return warp_sum(value); }
  __device__ static float max(float value) { return warp_max(value); }
};

template <int threads, class Body>
__global__ void __launch_bounds__(threads == 32 ? block_threads : threads) each_row_kernel(int64_t rows, Body body) {
  using Row = RowThreads<threads>;
  if (Row::row() < rows) body(Row{}, Row::row());  // the same for all threads of a row
}

template <int threads, class Body>
void for_each_row_by(const Context& context, int64_t rows, const Body& body) {
  constexpr int per_block = RowThreads<threads>::rows_in_block;
  launch(context, static_cast<unsigned>((rows + per_block - 1) / per_block), per_block * threads, 0,
         each_row_kernel<threads, Body>, rows, body);
}

// Calls body(RowThreads, row) with a warp a row where rows are short, with a block a row where they are long.
template <class Body>
void for_each_row(const Context& context, int64_t rows, int64_t length, const Body& body) {
  if (rows <= 0) return;
  if (length <= 256) for_each_row_by<32>(context, rows, body);
  else for_each_row_by<block_threads>(context, rows, body);
}

// Sums down the columns of a matrix [rows, columns], `count` of them side by side.
template <int count>
struct Sums {
  float of[count];
};

constexpr int column_tile = 32, row_tile = 8;  // threads of a block
constexpr int rows_at_once = 64;               // are added in single precision, their sums in double

struct ColumnSumPlan {
  int64_t rows, columns, rows_of_split;
  int tiles, splits;
};

inline ColumnSumPlan plan_column_sums(const Context& context, int64_t rows, int64_t columns) {
  ColumnSumPlan plan{rows, columns, rows, static_cast<int>((columns + column_tile - 1) / column_tile), 1};
  if (plan.tiles < 1) return plan;
  const int64_t wanted = (int64_t{4} * context.multiprocessors + plan.tiles - 1) / plan.tiles,
                most = (rows + 127) / 128;
  int64_t splits = wanted < most ? wanted : most;
  splits = splits < 1 ? 1 : splits > 65535 ? 65535 : splits;
  plan.rows_of_split = rows > 0 ? (rows + splits - 1) / splits : 1;
  plan.splits = static_cast<int>((rows + plan.rows_of_split - 1) / plan.rows_of_split);
  if (plan.splits < 1) plan.splits = 1;
  return plan;
}

// Scratch memory that column_sums<count> uses, from the first byte on.
template <int count>
int64_t column_sums_scratch_bytes(const Context& context, int64_t rows, int64_t columns) {
  const ColumnSumPlan plan = plan_column_sums(context, rows, columns);
  return plan.splits == 1 ? 0 : plan.splits * columns * count * static_cast<int64_t>(sizeof(double));
}

// The loop over rows is unrolled: eight loads of each thread at once. On an H100, 4 blocks of 256 threads on each
// multiprocessor then have 32 KiB on their way; its bandwidth times the latency of memory is about 18 KiB.
template <int count, class Summand, class Finish>
__global__ void column_sums_kernel(ColumnSumPlan plan, Summand summand, Finish finish, double* partial) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * column_tile + threadIdx.x;
  const int64_t first = blockIdx.y * plan.rows_of_split, behind = first + plan.rows_of_split,
                last = behind < plan.rows ? behind : plan.rows;
  double total[count] = {};
  if (column < plan.columns)
    for (int64_t begin = first + threadIdx.y; begin < last; begin += int64_t{row_tile} * rows_at_once) {
      float sum[count] = {};
      const int64_t rest = (last - begin + row_tile - 1) / row_tile;
      const int rows = rest < rows_at_once ? static_cast<int>(rest) : rows_at_once;
#pragma unroll 8
      for (int i = 0; i < rows; ++i) {
        const Sums<count> one = summand(begin + int64_t{i} * row_tile, column);
        for (int k = 0; k < count; ++k) sum[k] += one.of[k];
      }
      for (int k = 0; k < count; ++k) total[k] += sum[k];
    }
  __shared__ double shared[row_tile][column_tile];
  for (int k = 0; k < count; ++k) {
    shared[threadIdx.y][threadIdx.x] = total[k];
    __syncthreads();
    if (threadIdx.y == 0) {
      total[k] = 0;
      for (int r = 0; r < row_tile; ++r) total[k] += shared[r][threadIdx.x];
    }
    __syncthreads();
  }
  if (threadIdx.y != 0 || column >= plan.columns) return;
  if (gridDim.y == 1) {
    finish(column, total);
  } else {
    for (int k = 0; k < count; ++k)
      partial[(static_cast<int64_t>(blockIdx.y) * count + k) * plan.columns + column] = total[k];
  }
}

template <int count, class Finish>
__global__ void finish_column_sums_kernel(ColumnSumPlan plan, Finish finish, const double* partial) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= plan.columns) return;
  double total[count] = {};
  for (int split = 0; split < plan.splits; ++split)
    for (int k = 0; k < count; ++k)
      total[k] += partial[(static_cast<int64_t>(split) * count + k) * plan.columns + column];
  finish(column, total);
}

// finish(column, double[count]) for every column, of the sums of summand(row, column), a Sums<count>. `scratch`:
// column_sums_scratch_bytes.
template <int count, class Summand, class Finish>
void column_sums(const Context& context, int64_t rows, int64_t columns, const Summand& summand, const Finish& finish,
                 void* scratch) {
  if (columns <= 0) return;
  const ColumnSumPlan plan = plan_column_sums(context, rows, columns);
  double* partial = static_cast<double*>(scratch);
  const dim3 grid(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.splits)),
      threads(column_tile, row_tile);
  launch(context, grid, threads, 0, column_sums_kernel<count, Summand, Finish>, plan, summand, finish, partial);
  if (plan.splits == 1) return;
  constexpr int finishers = 128;
  launch(context, static_cast<unsigned>((columns + finishers - 1) / finishers), finishers, 0,
         finish_column_sums_kernel<count, Finish>, plan, finish, partial);
}

// An index out of range is kept for Context::report_fault, unless there is one already. Threads of one kernel may write
// theirs at once; any of them will do. Not by an atomic operation, which not every host's memory takes from a GPU.
__device__ inline bool in_range(int32_t index, int64_t limit, int number, Fault* fault) {
  if (index >= 0 && index < limit) return true;
  volatile Fault* record = fault;
  if (record->raised != 0) return false;
  record->found = index;
  record->limit = static_cast<int>(limit);
  __threadfence_system();
  record->raised = number;
  return false;
}

}  // namespace ff::cuda
