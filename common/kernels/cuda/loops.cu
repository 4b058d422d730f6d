#include "common/kernels/bf16.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

constexpr int tile = 32, tile_rows = 8;

// A block moves one tile, through shared memory so that reads and writes are both along rows. One more column than a
// tile has spares bank conflicts.
template <class Source, class Destination>
__global__ void transpose_kernel(const Source* source, int64_t rows, int64_t columns, int64_t row_tiles,
                                 int64_t column_tiles, bool add, Destination* destination) {
  __shared__ float values[tile][tile + 1];
  int64_t rest = blockIdx.x;
  const int64_t first_column = rest % column_tiles * tile;
  rest /= column_tiles;
  const int64_t first_row = rest % row_tiles * tile;
  const int64_t offset = rest / row_tiles * rows * columns;
  for (int r = threadIdx.y; r < tile; r += tile_rows) {
    const int64_t row = first_row + r, column = first_column + threadIdx.x;
    if (row < rows && column < columns) values[r][threadIdx.x] = value_of(source[offset + row * columns + column]);
  }
  __syncthreads();
  for (int c = threadIdx.y; c < tile; c += tile_rows) {
    const int64_t column = first_column + c, row = first_row + threadIdx.x;
    if (row >= rows || column >= columns) continue;
    Destination& target = destination[offset + column * rows + row];
    // Without arithmetic where there is nothing to add: an f32 may hold the bits of an integer.
    set(target, add ? value_of(target) + values[threadIdx.x][c] : values[threadIdx.x][c]);
  }
}

__global__ void set_value_kernel(int64_t* memory, int64_t value) { *memory = value; }

__global__ void keep_busy_kernel(long long cycles) {
  const long long begin = clock64();
  while (clock64() - begin < cycles) {}
}

}  // namespace

void copy(const Context& context, const void* source, void* destination, int64_t elements) {
  copy_bytes(context, source, destination, elements * element_bytes);
}

void copy_bytes(const Context& context, const void* source, void* destination, int64_t bytes) {
  if (bytes > 0)
    FF_CHECK(
        cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, context.stream));
}

void widen(const Context& context, const uint16_t* source, float* destination, int64_t elements) {
  map_elements(context, elements, destination, source, [=] __device__(float value) { return value; });
}

void narrow(const Context& context, const float* source, uint16_t* destination, int64_t elements) {
  map_elements(context, elements, destination, source, [=] __device__(float value) { return value; });
}

void round_to_bf16(const Context& context, const float* source, float* destination, int64_t elements) {
  map_elements(context, elements, destination, source, [=] __device__(float value) { return f32_of(bf16_of(value)); });
}

void fill_zero(const Context& context, void* memory, int64_t bytes) {
  if (bytes > 0) FF_CHECK(cudaMemsetAsync(memory, 0, static_cast<size_t>(bytes), context.stream));
}

void add_to(const Context& context, const float* source, float* destination, int64_t elements) {
  const float* before = destination;
  map_elements(context, elements, destination, std::tuple(before, source),
               [=] __device__(float sum, float value) { return sum + value; });
}

template <class Element>
void mask_by_positive(const Context& context, const Element* gate, const Element* source, Element* destination,
                      int64_t elements) {
  map_elements(context, elements, destination, std::tuple(gate, source),
               [=] __device__(float gated_by, float value) { return gated_by > 0 ? value : 0.0f; });
}
template void mask_by_positive(const Context&, const float*, const float*, float*, int64_t);
template void mask_by_positive(const Context&, const uint16_t*, const uint16_t*, uint16_t*, int64_t);

template <class Element>
void tanh_gradient(const Context& context, const Element* output, const Element* gradient, Element* result,
                   int64_t elements) {
  map_elements(context, elements, result, std::tuple(output, gradient),
               [=] __device__(float y, float g) { return g * (1.0f - y * y); });
}
template void tanh_gradient(const Context&, const float*, const float*, float*, int64_t);
template void tanh_gradient(const Context&, const uint16_t*, const uint16_t*, uint16_t*, int64_t);

