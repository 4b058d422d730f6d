#include "common/operators/lstm.h"

#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {

Lstm::Lstm(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  if (inputs_.size() != 1) request.expect_inputs(3);
  request.allow_attributes({"hidden"});
  hidden = request.required_attribute("hidden").as_integer(1, int64_t{1} << 24);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    request.expect_rank(i, 2, 2);
    request.expect_type(i, DataType::f32);
    const Shape expected{inputs_[0].shape[0], hidden};
    if (i > 0 && inputs_[i].shape != expected)
      request.place.at("inputs").items()[i].fail("has shape " + to_string(inputs_[i].shape) +
                                                 ", the state of this lstm has shape " + to_string(expected));
  }
  in_features = inputs_[0].shape[1];
  const int64_t batch = inputs_[0].shape[0];
  outputs_ = {{"h", {batch, hidden}}, {"c", {batch, hidden}}};
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));  // as torch.nn.LSTM
  parameters_ = {
      {"weight", {4, hidden, in_features}, bound}, {"recurrent", {4, hidden, hidden}, bound}, {"bias", {4, hidden}}};
  dimensions_ = {{"sample", DimensionKind::sample, batch}, {"hidden", DimensionKind::parameter, hidden}};
}

Block Lstm::input_block(int input, const Block& part) const {
  if (input == 2) return part;
  return {part[0], {0, input == 0 ? in_features : hidden}};
}

Block Lstm::parameter_block(int parameter, const Block& part) const {
  Block block(parameters_[parameter].shape);
  block[1] = part[1];
  return block;
}

Work Lstm::forward_work(const Block& part) const {
  const double inputs = static_cast<double>(in_features + (first_step() ? 0 : hidden));
  return {static_cast<double>(part.volume()) * (8 * inputs + 40), touched_bytes(part)};
}

Work Lstm::backward_work(const Block& part, bool) const {
  const Work forward = forward_work(part);
  return {2 * forward.flops, 2 * forward.bytes};
}

std::unique_ptr<OperatorDefinition> make_lstm(const OperatorRequest& request) {
  return std::make_unique<Lstm>(request);
}

}  // namespace ff
