#include "common/operators/rearrange.h"

#include <algorithm>

#include "common/operators/operator_list.h"

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
    request.expect_type(i, inputs_[0].type);
    Shape expected = inputs_[0].shape;
    if (inputs_[i].shape.size() == expected.size()) expected[axis] = inputs_[i].shape[axis];
    if (inputs_[i].shape != expected)
      request.place.at("inputs").items()[i].fail("has shape " + to_string(inputs_[i].shape) +
                                                 ", expected that of the first input, " + to_string(inputs_[0].shape) +
                                                 ", except for axis " + std::to_string(axis));
    offsets.push_back(output[axis]);
    output[axis] += inputs_[i].shape[axis];
  }
  outputs_ = {{"", output, inputs_[0].type}};
  dimensions_ = every_axis(output);
}

Block Concat::input_block(int input, const Block& part) const {
  Block block = part;
  const int64_t size = inputs_[input].shape[axis];
  const Interval read =
      intersect(Interval{part[axis].begin - offsets[input], part[axis].end - offsets[input]}, Interval{0, size});
  block[axis] = read.size() > 0 ? read : Interval{0, 0};
  return block;
}

Vector<Block> Concat::regions(const Block& part) const {
  Vector<Block> regions;
  for (int input = 0; input < static_cast<int>(inputs_.size()); ++input) {
    regions.push_back(input_block(input, part));
    regions.back()[axis].begin += offsets[input];
    regions.back()[axis].end += offsets[input];
  }
  return regions;
}

Flatten::Flatten(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 2, 4);
  request.allow_attributes({});
  const Shape& shape = inputs_[0].shape;
  inner = 1;
  for (size_t axis = 2; axis < shape.size(); ++axis) inner *= shape[axis];
  outputs_ = {{"", {shape[0], shape[1] * inner}, inputs_[0].type}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]},
                 {axis_names(shape.size())[1], DimensionKind::attribute, shape[1]}};
}

Block Flatten::output_block(int, const Block& part) const {
  return {part[0], {part[1].begin * inner, part[1].end * inner}};
}

Block Flatten::input_block(int, const Block& part) const {
  Block block(inputs_[0].shape);
  block[0] = part[0];
  block[1] = part[1];
  return block;
}

Stack::Stack(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs_between(1, SIZE_MAX);
  request.allow_attributes({});
  request.expect_rank(0, 2, 2);
  const Shape& shape = inputs_[0].shape;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    request.expect_type(i, inputs_[0].type);
    if (inputs_[i].shape != shape)
      request.place.at("inputs").items()[i].fail("has shape " + to_string(inputs_[i].shape) +
                                                 ", expected that of the first input, " + to_string(shape));
  }
  outputs_ = {{"", {shape[0], static_cast<int64_t>(inputs_.size()), shape[1]}, inputs_[0].type}};
  dimensions_ = every_axis(outputs_[0].shape);
}

Block Stack::input_block(int input, const Block& part) const {
  if (input < part[1].begin || input >= part[1].end) return {{0, 0}, {0, 0}};
  return {part[0], part[2]};
}

Slice::Slice(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 2, 4);
  const Shape& shape = inputs_[0].shape;
  axis = static_cast<int>(request.integer("axis", 1, 1, static_cast<int64_t>(shape.size()) - 1));
  const int64_t size = shape[axis];
  if (is_split()) {
    request.expect_type(0, DataType::f32);
    request.allow_attributes({"axis", "sizes"});
    const JsonPlace sizes = request.required_attribute("sizes");
    int64_t end = 0;
    for (const JsonPlace& item : sizes.items()) {
      const int64_t begin = end;
      end += item.as_integer(1, size);
      ranges.push_back({begin, end});
    }
    if (end != size)
      sizes.fail("sum to " + std::to_string(end) + ", expected " + std::to_string(size) + ", the size of axis " +
                 std::to_string(axis));
  } else {
    request.allow_attributes({"axis", "begin", "end"});
    const int64_t begin = request.integer("begin", 0, 0, size - 1);
    ranges.push_back({begin, request.integer("end", size, begin + 1, size)});
  }
  for (size_t o = 0; o < ranges.size(); ++o) {
    Shape output = shape;
    output[axis] = ranges[o].size();
    outputs_.push_back({o == 0 ? "" : std::to_string(o), output, inputs_[0].type});
  }
  dimensions_ = every_axis(outputs_[0].shape, is_split() ? axis : -1);
}

Block Slice::output_block(int output, const Block& part) const {
  if (!is_split()) return part;
  Block block;
  for (int a = 0; a < static_cast<int>(inputs_[0].shape.size()); ++a)
    block.append(a == axis ? Interval{0, ranges[output].size()} : part[a < axis ? a : a - 1]);
  return block;
}

Block Slice::input_block(int, const Block& part) const {
  Block block = output_block(0, part);
  if (is_split()) block[axis] = {0, inputs_[0].shape[axis]};
  else block[axis] = {part[axis].begin + ranges[0].begin, part[axis].end + ranges[0].begin};
  return block;
}

Vector<Block> Slice::regions(const Block& part) const {
  const Block input = input_block(0, part);
  Vector<Block> regions;
  int64_t begin = input[axis].begin;
  for (int output = 0; output < static_cast<int>(outputs_.size()); ++output) {
    const int64_t end = begin + output_block(output, part)[axis].size();
    regions.push_back(input);
    regions.back()[axis] = {begin, end};
    begin = end;
  }
  return regions;
}

