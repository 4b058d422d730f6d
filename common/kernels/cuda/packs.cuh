// Loads and stores of four neighbouring elements by one instruction, and several such loads of a thread before it uses
// the first. By Little's law a multiprocessor of an H200 needs 4.26 TB/s / 132 * 800 ns = 25 KiB of loads in flight;
// 2,048 threads with one load of 4 bytes each have 8 KiB, with two of 16 bytes 64 KiB.
#pragma once

#include <bit>
#include <tuple>
#include <type_traits>

#include "common/kernels/bf16.h"
#include "common/kernels/cuda/device.cuh"

namespace ff::cuda {

template <class Element, int n>
struct alignas(n * sizeof(Element)) Pack {
  static constexpr int size = n;
  Element of[n];
};

constexpr int pack_size = 4;

template <int n, class Element>
__device__ inline Pack<Element, n> load(const Element* address) {
  return *reinterpret_cast<const Pack<Element, n>*>(address);
}
template <int n, class Element>
__device__ inline void store(Element* address, const Pack<Element, n>& values) {
  *reinterpret_cast<Pack<Element, n>*>(address) = values;
}

// Kernels compute in f32 on tensors of f32 or bf16: a bf16 is widened when it is used, and a result is rounded to the
// type of its tensor.
__device__ inline float value_of(float stored) { return stored; }
__device__ inline float value_of(Bf16 stored) { return f32_of(stored); }
__device__ inline void set(float& stored, float value) { stored = value; }
__device__ inline void set(Bf16& stored, float value) { stored = bf16_of(value); }

template <int n, class Element>
__device__ inline Pack<float, n> values_of(const Pack<Element, n>& stored) {
  Pack<float, n> values;
#pragma unroll
  for (int j = 0; j < n; ++j) values.of[j] = value_of(stored.of[j]);
  return values;
}
template <int n, class Element>
__device__ inline Pack<float, n> load_values(const Element* address) {
  return values_of(load<n>(address));
}
template <int n, class Element>
__device__ inline void store_values(Element* address, const Pack<float, n>& values) {
  Pack<Element, n> stored;
#pragma unroll
  for (int j = 0; j < n; ++j) set(stored.of[j], values.of[j]);
  store(address, stored);
}

// Elements before the first one of a pack.
template <class Element>
__host__ __device__ inline int elements_before_pack(const Element* address) {
  constexpr uintptr_t bytes = pack_size * sizeof(Element);
  return static_cast<int>((bytes - reinterpret_cast<uintptr_t>(address) % bytes) % bytes / sizeof(Element));
}

// What a thread loads of one source before it uses the first of it: packs first, first + step, ... below `end`.
template <class Element, int n, int at_once>
struct Batch {
  Pack<Element, n> of[at_once];
};
template <int n, int at_once, class Element>
__device__ inline Batch<Element, n, at_once> load_batch(const Element* source, int64_t first, int64_t step,
                                                        int64_t end) {
  Batch<Element, n, at_once> batch{};
#pragma unroll
  for (int k = 0; k < at_once; ++k)
    if (first + k * step < end) batch.of[k] = load<n>(source + (first + k * step) * n);
  return batch;
}

// use(element number of the pack, a pack of each source).
template <int n, int at_once, class Use, class... Elements>
__device__ inline void use_batches(const Use& use, int64_t first, int64_t step, int64_t end,
                                   const Batch<Elements, n, at_once>&... batches) {
#pragma unroll
  for (int k = 0; k < at_once; ++k)
    if (first + k * step < end) use((first + k * step) * n, batches.of[k]...);
}

// result[i] = function(source[i]...), of f32 or bf16.
template <int n, class Function, class Result, class... Sources>
__global__ void map_kernel(int64_t elements, Function function, Result* result, const Sources*... sources) {
  constexpr int at_once = n == 1 ? 1 : 2;
  const int64_t packs = elements / n,
                first = static_cast<int64_t>(blockIdx.x) * (block_threads * at_once) + threadIdx.x;
  use_batches<n, at_once>(
      [&](int64_t place, const Pack<Sources, n>&... values) {
        Pack<Result, n> results;
#pragma unroll
        for (int j = 0; j < n; ++j) set(results.of[j], function(value_of(values.of[j])...));
        store(result + place, results);
      },
      first, block_threads, packs, load_batch<n, at_once>(sources, first, block_threads, packs)...);
  const int64_t rest = packs * n + threadIdx.x;
  if (n > 1 && blockIdx.x == 0 && rest < elements) set(result[rest], function(value_of(sources[rest])...));
}

// result[i] = function(source[i]...) for every i below `elements`. By packs where all of them begin at a multiple of a
// pack's bytes, and where threads with one element each would be more than those that run at once.
template <class Function, class Result, class... Sources>
void map_elements(const Context& context, int64_t elements, Result* result, std::tuple<const Sources*...> sources,
                  const Function& function) {
  if (elements <= 0) return;
  std::apply(
      [&](const Sources*... source) {
        using MapKernel = void (*)(int64_t, Function, Result*, const Sources*...);
        const bool by_packs = elements > int64_t{2048} * context.multiprocessors && elements_before_pack(result) == 0 &&
                              ((elements_before_pack(source) == 0) && ...);
        const MapKernel kernel = by_packs ? MapKernel{map_kernel<pack_size, Function, Result, Sources...>}
                                          : MapKernel{map_kernel<1, Function, Result, Sources...>};
        const int64_t of_block = by_packs ? int64_t{2} * pack_size * block_threads : block_threads;
        launch(context, static_cast<unsigned>((elements + of_block - 1) / of_block), block_threads, 0, kernel, elements,
               function, result, source...);
      },
      sources);
}
template <class Function, class Result, class Source>
void map_elements(const Context& context, int64_t elements, Result* result, const Source* source,
                  const Function& function) {
  map_elements(context, elements, result, std::tuple<const Source*>(source), function);
}

// Whether columns are multiples of a pack, and so are the addresses of matrices and of their columns' parameters.
template <class... Elements>
bool columns_by_packs(int64_t columns, const Elements*... addresses) {
  return columns % pack_size == 0 && ((elements_before_pack(addresses) == 0) && ...);
}

// Column sums of summand(row, column, n): by packs where `by_packs`.
template <int count, class Summand, class Finish>
void column_sums_by_packs(const Context& context, bool by_packs, int64_t rows, int64_t columns, const Summand& summand,
                          const Finish& finish, void* scratch) {
  if (by_packs) column_sums_of<count, pack_size>(context, rows, columns, summand, finish, scratch);
  else column_sums_of<count, 1>(context, rows, columns, summand, finish, scratch);
}

template <int count, class Element = float>
struct Pointers {
  const Element* of[count];
};

// A thread has the parameters of its columns and `at_once` rows.
template <int n, int sources, int parameters, class Element, class Parameter, class Function>
__global__ void map_columns_kernel(int64_t rows, int64_t columns, unsigned tiles, Function function, Element* result,
                                   Pointers<sources, Element> source, Pointers<parameters, Parameter> parameter) {
  constexpr int at_once = 4;
  const int64_t column = (static_cast<int64_t>(blockIdx.x % tiles) * blockDim.x + threadIdx.x) * n,
                first = static_cast<int64_t>(blockIdx.x / tiles) * blockDim.y * at_once + threadIdx.y;
  if (column >= columns) return;
  Pack<float, n> of_column[parameters];
  Pack<Element, n> values[at_once][sources];
#pragma unroll
  for (int p = 0; p < parameters; ++p) of_column[p] = load_values<n>(parameter.of[p] + column);
#pragma unroll
  for (int k = 0; k < at_once; ++k)
    if (first + k * blockDim.y < rows)
#pragma unroll
      for (int s = 0; s < sources; ++s)
        values[k][s] = load<n>(source.of[s] + (first + k * blockDim.y) * columns + column);
#pragma unroll
  for (int k = 0; k < at_once; ++k) {
    if (first + k * blockDim.y >= rows) continue;
    Pack<Element, n> results;
#pragma unroll
    for (int j = 0; j < n; ++j) {
      float x[sources], p[parameters];
#pragma unroll
      for (int s = 0; s < sources; ++s) x[s] = value_of(values[k][s].of[j]);
#pragma unroll
      for (int q = 0; q < parameters; ++q) p[q] = of_column[q].of[j];
      set(results.of[j], function(x, p));
    }
    store(result + (first + k * blockDim.y) * columns + column, results);
  }
}

// result[row][column] = function(float[sources], float[parameters]), of matrices [rows, columns] of f32 or bf16 and of
// parameters [columns], of f32 or bf16.
template <int sources, int parameters, class Element, class Parameter, class Function>
void map_columns(const Context& context, int64_t rows, int64_t columns, Element* result,
                 const Pointers<sources, Element>& source, const Pointers<parameters, Parameter>& parameter,
                 const Function& function) {
  if (rows * columns <= 0) return;
  bool by_packs = columns_by_packs(columns, result);
  for (const Element* one : source.of) by_packs = by_packs && elements_before_pack(one) == 0;
  for (const Parameter* one : parameter.of) by_packs = by_packs && elements_before_pack(one) == 0;
  const int64_t column_packs = by_packs ? columns / pack_size : columns;
  int64_t column_threads = 1;
  while (column_threads < 64 && column_threads < column_packs) column_threads *= 2;
  const int64_t row_threads = block_threads / column_threads, rows_of_block = 4 * row_threads;
  const int64_t tiles = (column_packs + column_threads - 1) / column_threads;
  launch(context, static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block * tiles),
         dim3(static_cast<unsigned>(column_threads), static_cast<unsigned>(row_threads)), 0,
         by_packs ? map_columns_kernel<pack_size, sources, parameters, Element, Parameter, Function>
                  : map_columns_kernel<1, sources, parameters, Element, Parameter, Function>,
         rows, columns, static_cast<unsigned>(tiles), function, result, source, parameter);
}

