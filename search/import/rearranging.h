// Constants of the numbers of others in another order; Origin follows each number.
#pragma once

#include "search/import/model.h"

namespace ff::importing {

// Of a row-major tensor.
Vector<int64_t> strides_of(const Shape& shape);
// Elements of `source` at these strides.
Constant box_of(const Constant& source, const Shape& shape, const Vector<int64_t>& strides, int64_t offset);
Constant with_shape(const Constant& source, const Shape& shape);
// Broadcast to this shape.
Constant expanded(const Constant& source, const Shape& shape);

// Joins or chooses from several constants of one type, row-major.
class Gathered {
 public:
  explicit Gathered(const Vector<const Constant*>& sources);

  void add(const Constant& source, int64_t first, int64_t count = 1);
  void add_zero();

  Constant constant(const Shape& shape) &&;

 private:
  ElementType type_;
  std::string parameter_;
  bool known_ = false, looked_up_ = false;
  Vector<float> floats_;
  Vector<int64_t> integers_;
  Progressions numbers_;
};

}  // namespace ff::importing
