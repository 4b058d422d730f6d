// Device code that several kernels share. Reductions add in a fixed order, so that results are the same in every run.
#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

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

// Sums down the columns of a matrix [rows, columns], `count` of them side by side, of n neighbouring columns.
template <int count, int n = 1>
struct Sums {
  float of[count][n];
};

constexpr int rows_at_once = 64;  // are added in single precision, their sums in double

struct ColumnSumPlan {
  int64_t rows, columns, rows_of_split;
  int column_threads, row_threads;  // of a block
  int tiles, splits;
};

inline ColumnSumPlan plan_column_sums(const Context& context, int64_t rows, int64_t columns, int n) {
  ColumnSumPlan plan{rows, columns, rows > 0 ? rows : 1, 32, block_threads / 32, 0, 1};
  while (plan.column_threads > 8 && plan.column_threads / 2 * n >= columns) plan.column_threads /= 2;
  plan.row_threads = block_threads / plan.column_threads;
  const int64_t tile = int64_t{plan.column_threads} * n;
  plan.tiles = static_cast<int>((columns + tile - 1) / tile);
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

// Scratch memory that column sums use, from the first byte on, of single columns or of four.
template <int count>
int64_t column_sums_scratch_bytes(const Context& context, int64_t rows, int64_t columns) {
  int64_t bytes = 0;
  for (const int n : {1, 4}) {
    const ColumnSumPlan plan = plan_column_sums(context, rows, columns, n);
    const int64_t own = plan.splits == 1 ? 0 : plan.splits * columns * count * static_cast<int64_t>(sizeof(double));
    if (own > bytes) bytes = own;
  }
  return bytes;
}

// For the threads with threadIdx.y 0: of each value the sum over threadIdx.y, in a fixed order. blockDim.y is a power
// of two.
template <int values>
__device__ inline void add_up_rows_of_block(double (&value)[values]) {
  __shared__ double shared[values][block_threads];
  const int own = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int v = 0; v < values; ++v) shared[v][own] = value[v];
  __syncthreads();
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    if (threadIdx.y < half)
      for (int v = 0; v < values; ++v) shared[v][own] += shared[v][own + static_cast<int>(half * blockDim.x)];
    __syncthreads();
  }
  for (int v = 0; v < values; ++v) value[v] = shared[v][own];
}

// The loop over rows is unrolled: 32 bytes or 64 of loads of each thread at once, of each tensor that the summand
// reads. With 4 blocks of 256 threads on each multiprocessor these are 32 KiB and 64 KiB.
template <int count, int n, class Summand, class Finish>
__global__ void __launch_bounds__(block_threads, 4)
    column_sums_kernel(ColumnSumPlan plan, Summand summand, Finish finish, double* partial) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * n;
  const int64_t first = blockIdx.y * plan.rows_of_split, behind = first + plan.rows_of_split,
                last = behind < plan.rows ? behind : plan.rows;
  const int64_t step = plan.row_threads;
  double total[count * n] = {};
  if (column < plan.columns)
    for (int64_t begin = first + threadIdx.y; begin < last; begin += step * rows_at_once) {
      float sum[count * n] = {};
      const int64_t rest = (last - begin + step - 1) / step;
      const int rows = rest < rows_at_once ? static_cast<int>(rest) : rows_at_once;
#pragma unroll(n == 1 ? 8 : 4)
      for (int i = 0; i < rows; ++i) {
        const Sums<count, n> one = summand(begin + i * step, column, std::integral_constant<int, n>());
        for (int k = 0; k < count; ++k)
          for (int j = 0; j < n; ++j) sum[k * n + j] += one.of[k][j];
      }
      for (int v = 0; v < count * n; ++v) total[v] += sum[v];
    }
  add_up_rows_of_block(total);
  if (threadIdx.y != 0 || column >= plan.columns) return;
  for (int j = 0; j < n; ++j) {
    double of_column[count];
    for (int k = 0; k < count; ++k) of_column[k] = total[k * n + j];
    if (gridDim.y == 1) {
      finish(column + j, of_column);
    } else {
      for (int k = 0; k < count; ++k)
        partial[(static_cast<int64_t>(blockIdx.y) * count + k) * plan.columns + column + j] = of_column[k];
    }
  }
}

// A block of 8 x 32 threads finishes 8 columns: there may be hundreds of splits, and few columns.
constexpr int finished_columns = 8;
template <int count, class Finish>
__global__ void finish_column_sums_kernel(ColumnSumPlan plan, Finish finish, const double* partial) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * finished_columns + threadIdx.x;
  double total[count] = {};
  if (column < plan.columns)
#pragma unroll 4
    for (int split = static_cast<int>(threadIdx.y); split < plan.splits; split += block_threads / finished_columns)
      for (int k = 0; k < count; ++k)
        total[k] += partial[(static_cast<int64_t>(split) * count + k) * plan.columns + column];
  add_up_rows_of_block(total);
  if (threadIdx.y == 0 && column < plan.columns) finish(column, total);
}

// finish(column, double[count]) for every column, of the sums of summand(row, column, n), a Sums<count, n> of n
// neighbouring columns, n being a std::integral_constant. `scratch`: column_sums_scratch_bytes.
template <int count, int n, class Summand, class Finish>
void column_sums_of(const Context& context, int64_t rows, int64_t columns, const Summand& summand, const Finish& finish,
                    void* scratch) {
  if (columns <= 0) return;
  const ColumnSumPlan plan = plan_column_sums(context, rows, columns, n);
  double* partial = static_cast<double*>(scratch);
  const dim3 grid(static_cast<unsigned>(plan.tiles), static_cast<unsigned>(plan.splits)),
      threads(static_cast<unsigned>(plan.column_threads), static_cast<unsigned>(plan.row_threads));
  launch(context, grid, threads, 0, column_sums_kernel<count, n, Summand, Finish>, plan, summand, finish, partial);
  if (plan.splits == 1) return;
  launch(context, static_cast<unsigned>((columns + finished_columns - 1) / finished_columns),
         dim3(finished_columns, block_threads / finished_columns), 0, finish_column_sums_kernel<count, Finish>, plan,
         finish, partial);
}

// Of the sums of summand(row, column).
template <class Summand>
struct OneColumn {
  Summand summand;
  __device__ auto operator()(int64_t row, int64_t column, std::integral_constant<int, 1>) const {
    return summand(row, column);
  }
};
template <int count, class Summand, class Finish>
void column_sums(const Context& context, int64_t rows, int64_t columns, const Summand& summand, const Finish& finish,
                 void* scratch) {
  column_sums_of<count, 1>(context, rows, columns, OneColumn<Summand>{summand}, finish, scratch);
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
