// The optimizer's work on many parameters at once, and that of clipping: a launch takes a table of parameters, since a
// network has hundreds of small ones, each of which is done sooner than a launch of its own.
#include <algorithm>
#include <span>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// A block does one chunk of one run: 8 elements per thread.
constexpr int64_t chunk_elements = int64_t{8} * block_threads;

// Part of the launch's parameters, which have 4 KiB: a recorded graph keeps it, and no memory is copied to the device.
constexpr int most_runs = 80;
template <class Run>
struct RunTable {
  int runs = 0, chunks = 0;
  int first_chunk[most_runs];
  Run of[most_runs];
};

// The last run whose first chunk is not after this one.
template <class Run>
__device__ int run_of(const RunTable<Run>& table, int chunk) {
  int run = 0, end = table.runs;
  while (end - run > 1) {
    const int middle = (run + end) / 2;
    if (table.first_chunk[middle] <= chunk) run = middle;
    else end = middle;
  }
  return run;
}

template <class Run, class Body>
__global__ void each_element_kernel(const __grid_constant__ RunTable<Run> table, Body body) {
  const int chunk = static_cast<int>(blockIdx.x), number = run_of(table, chunk);
  const Run run = table.of[number];
  const int64_t begin = (chunk - table.first_chunk[number]) * chunk_elements, behind = begin + chunk_elements,
                end = behind < run.elements ? behind : run.elements;
  for (int64_t i = begin + threadIdx.x; i < end; i += block_threads) body(run, i);
}

// Calls use(table) for tables that have all runs, in their order.
template <class Run, class Use>
void for_each_table(std::span<const Run> runs, const Use& use) {
  RunTable<Run> table{};
  for (const Run& run : runs) {
    if (run.elements <= 0) continue;
    if (table.runs == most_runs) {
      use(table);
      table = {};
    }
    table.first_chunk[table.runs] = table.chunks;
    table.of[table.runs++] = run;
    table.chunks += static_cast<int>((run.elements + chunk_elements - 1) / chunk_elements);
  }
  if (table.runs > 0) use(table);
}

// body(run, i) for every element i of every run.
template <class Run, class Body>
void for_each_element(const Context& context, std::span<const Run> runs, const Body& body) {
  for_each_table(runs, [&](const RunTable<Run>& table) {
    launch(context, static_cast<unsigned>(table.chunks), block_threads, 0, each_element_kernel<Run, Body>, table, body);
  });
}

void sgd(const Context& context, std::span<const UpdateOperands> operands, const OptimizerStep& step) {
  const float rate = step.learning_rate, momentum = step.momentum, decay = step.weight_decay;
  for_each_element(context, operands, [=] __device__(const UpdateOperands& of, int64_t i) {
    const float value = of.parameter[i];
    float change = of.gradient[i] + decay * value;
    if (float* velocity = of.states.first) change = velocity[i] = momentum * velocity[i] + change;
    of.parameter[i] = value - rate * change;
  });
}

void adam(const Context& context, std::span<const UpdateOperands> operands, const OptimizerStep& step) {
  const bool decoupled = step.kind == OptimizerKind::adamw;
  const float kept = decoupled ? 1 - step.learning_rate * step.weight_decay : 1,
              decay = decoupled ? 0 : step.weight_decay;
  const float beta1 = step.beta1, beta2 = step.beta2;
  const float size = step.step_size, root = step.second_moment_root, epsilon = step.epsilon;
  for_each_element(context, operands, [=] __device__(const UpdateOperands& of, int64_t i) {
    const float value = kept * of.parameter[i], g = of.gradient[i] + decay * value;
    const float m = beta1 * of.states.first[i] + (1 - beta1) * g, v = beta2 * of.states.second[i] + (1 - beta2) * g * g;
    of.states.first[i] = m;
    of.states.second[i] = v;
    of.parameter[i] = value - size * m / (sqrtf(v) / root + epsilon);
  });
}

// At most so many; the number follows from the sizes alone, so that sums are the same on all devices.
constexpr int64_t most_square_blocks = 1024;

int square_blocks(const RunTable<ElementRun>& table) {
  int64_t largest = 0;
  for (int number = 0; number < table.runs; ++number) largest = std::max(largest, table.of[number].elements);
  return static_cast<int>(std::min(most_square_blocks, (largest + block_threads - 1) / block_threads));
}

// Adds to each block's sum the elements of all runs that are its turn.
__global__ void sum_of_squares_kernel(const __grid_constant__ RunTable<ElementRun> table, double* sums) {
  __shared__ double of_thread[block_threads];
  const int64_t first = static_cast<int64_t>(blockIdx.x) * block_threads + threadIdx.x,
                stride = static_cast<int64_t>(gridDim.x) * block_threads;
  double sum = 0;
  for (int number = 0; number < table.runs; ++number) {
    const float* values = table.of[number].values;
    const int64_t elements = table.of[number].elements;
#pragma unroll 4
    for (int64_t i = first; i < elements; i += stride)
      sum += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  of_thread[threadIdx.x] = sum;
  __syncthreads();
  for (int half = block_threads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) sums[blockIdx.x] += of_thread[0];
}

}  // namespace

void update(const Context& context, std::span<const UpdateOperands> operands, const OptimizerStep& step) {
  if (step.kind == OptimizerKind::sgd) sgd(context, operands, step);
  else adam(context, operands, step);
}

double sum_of_squares(const Context& context, std::span<const ElementRun> runs) {
  double of_blocks[most_square_blocks];
  context.reserve_scratch(sizeof of_blocks);
  double* sums = reinterpret_cast<double*>(context.scratch());
  fill_zero(context, sums, sizeof of_blocks);
  for_each_table(runs, [&](const RunTable<ElementRun>& table) {
    launch(context, static_cast<unsigned>(square_blocks(table)), block_threads, 0, sum_of_squares_kernel, table, sums);
  });
  FF_CHECK(cudaMemcpyAsync(of_blocks, sums, sizeof of_blocks, cudaMemcpyDeviceToHost, context.stream));
  FF_CHECK(cudaStreamSynchronize(context.stream));
  double sum = 0;
  for (const double one : of_blocks) sum += one;
  return sum;
}

void scale(const Context& context, std::span<const ElementRun> runs, float factor) {
  for_each_element(context, runs, [=] __device__(const ElementRun& of, int64_t i) { of.values[i] *= factor; });
}

}  // namespace ff::cuda
