#include "common/operators/rearrange.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

// Visits every element of the output with its index.
template <class Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  Vector<int64_t> index(shape.size(), 0);
  for (int64_t i = 0, count = volume(shape); i < count; ++i) {
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0;) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    visit(static_cast<size_t>(i), index);
  }
}
size_t offset(const Shape& shape, const Vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) at = at * shape[axis] + index[axis];
  return static_cast<size_t>(at);
}

void slice(const Slice& slice, Operation& o) {
  for (size_t output = 0; output < slice.outputs().size(); ++output)
    for_each_index(slice.outputs()[output].shape, [&](size_t at, Vector<int64_t> index) {
      index[slice.axis] += slice.ranges[output].begin;
      o.results[output][at] = o.operands.inputs[0][offset(slice.inputs()[0].shape, index)];
    });
}

void pad(const Pad& pad, Operation& o) {
  for_each_index(pad.inputs()[0].shape, [&](size_t at, Vector<int64_t> index) {
    for (size_t axis = 0; axis < index.size(); ++axis) index[axis] += pad.before[axis];
    o.results[0][offset(pad.outputs()[0].shape, index)] = o.operands.inputs[0][at];
  });
}

void transpose(const Transpose& transpose, Operation& o) {
  for_each_index(transpose.outputs()[0].shape, [&](size_t at, const Vector<int64_t>& index) {
    Vector<int64_t> source(index.size());
    for (size_t axis = 0; axis < index.size(); ++axis) source[transpose.axes[axis]] = index[axis];
    o.results[0][at] = o.operands.inputs[0][offset(transpose.inputs()[0].shape, source)];
  });
}

void stack(const Stack&, Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (size_t i = 0; i < o.inputs.size(); ++i)
      for (int64_t c = 0; c < o.outputs[0].size(2); ++c) o.outputs[0](n, i, c) = o.inputs[i](n, c);
}

void concat(const Concat& concat, Operation& o) {
  for (size_t input = 0; input < o.inputs.size(); ++input)
    for_each_index(concat.inputs()[input].shape, [&](size_t at, Vector<int64_t> index) {
      index[concat.axis] += concat.offsets[input];
      o.results[0][offset(concat.outputs()[0].shape, index)] = o.operands.inputs[input][at];
    });
}

void reshape(const Reshape&, Operation& o) { o.results[0] = o.operands.inputs[0]; }
void flatten(const Flatten&, Operation& o) { o.results[0] = o.operands.inputs[0]; }

}  // namespace

Reference make_concat_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Concat>(definition, concat);
}

Reference make_stack_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Stack>(definition, stack);
}

Reference make_slice_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Slice>(definition, slice);
}

Reference make_pad_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Pad>(definition, pad);
}

Reference make_transpose_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Transpose>(definition, transpose);
}

Reference make_reshape_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Reshape>(definition, reshape);
}

Reference make_flatten_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Flatten>(definition, flatten);
}

}  // namespace ff::reference
