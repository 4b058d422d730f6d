#include "common/operators/experts.h"

#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {

Routed::Routed(const OperatorRequest& request, size_t inputs, size_t slot_input)
    : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(inputs);
  request.allow_attributes({});
  for (size_t i = 0; i < inputs; ++i) {
    request.expect_rank(i, 3, 3);
    request.expect_type(i, i == slot_input ? DataType::i32 : DataType::f32);
  }
  const TensorSpec& slots = request.inputs[slot_input];
  if (!slots.routing)
    request.place.at("inputs").items()[slot_input].fail("is no output of a top_k_gating, which " + type_ +
                                                        " takes slots from");
  routing = *slots.routing;
  batch_ = slots.shape[0];
  length_ = slots.shape[1];
  top_k = slots.shape[2];
  group_tokens = routing.group_samples * length_;
}

std::string Routed::attribute_text() const {
  return "capacity=" + std::to_string(routing.capacity) + " group_samples=" + std::to_string(routing.group_samples);
}

Block Routed::token_block(const Block& part, int64_t choices) const { return token_block(part, Interval{0, choices}); }

Block Routed::token_block(const Block& part, Interval channels) const {
  return {{part[0].begin * routing.group_samples, part[0].end * routing.group_samples}, {0, length_}, channels};
}

Block Routed::expert_block(const Block& part) const {
  return {experts(part), {part[0].begin * routing.capacity, part[0].end * routing.capacity}, part[1]};
}

void Routed::split_by_group(int64_t channels) {
  dimensions_ = {{"sample", DimensionKind::sample, batch_ / routing.group_samples},
                 {"channel", DimensionKind::attribute, channels}};
}

Dispatch::Dispatch(const OperatorRequest& request) : Routed(request, 2, 1) {
  const Shape& x = inputs_[0].shape;
  if (x[0] != batch_ || x[1] != length_)
    request.place.at("inputs").items()[1].fail("has slots of shape " + to_string(inputs_[1].shape) +
                                               ", which are none of tokens of shape " + to_string(x));
  outputs_ = {{"", {routing.experts, batch_ / routing.group_samples * routing.capacity, x[2]}}};
  split_by_group(x[2]);
}

Work Dispatch::backward_work(const Block& part, bool) const {
  return {static_cast<double>(tokens(part) * top_k * part[1].size()), touched_bytes(part)};
}

Combine::Combine(const OperatorRequest& request) : Routed(request, 3, 1) {
  const Shape expected{routing.experts, batch_ / routing.group_samples * routing.capacity, inputs_[0].shape[2]};
  const auto places = request.place.at("inputs").items();
  if (inputs_[0].shape != expected)
    places[0].fail("has shape " + to_string(inputs_[0].shape) + ", expected " + to_string(expected) + ": rows of " +
                   std::to_string(routing.experts) + " experts with " + std::to_string(routing.capacity) +
                   " places for each group");
  if (inputs_[2].shape != inputs_[1].shape)
    places[2].fail("has shape " + to_string(inputs_[2].shape) + ", expected a weight for each slot of " +
                   to_string(inputs_[1].shape));
  outputs_ = {{"", {batch_, length_, expected[2]}}};
  split_by_group(expected[2]);
  dimensions_.push_back({"expert", DimensionKind::reduction, routing.experts});
}

double Combine::moved_elements(const Block& part) const {
  return static_cast<double>(tokens(part) * top_k * part[1].size()) * static_cast<double>(part[2].size()) /
         static_cast<double>(routing.experts);
}

Work Combine::forward_work(const Block& part) const { return {2 * moved_elements(part), touched_bytes(part)}; }

Work Combine::backward_work(const Block& part, bool) const {  // rows' gradients are cleared, then written
  const double passes = weighted_by_experts ? 1 : 3;
  return {passes * moved_elements(part), passes * touched_bytes(part)};
}

ExpertLinear::ExpertLinear(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(3, 3);
  request.allow_attributes({"out_features", "bias", "activation"});
  const Shape& input = inputs_[0].shape;
  in_features = input[2];
  out_features = request.required_attribute("out_features").as_integer(1, int64_t{1} << 28);
  bias = request.flag("bias", true);
  relu = request.choice("activation", "none", {"none", "relu"}) == "relu";
  outputs_ = {{"", {input[0], input[1], out_features}}};
  parameters_ = {{"weight",
                  {input[0], out_features, in_features},
                  std::sqrt((relu ? 6.0 : 3.0) / static_cast<double>(in_features))}};  // as linear
  if (bias) parameters_.push_back({"bias", {input[0], out_features}});
  dimensions_ = {{"sample", DimensionKind::sample, input[1]},
                 {"expert", DimensionKind::parameter, input[0]},
                 {"channel", DimensionKind::parameter, out_features}};
  if (!relu) dimensions_.push_back({"in_channel", DimensionKind::reduction, in_features});
}

Block ExpertLinear::parameter_block(int parameter, const Block& part) const {
  if (parameter == 0) return {part[1], part[2], in_channels(part)};
  return {part[1], adds_bias(part) ? part[2] : Interval{part[2].begin, part[2].begin}};
}

std::string ExpertLinear::signature(const Block& part) const {
  return OperatorDefinition::signature(part) + (bias && !adds_bias(part) ? " without bias" : "");
}

std::string ExpertLinear::attribute_text() const {
  return std::string(bias ? "bias" : "no-bias") + (relu ? " relu" : "");
}

Work ExpertLinear::forward_work(const Block& part) const {
  return {2.0 * static_cast<double>(output_block(0, part).volume() * in_channels(part).size()), touched_bytes(part)};
}

Work ExpertLinear::backward_work(const Block& part, bool input_gradients) const {
  const Work forward = forward_work(part);
  return {forward.flops * (input_gradients ? 2 : 1), forward.bytes * (input_gradients ? 2 : 1)};
}

std::unique_ptr<OperatorDefinition> make_dispatch(const OperatorRequest& request) {
  return std::make_unique<Dispatch>(request);
}
std::unique_ptr<OperatorDefinition> make_combine(const OperatorRequest& request) {
  return std::make_unique<Combine>(request);
}
std::unique_ptr<OperatorDefinition> make_expert_linear(const OperatorRequest& request) {
  return std::make_unique<ExpertLinear>(request);
}

}  // namespace ff
