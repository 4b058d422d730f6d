#include "common/operators/mean.h"

#include "common/operators/operator_list.h"

namespace ff {

Mean::Mean(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(3, 4);
  request.allow_attributes({});
  const Shape& shape = inputs_[0].shape;
  const bool image = shape.size() == 4;
  const int64_t channels = image ? shape[1] : shape[2];
  positions = image ? shape[2] * shape[3] : shape[1];
  outputs_ = {{"", {shape[0], channels}}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]}, {"channel", DimensionKind::attribute, channels}};
}

Block Mean::input_block(int, const Block& part) const {
  const Shape& shape = inputs_[0].shape;
  if (shape.size() == 4) return {part[0], part[1], {0, shape[2]}, {0, shape[3]}};
  return {part[0], {0, shape[1]}, part[1]};
}

Work Mean::forward_work(const Block& part) const {
  return {static_cast<double>(part.volume() * positions), touched_bytes(part)};
}

MeanLoss::MeanLoss(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(1, 4);
  request.allow_attributes({"weight"});
  weight = request.number("weight", 1, -1e12, 1e12);
  outputs_ = {{"loss", inputs_[0].shape}};
  dimensions_ = every_axis(inputs_[0].shape);
}

Work MeanLoss::backward_work(const Block& part, bool input_gradients) const {
  return {0, input_gradients ? touched_bytes(part) / 2 : 0};  // it writes one number everywhere
}

std::unique_ptr<OperatorDefinition> make_mean_loss(const OperatorRequest& request) {
  return std::make_unique<MeanLoss>(request);
}
std::unique_ptr<OperatorDefinition> make_mean(const OperatorRequest& request) {
  return std::make_unique<Mean>(request);
}

}  // namespace ff