template <class Element>
void add_bias(const Context& context, const Element* bias, bool relu, int64_t rows, int64_t columns, Element* values) {
  if (bias)
    map_columns<1, 1>(context, rows, columns, values, Pointers<1, Element>{{values}}, Pointers<1, Element>{{bias}},
                      [=] __device__(const float(&value)[1], const float(&of_column)[1]) {
                        const float sum = value[0] + of_column[0];
                        return relu && !(sum > 0) ? 0.0f : sum;
                      });
  else if (relu) mask_by_positive<Element>(context, values, values, values, rows * columns);
}
template void add_bias(const Context&, const float*, bool, int64_t, int64_t, float*);
template void add_bias(const Context&, const uint16_t*, bool, int64_t, int64_t, uint16_t*);

int64_t sum_rows_scratch_bytes(const Context& context, int64_t rows, int64_t columns) {
  return column_sums_scratch_bytes<1>(context, rows, columns);
}

template <class Element>
void sum_rows(const Context& context, const Element* matrix, int64_t rows, int64_t columns, float* sums, bool add,
              void* scratch) {
  column_sums_by_packs<1>(
      context, columns_by_packs(columns, matrix), rows, columns,
      [=] __device__(int64_t row, int64_t column, auto number) {
        constexpr int n = decltype(number)::value;
        const Pack<float, n> values = load_values<n>(matrix + row * columns + column);
        Sums<1, n> sums;
#pragma unroll
        for (int j = 0; j < n; ++j) sums.of[0][j] = values.of[j];
        return sums;
      },
      [=] __device__(int64_t column, const double* total) {
        sums[column] = static_cast<float>(total[0]) + (add ? sums[column] : 0.0f);
      },
      scratch);
}
template void sum_rows(const Context&, const float*, int64_t, int64_t, float*, bool, void*);
template void sum_rows(const Context&, const uint16_t*, int64_t, int64_t, float*, bool, void*);

template <class Source, class Destination>
void transpose(const Context& context, const Source* source, int64_t count, int64_t rows, int64_t columns,
               Destination* destination, bool add) {
  if (count * rows * columns == 0) return;
  const int64_t row_tiles = (rows + tile - 1) / tile, column_tiles = (columns + tile - 1) / tile;
  launch(context, static_cast<unsigned>(count * row_tiles * column_tiles), dim3(tile, tile_rows), 0,
         transpose_kernel<Source, Destination>, source, rows, columns, row_tiles, column_tiles, add, destination);
}
template void transpose(const Context&, const float*, int64_t, int64_t, int64_t, float*, bool);
template void transpose(const Context&, const uint16_t*, int64_t, int64_t, int64_t, uint16_t*, bool);
template void transpose(const Context&, const uint16_t*, int64_t, int64_t, int64_t, float*, bool);

template <class Element>
void copy_columns(const Context& context, const Element* source, int64_t source_stride, Element* destination,
                  int64_t destination_stride, int64_t rows, int64_t width) {
  for_each_index(context, rows * width, [=] __device__(int64_t i) {
    const int64_t row = i / width, column = i - row * width;
    destination[row * destination_stride + column] = source[row * source_stride + column];
  });
}
template void copy_columns(const Context&, const float*, int64_t, float*, int64_t, int64_t, int64_t);
template void copy_columns(const Context&, const uint16_t*, int64_t, uint16_t*, int64_t, int64_t, int64_t);

void keep_busy(const Context& context, int64_t nanoseconds) {
  int clock_khz = 0;
  FF_CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, context.device));
  launch(context, 1, 1, 0, keep_busy_kernel, static_cast<long long>(nanoseconds) * clock_khz / 1'000'000);
}

void Context::set_iteration(int64_t iteration) const {
  launch(*this, 1, 1, 0, set_value_kernel, iteration_, iteration);
}

}  // namespace ff::cuda
