// Walking the contiguous runs of a block inside a row-major array that holds a larger block.
#pragma once

#include "common/block.h"

namespace ff {

// Calls visit(offset, length) for every run of `region` that is contiguous in a row-major array of block `outer`, in
// row-major order: offsets and lengths in elements. outer contains region.
template <typename Visit>
void for_each_run(const Block& outer, const Block& region, Visit visit) {
  if (region.empty()) return;
  const int rank = region.rank();
  // Axes from `flat` on are whole in `outer` (apart from axis `flat` itself), so that one run spans them.
  int flat = rank > 0 ? rank - 1 : 0;
  int64_t length = rank > 0 ? region[flat].size() : 1, inner = 1;  // inner: elements of `outer` after axis `flat`
  while (flat > 0 && region[flat] == outer[flat]) {
    inner *= outer[flat].size();
    --flat;
    length = region[flat].size() * inner;
  }
  Array<int64_t, Block::max_rank> stride{}, at{};
  int64_t elements = 1;
  for (int axis = rank - 1; axis >= 0; --axis) {
    stride[axis] = elements;
    elements *= outer[axis].size();
    at[axis] = region[axis].begin;
  }
  while (true) {
    int64_t offset = 0;
    for (int axis = 0; axis < rank; ++axis) offset += (at[axis] - outer[axis].begin) * stride[axis];
    visit(offset, length);
    int axis = flat - 1;
    while (axis >= 0 && ++at[axis] == region[axis].end) {
      at[axis] = region[axis].begin;
      --axis;
    }
    if (axis < 0) return;
  }
}

}  // namespace ff