// A pack as it is loaded. A Pack of bf16 has a register for each element, into which it is taken apart as soon as it is
// there: then a thread waits for one load before it issues the next one.
template <class Element>
struct [[gnu::may_alias]] alignas(pack_size * sizeof(Element)) PackWords {
  uint32_t of[pack_size * sizeof(Element) / sizeof(uint32_t)];
};

// A row by packs: `head` elements, the packs, and the rest. Where the addresses differ in their distance to the next
// pack, `alike` is false, and packs are loaded and stored element by element.
struct RowPacks {
  int64_t head, packs, length;
  bool alike;

  template <class First, class... Others>
  __device__ RowPacks(int64_t elements, const First* first, const Others*... others) : length(elements) {
    head = elements_before_pack(first);
    alike = ((elements_before_pack(others) == head) && ...);
    if (!alike || head > length) head = 0;
    packs = (length - head) / pack_size;
  }

  // Elements that are in no pack.
  __device__ int64_t single() const { return length - packs * pack_size; }
  __device__ int64_t place_of_single(int64_t number) const {
    return number < head ? number : number + packs * pack_size;
  }
  __device__ int64_t place_of_pack(int64_t number) const { return head + number * pack_size; }

  template <class Element>
  __device__ PackWords<Element> load(const Element* address) const {
    if (alike) return *reinterpret_cast<const PackWords<Element>*>(address);
    Pack<Element, pack_size> elements;
#pragma unroll
    for (int j = 0; j < pack_size; ++j) elements.of[j] = address[j];
    return std::bit_cast<PackWords<Element>>(elements);
  }
  template <int n, class Element>
  __device__ void store(Element* address, const Pack<float, n>& values) const {
    if (alike) return store_values(address, values);
#pragma unroll
    for (int j = 0; j < n; ++j) set(address[j], values.of[j]);
  }
};

