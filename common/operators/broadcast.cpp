#include "common/operators/broadcast.h"

#include <algorithm>

#include "common/operators/operator_list.h"

namespace ff {

Broadcast::Broadcast(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  product = type_ == "broadcast_mul";
  request.expect_inputs_between(1, 2);
  parameter = inputs_.size() == 1;
  request.allow_attributes({"axes", "trained", "initial"});
  for (size_t i = 0; i < inputs_.size(); ++i) request.expect_type(i, DataType::f32);
  request.expect_rank(0, 2, 4);
  const Shape& shape = inputs_[0].shape;
  const JsonPlace place = request.required_attribute("axes");
  Shape expected;
  for (const JsonPlace& item : place.items()) {
    axes.push_back(static_cast<int>(item.as_integer(parameter ? 1 : 0, static_cast<int64_t>(shape.size()) - 1)));
    if (axes.size() > 1 && axes[axes.count() - 2] >= axes.back())
      item.fail("axis " + std::to_string(axes.back()) + " does not come after the one before");
    expected.push_back(shape[axes.back()]);
  }
  if (axes.empty() || axes.size() == shape.size() || (!parameter && axes[0] != 0))
    place.fail(parameter ? "found " + place.value().dump() + ", expected some of the axes but the sample"
                         : "found " + place.value().dump() + ", expected 0, the sample, and some of the others");
  if (!parameter && inputs_[1].shape != expected)
    request.place.at("inputs").items()[1].fail("has shape " + to_string(inputs_[1].shape) + ", expected " +
                                               to_string(expected) + ": that of the first input's axes");
  for (const char* key : {"trained", "initial"})
    if (!parameter && request.attribute(key))
      request.attribute(key)->fail("goes with one input, where the second operand is a parameter");
  outputs_ = {{"", shape}};
  dimensions_ = every_axis(shape);
  if (!parameter) return;
  for (const int axis : axes) dimensions_[axis].kind = DimensionKind::parameter;
  const bool trained = request.flag("trained", true);
  parameters_ = {{"weight", expected, 0, request.number("initial", product ? 1 : 0, -1e30, 1e30), trained,
                  !trained && !request.attribute("initial")}};
}

Block Broadcast::spread_block(const Block& part) const {
  Block block;
  for (const int axis : axes) block.append(part[axis]);
  return block;
}

std::string Broadcast::attribute_text() const {
  std::string text = "axes=";
  for (size_t i = 0; i < axes.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(axes[i]);
  return text;
}

Broadcast::Layout Broadcast::layout(const Block& part) const {
  Layout layout;
  const int rank = part.rank();
  Array<int64_t, 4> strides{0, 0, 0, 0};  // by axis; the second operand has at most three and is row-major
  for (int i = axes.count() - 1; i >= 0; --i) {
    strides[axes[i]] = layout.partners;
    layout.partners *= part[axes[i]].size();
  }
  for (int position = 0; position < rank; ++position) {
    const int axis = stored_axis(rank, position);
    layout.sizes[4 - rank + position] = part[axis].size();
    layout.strides[4 - rank + position] = strides[axis];
    layout.elements *= part[axis].size();
  }
  return layout;
}

Prefix::Prefix(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(3, 3);
  request.allow_attributes({"rows"});
  const Shape& shape = inputs_[0].shape;
  rows = request.integer("rows", 1, 1, 1 << 20);
  outputs_ = {{"", {shape[0], rows + shape[1], shape[2]}}};
  parameters_ = {{"weight", {rows, shape[2]}, 0.03}};  // as position_embedding's
  dimensions_ = every_axis(outputs_[0].shape);
  dimensions_[2].kind = DimensionKind::parameter;
}

Block Prefix::input_block(int, const Block& part) const {
  const Interval read{std::max(part[1].begin, rows) - rows, part[1].end - rows};
  if (read.size() <= 0) return {{0, 0}, {0, 0}, {0, 0}};
  return {part[0], read, part[2]};
}

Block Prefix::parameter_block(int, const Block& part) const {
  const Interval own = intersect(part[1], Interval{0, rows});
  return {own.size() > 0 ? own : Interval{0, 0}, part[2]};
}

std::string Prefix::signature(const Block& part) const {
  return OperatorDefinition::signature(part) + " own=" + std::to_string(own_rows(part));
}

std::unique_ptr<OperatorDefinition> make_broadcast(const OperatorRequest& request) {
  return std::make_unique<Broadcast>(request);
}
std::unique_ptr<OperatorDefinition> make_prefix(const OperatorRequest& request) {
  return std::make_unique<Prefix>(request);
}

}  // namespace ff
