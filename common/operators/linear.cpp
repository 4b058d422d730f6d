#include "common/operators/linear.h"

#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {

Linear::Linear(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(2, 3);
  request.allow_attributes({"out_features", "bias", "activation"});
  Shape output = inputs_[0].shape;
  in_features = output.back();
  out_features = request.required_attribute("out_features").as_integer(1, int64_t{1} << 28);
  bias = request.flag("bias", true);
  relu = request.choice("activation", "none", {"none", "relu"}) == "relu";
  output.back() = out_features;
  outputs_ = {{"", output}};
  // Uniform with variance 2 / fan_in in front of a relu (He et al. 2015, arXiv 1502.01852), else 1 / fan_in (LeCun et
  // al. 1998).
  parameters_ = {
      {"weight", {out_features, in_features}, std::sqrt((relu ? 6.0 : 3.0) / static_cast<double>(in_features))}};
  if (bias) parameters_.push_back({"bias", {out_features}});
  dimensions_ = every_axis(output);
  dimensions_.back().kind = DimensionKind::parameter;
  if (!relu) dimensions_.push_back({"in_channel", DimensionKind::reduction, in_features});
}

Block Linear::output_block(int, const Block& part) const {
  Block block;
  for (int axis = 0; axis < outputs_[0].shape.count(); ++axis) block.append(part[axis]);
  return block;
}

Block Linear::input_block(int, const Block& part) const {
  Block block = output_block(0, part);
  block[block.rank() - 1] = in_channels(part);
  return block;
}

Block Linear::parameter_block(int parameter, const Block& part) const {
  const Interval channels = part[outputs_[0].shape.count() - 1];
  if (parameter == 0) return {channels, in_channels(part)};
  return {adds_bias(part) ? channels : Interval{channels.begin, channels.begin}};
}

std::string Linear::attribute_text() const { return std::string(bias ? "bias" : "no-bias") + (relu ? " relu" : ""); }

std::string Linear::signature(const Block& part) const {
  return OperatorDefinition::signature(part) + (bias && !adds_bias(part) ? " without bias" : "");
}

Work Linear::forward_work(const Block& part) const {
  return {2.0 * static_cast<double>(output_block(0, part).volume() * in_channels(part).size()), touched_bytes(part)};
}

Work Linear::backward_work(const Block& part, bool input_gradients) const {
  const Work forward = forward_work(part);
  return {forward.flops * (input_gradients ? 2 : 1), forward.bytes * (input_gradients ? 2 : 1)};
}

std::unique_ptr<OperatorDefinition> make_linear(const OperatorRequest& request) {
  return std::make_unique<Linear>(request);
}

}  // namespace ff