// Elements of a row that its threads have in registers, as they are stored: of each thread up to `most` packs, and an
// element that is in none, of each of `sources` tensors.
template <class Row, int number_of_sources, int most, class Element>
class HeldRow {
 public:
  static constexpr int sources = number_of_sources;
  __device__ HeldRow(const RowPacks& row, const Element* const (&source)[sources], int64_t first = Row::thread())
      : row_(row), first_(first) {
#pragma unroll
    for (int k = 0; k < most; ++k)
      if (first_ + k * Row::threads < row_.packs)
#pragma unroll
        for (int s = 0; s < sources; ++s)
          packs_[k][s] = row_.load(source[s] + row_.place_of_pack(first_ + k * Row::threads));
    if (has_single())
#pragma unroll
      for (int s = 0; s < sources; ++s) single_[s] = load_values<1>(source[s] + row_.place_of_single(first_));
  }

  // use(place, a pack of each source).
  template <class Use>
  __device__ void each(const Use& use) const {
#pragma unroll
    for (int k = 0; k < most; ++k) {
      if (first_ + k * Row::threads >= row_.packs) continue;
      Pack<float, pack_size> values[sources];
#pragma unroll
      for (int s = 0; s < sources; ++s) values[s] = values_of(std::bit_cast<Pack<Element, pack_size>>(packs_[k][s]));
      use(row_.place_of_pack(first_ + k * Row::threads), values);
    }
    if (has_single()) use(row_.place_of_single(first_), single_);
  }

