#include "common/operators/normalization.h"

#include <sstream>

#include "common/operators/families.h"

namespace ff {

LocalResponseNormalization::LocalResponseNormalization(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 4, 4);
  request.expect_type(0, DataType::f32);
  request.allow_attributes({"size", "alpha", "beta", "bias"});
  const Shape& shape = inputs_[0].shape;
  channels = shape[1];
  size = request.integer("size", 5, 1, 1 << 16);
  if (size % 2 == 0)
    request.required_attribute("size").fail("found " + std::to_string(size) + ", expected an odd number of channels");
  alpha = request.number("alpha", 1e-4, 0, 1e6);
  beta = request.number("beta", 0.75, 0, 100);
  bias = request.number("bias", 2, 1e-6, 1e6);
  outputs_ = {{"", shape}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]},
                 {"height", DimensionKind::attribute, shape[2]},
                 {"width", DimensionKind::attribute, shape[3]}};
}

Block LocalResponseNormalization::output_block(int, const Block& part) const {
  return {part[0], {0, channels}, part[1], part[2]};
}

Block LocalResponseNormalization::input_block(int, const Block& part) const { return output_block(0, part); }

std::string LocalResponseNormalization::attribute_text() const {
  std::ostringstream text;
  text << "size=" << size << " alpha=" << alpha << " beta=" << beta << " bias=" << bias;
  return text.str();
}

Work LocalResponseNormalization::forward_work(const Block& part) const {
  return {static_cast<double>(output_block(0, part).volume() * (2 * size + 20)), touched_bytes(part)};
}

Work LocalResponseNormalization::backward_work(const Block& part, bool) const {
  return {static_cast<double>(output_block(0, part).volume() * (4 * size + 40)), 2 * touched_bytes(part)};
}

BatchNorm::BatchNorm(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 2, 4);
  request.expect_type(0, DataType::f32);
  request.allow_attributes({"epsilon", "momentum", "statistics", "activation"});
  const Shape& shape = inputs_[0].shape;
  channel_axis = shape.size() == 3 ? 2 : 1;
  const int64_t channels = shape[channel_axis];
  elements_per_channel = volume(shape) / channels;
  if (elements_per_channel < 2)
    request.place.at("inputs").items()[0].fail("has shape " + to_string(shape) +
                                               " with one element a channel, batch_norm expects at least 2");
  epsilon = request.number("epsilon", 1e-5, 1e-12, 1);
  momentum = request.number("momentum", 0.1, 0, 1);
  global = request.choice("statistics", "global", {"global", "local"}) == "global";
  relu = request.choice("activation", "none", {"none", "relu"}) == "relu";
  outputs_ = {{"", shape}};
  parameters_ = {{"weight", {channels}, 0, 1},
                 {"bias", {channels}},
                 {"running_mean", {channels}, 0, 0, false},
                 {"running_variance", {channels}, 0, 1, false}};
  const Vector<std::string> names = axis_names(shape.size());
  for (int axis = 0; axis < static_cast<int>(shape.size()); ++axis)
    dimensions_.push_back({names[axis],
                           axis == 0              ? DimensionKind::sample
                           : axis == channel_axis ? DimensionKind::parameter
                                                  : DimensionKind::attribute,
                           shape[axis]});
}

std::string BatchNorm::attribute_text() const {
  return std::string(global ? "global" : "local") + (relu ? " relu" : "");
}

Work BatchNorm::statistics_work(const Block& part, bool backward) const {
  const double elements = static_cast<double>(part.volume());
  return {(backward ? 4 : 3) * elements, (backward ? (relu ? 3 : 2) : 1) * elements * element_bytes};
}

Work BatchNorm::forward_work(const Block& part) const {
  const double elements = static_cast<double>(part.volume());
  const Work statistics = global ? Work{} : statistics_work(part, false);
  return {2 * elements + statistics.flops, 2 * elements * element_bytes + statistics.bytes};
}

Work BatchNorm::backward_work(const Block& part, bool) const {
  const double elements = static_cast<double>(part.volume());
  const Work statistics = global ? Work{} : statistics_work(part, true);
  return {5 * elements + statistics.flops, (relu ? 4 : 3) * elements * element_bytes + statistics.bytes};
}

std::unique_ptr<OperatorDefinition> make_batch_norm(const OperatorRequest& request) {
  return std::make_unique<BatchNorm>(request);
}

LayerNorm::LayerNorm(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 2, 3);
  request.expect_type(0, DataType::f32);
  request.allow_attributes({"epsilon"});
  const Shape& shape = inputs_[0].shape;
  features = shape.back();
  epsilon = request.number("epsilon", 1e-5, 1e-12, 1);
  outputs_ = {{"", shape}};
  parameters_ = {{"weight", {features}, 0, 1}, {"bias", {features}}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]}};
  if (shape.size() == 3) dimensions_.push_back({"length", DimensionKind::attribute, shape[1]});
}

Block LayerNorm::output_block(int, const Block& part) const {
  Block block = part;
  block.append({0, features});
  return block;
}

Block LayerNorm::input_block(int, const Block& part) const { return output_block(0, part); }

std::string LayerNorm::attribute_text() const {
  std::ostringstream text;
  text << "epsilon=" << epsilon;
  return text.str();
}

Work LayerNorm::forward_work(const Block& part) const {
  return {8.0 * static_cast<double>(part.volume() * features), touched_bytes(part)};
}

std::unique_ptr<OperatorDefinition> make_layer_norm(const OperatorRequest& request) {
  return std::make_unique<LayerNorm>(request);
}

std::unique_ptr<OperatorDefinition> make_local_response_normalization(const OperatorRequest& request) {
  return std::make_unique<LocalResponseNormalization>(request);
}

}  // namespace ff
