#include "search/import/rearranging.h"

#include "search/import/analysis.h"

namespace ff::importing {

Vector<int64_t> strides_of(const Shape& shape) {
  Vector<int64_t> strides(shape.size(), 1);
  for (int axis = shape.count() - 2; axis >= 0; --axis) strides[axis] = strides[axis + 1] * shape[axis + 1];
  return strides;
}

Constant box_of(const Constant& source, const Shape& shape, const Vector<int64_t>& strides, int64_t offset) {
  Constant result;
  result.type = source.type;
  result.shape = shape;
  result.parameter = source.parameter;
  result.frozen = source.frozen;
  result.looked_up = source.looked_up;
  if (source.origin.known()) result.origin = Origin::of(source.origin.numbers->box(shape, strides, offset));
  if (source.floats) {
    result.floats = source.floats.box(shape, strides, offset);
    return result;
  }
  Vector<int64_t> values;
  values.reserve(static_cast<size_t>(volume(shape)));
  const int64_t count = shape.empty() ? 1 : shape.back(), stride = shape.empty() ? 0 : strides.back();
  for_each_row(shape, strides, offset, [&](int64_t row) {
    for (int64_t i = 0; i < count; ++i) values.push_back((*source.integers)[row + i * stride]);
  });
  result.integers = std::make_shared<const Vector<int64_t>>(std::move(values));
  return result;
}

Constant with_shape(const Constant& source, const Shape& shape) {
  Constant result = source;
  result.shape = shape;
  return result;
}

Constant expanded(const Constant& source, const Shape& shape) {
  if (source.shape == shape) return source;
  Vector<int64_t> strides(shape.size(), 0), own = strides_of(source.shape);
  const int missing = shape.count() - source.shape.count();
  for (const int axis : source.shape.indices())
    if (source.shape[axis] != 1) strides[axis + missing] = own[axis];
  return box_of(source, shape, strides, 0);
}

Gathered::Gathered(const Vector<const Constant*>& sources)
    : type_(sources[0]->type), parameter_(sources[0]->parameter) {
  for (const Constant* source : sources) {
    known_ = known_ || source->origin.known();
    looked_up_ = looked_up_ || source->looked_up;
    if (source->parameter != parameter_) parameter_.clear();
  }
}

void Gathered::add(const Constant& source, int64_t first, int64_t count) {
  if (source.floats)
    floats_.insert(floats_.end(), source.floats->begin() + first, source.floats->begin() + first + count);
  else integers_.insert(integers_.end(), source.integers->begin() + first, source.integers->begin() + first + count);
  if (!known_) return;
  if (source.origin.known()) numbers_.add(*source.origin.numbers, first, count);
  else
    for (int64_t i = 0; i < count; ++i) numbers_.add(Origin::none);
}

void Gathered::add_zero() {
  if (type_ == ElementType::f32) floats_.push_back(0);
  else integers_.push_back(0);
  if (known_) numbers_.add(Origin::none);
}

Constant Gathered::constant(const Shape& shape) && {
  if (type_ != ElementType::f32) return Constant::of_integers(shape, std::move(integers_), type_);
  Constant result = Constant::of_floats(shape, std::move(floats_));
  result.parameter = parameter_;
  result.looked_up = looked_up_;
  if (known_) result.origin = Origin::of(std::move(numbers_));
  return result;
}

Constant transposed(const Constant& constant, const Vector<int>& axes) {
  const Vector<int64_t> own = strides_of(constant.shape);
  Shape shape;
  Vector<int64_t> strides;
  for (const int axis : axes) {
    shape.push_back(constant.shape[axis]);
    strides.push_back(own[axis]);
  }
  return box_of(constant, shape, strides, 0);
}

Constant without_repetition(const Constant& constant) {
  if (!has_repetition(constant)) return constant;
  Constant result = constant;
  for (const int axis : constant.shape.indices()) {
    if (result.shape[axis] <= 1) continue;
    const Vector<int64_t> strides = strides_of(result.shape);
    Vector<int64_t> repeating = strides;  // the first along this axis, again and again
    repeating[axis] = 0;
    if (result.origin.numbers->box(result.shape, repeating, 0) != *result.origin.numbers) continue;
    Shape shape = result.shape;
    shape[axis] = 1;
    result = box_of(result, shape, strides, 0);
  }
  return result;
}

bool has_repetition(const Constant& constant) { return constant.origin.known() && constant.origin.numbers->repeats(); }

}  // namespace ff::importing