 private:
  __device__ bool has_single() const { return first_ < row_.single(); }

  const RowPacks& row_;
  int64_t first_;
  PackWords<Element> packs_[most][sources];
  Pack<float, 1> single_[sources];
};

// The same of a row of any length, read again each time.
template <class Row, int number_of_sources, int at_once, class Element>
class StreamedRow {
 public:
  static constexpr int sources = number_of_sources;
  __device__ StreamedRow(const RowPacks& row, const Element* const (&source)[sources]) : row_(row) {
#pragma unroll
    for (int s = 0; s < sources; ++s) source_[s] = source[s];
  }

  template <class Use>
  __device__ void each(const Use& use) const {
    int64_t first = Row::thread();
    do {
      HeldRow<Row, sources, at_once, Element>(row_, source_, first).each(use);
      first += at_once * Row::threads;
    } while (first < row_.packs);
  }

 private:
  const RowPacks& row_;
  const Element* source_[sources];
};

constexpr int held_packs = 8, streamed_packs = 4;

// Threads of longer rows: those that hold all of a row, in most of a multiprocessor's registers, and those that read it
// again.
constexpr int most_row_threads = 512, most_held_packs = 25, streaming_row_threads = 384;

// Rows that fit are read once: those of a warp up to 1,024 elements, those of 256 threads up to 8,192, and one tensor's
// rows of 512 threads up to 51,200.
template <class Row, int sources, class Element>
using RowOf = std::conditional_t<
    Row::threads == streaming_row_threads, StreamedRow<Row, sources, streamed_packs, Element>,
    HeldRow<Row, sources, Row::threads == most_row_threads && sources == 1 ? most_held_packs : held_packs, Element>>;

// Calls body(RowThreads, row) with so many threads a row. `read_twice`: of one tensor.
template <bool read_twice = false, class Body>
void for_each_row_of_packs(const Context& context, int64_t rows, int64_t length, const Body& body) {
  constexpr int64_t held = int64_t{held_packs} * pack_size;  // elements of a thread
  if (rows <= 0) return;
  if (length <= 32 * held) return for_each_row_by<32>(context, rows, body);
  if (length <= 256 * held) return for_each_row_by<256>(context, rows, body);
  if constexpr (read_twice)
    if (length <= int64_t{most_row_threads} * most_held_packs * pack_size)
      return for_each_row_by<most_row_threads>(context, rows, body);
  for_each_row_by<streaming_row_threads>(context, rows, body);
}

// destination[place] = function(place, an element of each source) for all elements of a row.
template <class Data, class Element, class Function>
__device__ inline void map_row(const RowPacks& row, const Data& data, Element* destination, const Function& function) {
  data.each([&](int64_t place, const auto& values) {
    auto results = values[0];
#pragma unroll
    for (int j = 0; j < results.size; ++j) {
      if constexpr (Data::sources == 1) results.of[j] = function(place + j, values[0].of[j]);
      else results.of[j] = function(place + j, values[0].of[j], values[1].of[j]);
    }
    row.store(destination + place, results);
  });
}

}  // namespace ff::cuda
