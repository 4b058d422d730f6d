#include "common/kernels/bf16.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

enum class Move { copy, add, zero };

__device__ float sum_of(float a, float b) { return a + b; }
__device__ Bf16 sum_of(Bf16 a, Bf16 b) { return bf16_of(f32_of(a) + f32_of(b)); }
template <class Element, int n>
__device__ Pack<Element, n> sum_of(const Pack<Element, n>& a, const Pack<Element, n>& b) {
  Pack<Element, n> sums;
#pragma unroll
  for (int j = 0; j < n; ++j) sums.of[j] = sum_of(a.of[j], b.of[j]);
  return sums;
}

// Every element of the loops, the innermost one last. Index: 32 bits where they suffice, since divisions by 64 bits are
// slow.
template <Move move, class Index, class Element>
__global__ void move_kernel(StridedLoops loops, Index count, const Element* source, Element* destination) {
  const Index stride = static_cast<Index>(gridDim.x) * blockDim.x;
  for (Index i = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    Index rest = i;
    int64_t from = 0, to = 0;
#pragma unroll
    for (int axis = most_strides - 1; axis >= 0; --axis) {
      if (axis >= loops.depth) continue;
      const Index size = static_cast<Index>(loops.sizes[axis]), next = rest / size, index = rest - next * size;
      from += index * loops.from[axis];
      to += index * loops.to[axis];
      rest = next;
    }
    if (move == Move::copy) destination[to] = source[from];
    if (move == Move::add) destination[to] = sum_of(destination[to], source[from]);
    if (move == Move::zero) destination[to] = Element{};
  }
}

// Neighbouring loops that are one on both sides become one; loops of one element go.
StridedLoops merged(const StridedLoops& loops) {
  StridedLoops result;
  for (int axis = 0; axis < loops.depth; ++axis) {
    if (loops.sizes[axis] == 1) continue;
    const int last = result.depth - 1;
    if (last >= 0 && result.from[last] == loops.from[axis] * loops.sizes[axis] &&
        result.to[last] == loops.to[axis] * loops.sizes[axis]) {
      result.sizes[last] *= loops.sizes[axis];
      result.from[last] = loops.from[axis];
      result.to[last] = loops.to[axis];
      continue;
    }
    result.sizes[result.depth] = loops.sizes[axis];
    result.from[result.depth] = loops.from[axis];
    result.to[result.depth] = loops.to[axis];
    ++result.depth;
  }
  return result;
}

// Matrices, one after the other, of which rows and columns are exchanged: their reads along the source's rows and
// writes along the destination's cannot be those of one loop, but go through tiles in shared memory.
bool transposes_matrices(const StridedLoops& loops) {
  constexpr int64_t least = 8;  // of less, tiles would be empty for the most part
  const int a = loops.depth - 2, b = loops.depth - 1;
  if (a < 0 || a > 1 || loops.sizes[a] < least || loops.sizes[b] < least) return false;
  const int64_t matrix = loops.sizes[a] * loops.sizes[b];
  return loops.from[a] == 1 && loops.to[b] == 1 && loops.from[b] == loops.sizes[a] && loops.to[a] == loops.sizes[b] &&
         (a == 0 || (loops.from[0] == matrix && loops.to[0] == matrix));
}

template <class Element>
void run_as_matrices(const Context& context, const StridedLoops& loops, const Element* source, Element* destination,
                     bool add) {
  const int64_t count = loops.depth == 3 ? loops.sizes[0] : 1;
  transpose(context, source, count, loops.sizes[loops.depth - 1], loops.sizes[loops.depth - 2], destination, add);
}

template <Move move, class Element>
void launch_moves(const Context& context, const StridedLoops& loops, int64_t count, const Element* source,
                  Element* destination) {
  const unsigned blocks = static_cast<unsigned>(blocks_for(context, count));
  if (count < (int64_t{1} << 30))
    launch(context, blocks, block_threads, 0, move_kernel<move, uint32_t, Element>, loops, static_cast<uint32_t>(count),
           source, destination);
  else
    launch(context, blocks, block_threads, 0, move_kernel<move, uint64_t, Element>, loops, static_cast<uint64_t>(count),
           source, destination);
}