Pad::Pad(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(2, 4);
  request.allow_attributes({"padding"});
  Shape shape = inputs_[0].shape;
  const JsonPlace padding = request.required_attribute("padding");
  const auto items = padding.items();
  if (items.size() + 1 != shape.size())
    padding.fail("has " + std::to_string(items.size()) + " elements, expected " + std::to_string(shape.size() - 1) +
                 ": one for each axis but the sample");
  before = {0};
  for (size_t i = 0; i < items.size(); ++i) {
    const auto both = items[i].items();
    if (both.size() != 2) items[i].fail("has " + std::to_string(both.size()) + " elements, expected 2 (before, after)");
    before.push_back(both[0].as_integer(0, 1 << 16));
    shape[i + 1] += before.back() + both[1].as_integer(0, 1 << 16);
  }
  outputs_ = {{"", shape}};
  dimensions_ = every_axis(shape);
}

Block Pad::input_block(int, const Block& part) const {
  Block block;
  bool empty = false;
  for (int axis = 0; axis < part.rank(); ++axis) {
    block.append(intersect(Interval{part[axis].begin - before[axis], part[axis].end - before[axis]},
                           Interval{0, inputs_[0].shape[axis]}));
    empty = empty || block[axis].size() <= 0;
  }
  if (empty)
    for (int axis = 0; axis < part.rank(); ++axis) block[axis] = {0, 0};
  return block;
}

Block Pad::region(const Block& part) const {
  Block block = input_block(0, part);
  for (int axis = 0; axis < part.rank() && !block.empty(); ++axis) {
    block[axis].begin += before[axis];
    block[axis].end += before[axis];
  }
  return block;
}

std::string Pad::signature(const Block& part) const {
  std::string text = OperatorDefinition::signature(part) + " at=";  // where the part's first element lies in the input
  for (int axis = 1; axis < part.rank(); ++axis)
    text += (axis > 1 ? "," : "") + std::to_string(std::max<int64_t>(0, before[axis] - part[axis].begin));
  return text;
}

Transpose::Transpose(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 3, 4);
  request.allow_attributes({"axes"});
  const Shape& shape = inputs_[0].shape;
  const JsonPlace place = request.required_attribute("axes");
  axes = {0};
  Vector<bool> seen(shape.size(), false);
  for (const JsonPlace& item : place.items()) {
    axes.push_back(static_cast<int>(item.as_integer(1, static_cast<int64_t>(shape.size()) - 1)));
    if (seen[axes.back()]) item.fail("axis " + std::to_string(axes.back()) + " comes twice");
    seen[axes.back()] = true;
  }
  if (axes.size() != shape.size())
    place.fail("has " + std::to_string(axes.size() - 1) + " elements, expected " + std::to_string(shape.size() - 1) +
               ": every axis but the sample");
  Shape output;
  for (int axis : axes) output.push_back(shape[axis]);
  outputs_ = {{"", output, inputs_[0].type}};
  dimensions_ = every_axis(output);
}

Block Transpose::input_block(int, const Block& part) const {
  Block block(inputs_[0].shape);
  for (int axis = 0; axis < part.rank(); ++axis) block[axes[axis]] = part[axis];
  return block;
}

std::string Transpose::attribute_text() const {
  std::string text = "axes=";
  for (size_t i = 1; i < axes.size(); ++i) text += (i > 1 ? "," : "") + std::to_string(axes[i]);
  return text;
}

Reshape::Reshape(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 1, Block::max_rank);
  request.allow_attributes({"shape"});
  Shape shape{inputs_[0].shape[0]};
  const JsonPlace place = request.required_attribute("shape");
  const auto items = place.items();
  if (items.size() > 3) place.fail("has " + std::to_string(items.size()) + " elements, expected at most 3");
  double elements = static_cast<double>(shape[0]);
  for (const JsonPlace& item : items) {
    shape.push_back(item.as_integer(1, int64_t{1} << 32));
    elements *= static_cast<double>(shape.back());
  }
  if (elements != static_cast<double>(volume(inputs_[0].shape)))
    place.fail("a sample would not have the input's number of elements: its shape is " + to_string(inputs_[0].shape));
  outputs_ = {{"", shape, inputs_[0].type}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]}};
}

std::unique_ptr<OperatorDefinition> make_concat(const OperatorRequest& request) {
  return std::make_unique<Concat>(request);
}
std::unique_ptr<OperatorDefinition> make_flatten(const OperatorRequest& request) {
  return std::make_unique<Flatten>(request);
}

std::unique_ptr<OperatorDefinition> make_stack(const OperatorRequest& request) {
  return std::make_unique<Stack>(request);
}
std::unique_ptr<OperatorDefinition> make_slice(const OperatorRequest& request) {
  return std::make_unique<Slice>(request);
}
std::unique_ptr<OperatorDefinition> make_pad(const OperatorRequest& request) { return std::make_unique<Pad>(request); }
std::unique_ptr<OperatorDefinition> make_transpose(const OperatorRequest& request) {
  return std::make_unique<Transpose>(request);
}
std::unique_ptr<OperatorDefinition> make_reshape(const OperatorRequest& request) {
  return std::make_unique<Reshape>(request);
}

}  // namespace ff
