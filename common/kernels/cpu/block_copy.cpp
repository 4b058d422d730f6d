#include "common/kernels/cpu/block_copy.h"

#include <algorithm>
#include <cstring>

namespace ff::cpu {
namespace {

constexpr int max_rank = Block::max_rank;

// A region of two buffers as loops: counts of the outer loops, strides in both buffers, and one contiguous run inside.
struct Loops {
  Array<int64_t, max_rank> count{}, source_stride{}, destination_stride{};
  int depth = 0;
  int64_t run = 1;
  int64_t source_offset = 0, destination_offset = 0;
};

Loops plan(const Block& source, const Block& destination, const Block& region) {
  const int rank = region.rank();
  Loops loops;
  Array<int64_t, max_rank> count{}, source_stride{}, destination_stride{};
  int64_t source_step = 1, destination_step = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const int axis = stored_axis(rank, i);
    count[i] = region[axis].size();
    source_stride[i] = source_step;
    destination_stride[i] = destination_step;
    loops.source_offset += (region[axis].begin - source[axis].begin) * source_step;
    loops.destination_offset += (region[axis].begin - destination[axis].begin) * destination_step;
    source_step *= source[axis].size();
    destination_step *= destination[axis].size();
  }
  // Inner axes that lie contiguous in both buffers form one run.
  int inner = rank;
  while (inner > 0 && source_stride[inner - 1] == loops.run && destination_stride[inner - 1] == loops.run)
    loops.run *= count[--inner];
  for (int i = 0; i < inner; ++i) {
    if (count[i] == 1) continue;
    loops.count[loops.depth] = count[i];
    loops.source_stride[loops.depth] = source_stride[i];
    loops.destination_stride[loops.depth] = destination_stride[i];
    ++loops.depth;
  }
  return loops;
}

template <class Run>
void walk(const Loops& loops, const Run& run) {
  Array<int64_t, max_rank> index{};
  int64_t source = loops.source_offset, destination = loops.destination_offset;
  while (true) {
    run(source, destination, loops.run);
    int axis = loops.depth - 1;
    for (; axis >= 0; --axis) {
      source += loops.source_stride[axis];
      destination += loops.destination_stride[axis];
      if (++index[axis] < loops.count[axis]) break;
      source -= loops.count[axis] * loops.source_stride[axis];
      destination -= loops.count[axis] * loops.destination_stride[axis];
      index[axis] = 0;
    }
    if (axis < 0) return;
  }
}

template <class Element>
void copy_elements(const Loops& loops, const void* source, void* destination) {
  const auto* from = static_cast<const Element*>(source);
  auto* to = static_cast<Element*>(destination);
  walk(loops, [&](int64_t s, int64_t d, int64_t run) {
    if (run < 16)
      for (int64_t i = 0; i < run; ++i) to[d + i] = from[s + i];
    else std::memcpy(to + d, from + s, static_cast<size_t>(run) * sizeof(Element));
  });
}

}  // namespace

void copy_block(const void* source, const Block& source_block, void* destination, const Block& destination_block,
                const Block& region, int64_t element_size) {
  if (region.empty()) return;
  const Loops loops = plan(source_block, destination_block, region);
  if (element_size == 2) copy_elements<uint16_t>(loops, source, destination);
  else copy_elements<uint32_t>(loops, source, destination);
}

void add_block(const Bf16* source, const Block& source_block, Bf16* destination, const Block& destination_block,
               const Block& region) {
  if (region.empty()) return;
  walk(plan(source_block, destination_block, region), [&](int64_t s, int64_t d, int64_t run) {
    for (int64_t i = 0; i < run; ++i) destination[d + i] = bf16_of(f32_of(destination[d + i]) + f32_of(source[s + i]));
  });
}

void add_block(const float* source, const Block& source_block, float* destination, const Block& destination_block,
               const Block& region) {
  if (region.empty()) return;
  walk(plan(source_block, destination_block, region), [&](int64_t s, int64_t d, int64_t run) {
    for (int64_t i = 0; i < run; ++i) destination[d + i] += source[s + i];
  });
}

void transpose(const uint32_t* source, int64_t count, int64_t rows, int64_t columns, uint32_t* destination) {
  constexpr int64_t tile = 16;  // a tile of both matrices stays in the first-level cache
  for (int64_t m = 0; m < count; ++m, source += rows * columns, destination += rows * columns)
    for (int64_t row = 0; row < rows; row += tile)
      for (int64_t column = 0; column < columns; column += tile)
        for (int64_t r = row; r < std::min(row + tile, rows); ++r)
          for (int64_t c = column; c < std::min(column + tile, columns); ++c)
            destination[c * rows + r] = source[r * columns + c];
}

void copy_columns(const float* source, int64_t source_stride, float* destination, int64_t destination_stride,
                  int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(destination + row * destination_stride, source + row * source_stride,
                static_cast<size_t>(width) * sizeof(float));
}

}  // namespace ff::cpu