// Whether the elements are packs on both sides: then the loops become those of packs.
bool become_packs(StridedLoops& loops) {
  const int inner = loops.depth - 1;
  if (inner < 0 || loops.from[inner] != 1 || loops.to[inner] != 1 || loops.sizes[inner] % pack_size != 0) return false;
  for (int axis = 0; axis < inner; ++axis)
    if (loops.from[axis] % pack_size != 0 || loops.to[axis] % pack_size != 0) return false;
  loops.sizes[inner] /= pack_size;
  for (int axis = 0; axis < inner; ++axis) {
    loops.from[axis] /= pack_size;
    loops.to[axis] /= pack_size;
  }
  return true;
}

template <Move move, class Element>
void run(const Context& context, const StridedLoops& all, const Element* source, Element* destination) {
  StridedLoops loops = merged(all);
  int64_t count = 1;
  for (int axis = 0; axis < loops.depth; ++axis) count *= loops.sizes[axis];
  if (count == 0) return;
  if (move == Move::copy && (loops.depth == 0 || (loops.depth == 1 && loops.from[0] == 1 && loops.to[0] == 1))) {
    copy_bytes(context, source, destination, count * static_cast<int64_t>(sizeof(Element)));
    return;
  }
  if constexpr (move != Move::zero)
    if (transposes_matrices(loops)) return run_as_matrices(context, loops, source, destination, move == Move::add);
  using Elements = Pack<Element, pack_size>;
  if (elements_before_pack(source) == 0 && elements_before_pack(destination) == 0 && become_packs(loops))
    launch_moves<move>(context, loops, count / pack_size, reinterpret_cast<const Elements*>(source),
                       reinterpret_cast<Elements*>(destination));
  else launch_moves<move>(context, loops, count, source, destination);
}

template <Move move, class Element>
void move_block(const Context& context, const Element* source, const Block& source_block, Element* destination,
                const Block& destination_block, const Block& region) {
  if (region.empty()) return;
  StridedLoops loops;
  loops.depth = region.rank();
  int64_t from = 1, to = 1;
  for (int i = loops.depth - 1; i >= 0; --i) {
    const int axis = stored_axis(loops.depth, i);
    loops.sizes[i] = region[axis].size();
    loops.from[i] = from;
    loops.to[i] = to;
    source += (region[axis].begin - source_block[axis].begin) * from;
    destination += (region[axis].begin - destination_block[axis].begin) * to;
    from *= source_block[axis].size();
    to *= destination_block[axis].size();
  }
  run<move>(context, loops, source, destination);
}

}  // namespace

void copy_block(const Context& context, const void* source, const Block& source_block, void* destination,
                const Block& destination_block, const Block& region) {
  move_block<Move::copy>(context, static_cast<const float*>(source), source_block, static_cast<float*>(destination),
                         destination_block, region);
}

void copy_block_bf16(const Context& context, const void* source, const Block& source_block, void* destination,
                     const Block& destination_block, const Block& region) {
  move_block<Move::copy>(context, static_cast<const Bf16*>(source), source_block, static_cast<Bf16*>(destination),
                         destination_block, region);
}

void add_block_bf16(const Context& context, const void* source, const Block& source_block, void* destination,
                    const Block& destination_block, const Block& region) {
  move_block<Move::add>(context, static_cast<const Bf16*>(source), source_block, static_cast<Bf16*>(destination),
                        destination_block, region);
}

void add_block(const Context& context, const float* source, const Block& source_block, float* destination,
               const Block& destination_block, const Block& region) {
  move_block<Move::add>(context, source, source_block, destination, destination_block, region);
}

template <class Element>
void zero_block(const Context& context, Element* destination, const Block& destination_block, const Block& region) {
  move_block<Move::zero>(context, static_cast<const Element*>(destination), destination_block, destination,
                         destination_block, region);
}
template void zero_block(const Context&, float*, const Block&, const Block&);
template void zero_block(const Context&, Bf16*, const Block&, const Block&);

template <class Element>
void copy_strided(const Context& context, const StridedLoops& loops, const Element* source, Element* destination) {
  run<Move::copy>(context, loops, source, destination);
}
template void copy_strided(const Context&, const StridedLoops&, const float*, float*);
template void copy_strided(const Context&, const StridedLoops&, const Bf16*, Bf16*);

void add_strided(const Context& context, const StridedLoops& loops, const float* source, float* destination) {
  run<Move::add>(context, loops, source, destination);
}

}  // namespace ff::cuda
