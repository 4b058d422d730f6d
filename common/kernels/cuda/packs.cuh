// Loads and stores of four neighbouring elements by one instruction, and several such loads of a thread before it uses
// the first. By Little's law a multiprocessor of an H200 needs 4.26 TB/s / 132 * 800 ns = 25 KiB of loads in flight;
// 2,048 threads with one load of 4 bytes each have 8 KiB, with two of 16 bytes 64 KiB.
#pragma once

#include <tuple>

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

// result[i] = function(source[i]...).
template <int n, class Function, class Result, class... Sources>
__global__ void map_kernel(int64_t elements, Function function, Result* result, const Sources*... sources) {
  constexpr int at_once = n == 1 ? 1 : 2;
  const int64_t packs = elements / n,
                first = static_cast<int64_t>(blockIdx.x) * (block_threads * at_once) + threadIdx.x;
  use_batches<n, at_once>(
      [&](int64_t place, const Pack<Sources, n>&... values) {
        Pack<Result, n> results;
#pragma unroll
        for (int j = 0; j < n; ++j) results.of[j] = function(values.of[j]...);
        store(result + place, results);
      },
      first, block_threads, packs, load_batch<n, at_once>(sources, first, block_threads, packs)...);
  const int64_t rest = packs * n + threadIdx.x;
  if (n > 1 && blockIdx.x == 0 && rest < elements) result[rest] = function(sources[rest]...);
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

// A row by packs: `head` elements, the packs, and the rest. Without packs where the addresses differ in their distance
// to the next one.
struct RowPacks {
  int64_t head, packs, length;

  template <class First, class... Others>
  __device__ RowPacks(int64_t elements, const First* first, const Others*... others) : length(elements) {
    head = elements_before_pack(first);
    const bool alike = ((elements_before_pack(others) == head) && ...);
    packs = alike && length > head ? (length - head) / pack_size : 0;
    if (packs == 0) head = 0;
  }
};

// Calls body(RowThreads, row) with so many threads a row that each of them has some packs.
template <class Body>
void for_each_row_of_packs(const Context& context, int64_t rows, int64_t length, const Body& body) {
  if (rows <= 0) return;
  if (length <= 1024) for_each_row_by<32>(context, rows, body);
  else if (length <= 8192) for_each_row_by<256>(context, rows, body);
  else for_each_row_by<512>(context, rows, body);
}

// body(place, a pack of each source) for all elements of a row, by the threads of Row. Each of them loads `at_once`
// packs of each source before it uses the first.
template <class Row, int at_once, class Body, class... Sources>
__device__ inline void for_each_pack(const RowPacks& row, const Body& body, const Sources*... sources) {
  for (int64_t p = Row::thread(); p < row.packs; p += at_once * Row::threads)
    use_batches<pack_size, at_once>(
        [&](int64_t place, const Pack<Sources, pack_size>&... values) { body(row.head + place, values...); }, p,
        Row::threads, row.packs, load_batch<pack_size, at_once>(sources + row.head, p, Row::threads, row.packs)...);
  const int64_t in_packs = row.packs * pack_size, rest = row.length - in_packs;
  for (int64_t r = Row::thread(); r < rest; r += Row::threads) {
    const int64_t place = r < row.head ? r : r + in_packs;
    body(place, load<1>(sources + place)...);
  }
}

}  // namespace ff::cuda
