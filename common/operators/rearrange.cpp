#include "common/operators/rearrange.h"

#include "common/operators/families.h"

namespace ff {

Concat::Concat(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs_between(1, SIZE_MAX);
  request.allow_attributes({"axis"});
  request.expect_rank(0, 2, 4);
  Shape output = inputs_[0].shape;
  const int rank = static_cast<int>(output.size());
  axis = static_cast<int>(request.integer("axis", 1, 1, rank - 1));
  output[axis] = 0;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    request.expect_type(i, DataType::f32);
    Shape expected = inputs_[0].shape;
    if (inputs_[i].shape.size() == expected.size()) expected[axis] = inputs_[i].shape[axis];
    if (inputs_[i].shape != expected)
      request.place.at("inputs").items()[i].fail("has shape " + to_string(inputs_[i].shape) + ", expected that of the first input, " +
                                                 to_string(inputs_[0].shape) + ", except for axis " + std::to_string(axis));
    offsets.push_back(output[axis]);
    output[axis] += inputs_[i].shape[axis];
  }
  outputs_ = {{"", output}};
  const std::vector<std::string> names = axis_names(output.size());
  for (int a = 0; a < rank; ++a)
    dimensions_.push_back({names[a], a == 0 ? DimensionKind::sample : DimensionKind::attribute, output[a]});
}

Block Concat::input_block(int input, const Block& part) const {
  Block block = part;
  const int64_t size = inputs_[input].shape[axis];
  const Interval read = intersect(Interval{part[axis].begin - offsets[input], part[axis].end - offsets[input]}, Interval{0, size});
  block[axis] = read.size() > 0 ? read : Interval{0, 0};
  return block;
}

Flatten::Flatten(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 2, 4);
  request.expect_type(0, DataType::f32);
  request.allow_attributes({});
  const Shape& shape = inputs_[0].shape;
  inner = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) inner *= shape[axis];
  outputs_ = {{"", {shape[0], shape[1] * inner}}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]}, {axis_names(shape.size())[1], DimensionKind::attribute, shape[1]}};
}

Block Flatten::output_block(int, const Block& part) const { return {part[0], {part[1].begin * inner, part[1].end * inner}}; }

Block Flatten::input_block(int, const Block& part) const {
  Block block(inputs_[0].shape);
  block[0] = part[0];
  block[1] = part[1];
  return block;
}

std::unique_ptr<OperatorDefinition> make_concat(const OperatorRequest& request) { return std::make_unique<Concat>(request); }
std::unique_ptr<OperatorDefinition> make_flatten(const OperatorRequest& request) { return std::make_unique<Flatten>(request); }

}  // namespace ff
