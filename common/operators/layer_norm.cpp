#include "common/operators/layer_norm.h"

#include <sstream>

#include "common/operators/operator_list.h"

namespace ff {

RowNorm::RowNorm(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(2, 4);
  request.allow_attributes({"epsilon", "affine"});
  const Shape& shape = inputs_[0].shape;
  axis = shape.size() == 4 ? 1 : shape.count() - 1;
  features = shape[axis];
  affine = request.flag("affine", true);
  epsilon = request.number("epsilon", 1e-5, 1e-12, 1);
  outputs_ = {{"", shape}};
  dimensions_ = every_axis(shape, axis);
}

Block RowNorm::output_block(int, const Block& part) const {
  Block block;
  for (int a = 0, d = 0; a <= part.rank(); ++a) block.append(a == axis ? Interval{0, features} : part[d++]);
  return block;
}

Block RowNorm::input_block(int, const Block& part) const { return output_block(0, part); }

std::string RowNorm::attribute_text() const {
  std::ostringstream text;
  text << "epsilon=" << epsilon << (affine ? "" : " no-parameters");
  return text.str();
}

LayerNorm::LayerNorm(const OperatorRequest& request) : RowNorm(request) {
  if (affine) parameters_ = {{"weight", {features}, 0, 1}, {"bias", {features}}};
}

Work LayerNorm::forward_work(const Block& part) const {
  return {8.0 * static_cast<double>(part.volume() * features), touched_bytes(part)};
}

RmsNorm::RmsNorm(const OperatorRequest& request) : RowNorm(request) {
  if (affine) parameters_ = {{"weight", {features}, 0, 1}};
}

// A square, its addition, and two products an element.
Work RmsNorm::forward_work(const Block& part) const {
  return {4.0 * static_cast<double>(part.volume() * features), touched_bytes(part)};
}

std::unique_ptr<OperatorDefinition> make_layer_norm(const OperatorRequest& request) {
  return std::make_unique<LayerNorm>(request);
}
std::unique_ptr<OperatorDefinition> make_rms_norm(const OperatorRequest& request) {
  return std::make_unique<RmsNorm>(request);
}

}  // namespace ff
