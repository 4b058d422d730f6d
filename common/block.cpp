#include "common/block.h"

namespace ff {

int64_t volume(const Shape& shape) {
  int64_t elements = 1;
  for (int64_t size : shape) elements *= size;
  return elements;
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (size_t axis = 0; axis < shape.size(); ++axis) text += (axis ? ", " : "") + std::to_string(shape[axis]);
  return text + "]";
}

Vector<int64_t> stored_strides(const Shape& shape) {
  Vector<int64_t> strides(shape.size());
  int64_t stride = 1;
  for (int position = shape.count() - 1; position >= 0; --position) {
    const int axis = stored_axis(shape.count(), position);
    strides[axis] = stride;
    stride *= shape[axis];
  }
  return strides;
}

Block intersect(const Block& a, const Block& b) {
  assert(a.rank() == b.rank());
  Block result;
  for (int axis = 0; axis < a.rank(); ++axis) result.append(intersect(a[axis], b[axis]));
  return result;
}

std::string to_string(const Block& block) {
  std::string text = "[";
  for (int axis = 0; axis < block.rank(); ++axis)
    text += (axis ? ", " : "") + std::to_string(block[axis].begin) + ":" + std::to_string(block[axis].end);
  return text + "]";
}

}  // namespace ff
