#include "common/operators/attention.h"

#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {

Attention::Attention(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(2);
  request.expect_rank(0, 2, 2);
  request.expect_rank(1, 3, 3);
  for (size_t i : {0u, 1u}) request.expect_type(i, DataType::f32);
  request.allow_attributes({"out_features"});
  out_features = request.required_attribute("out_features").as_integer(1, int64_t{1} << 24);
  const Shape &query = inputs_[0].shape, &states = inputs_[1].shape;
  if (states[0] != query[0])
    request.place.at("inputs").items()[1].fail("has " + std::to_string(states[0]) + " samples, the query has " +
                                               std::to_string(query[0]));
  features = query[1];
  length = states[1];
  channels = states[2];
  outputs_ = {{"", {query[0], out_features}}};
  // Uniform with variance 1 / fan in (LeCun et al. 1998).
  const auto bound = [](int64_t fan_in) { return std::sqrt(3.0 / static_cast<double>(fan_in)); };
  parameters_ = {{"score", {features, channels}, bound(features)},
                 {"combine", {out_features, channels + features}, bound(channels + features)}};
  dimensions_ = {{"sample", DimensionKind::sample, query[0]}, {"channel", DimensionKind::parameter, out_features}};
}

Block Attention::input_block(int input, const Block& part) const {
  if (input == 0) return {part[0], {0, features}};
  return {part[0], {0, length}, {0, channels}};
}

Block Attention::parameter_block(int parameter, const Block& part) const {
  Block block(parameters_[parameter].shape);
  if (parameter == 1) block[0] = part[1];
  return block;
}

// Scores' keys, context beside query, weights; and their gradients.
int64_t Attention::workspace_bytes(const Block& part) const {
  return part[0].size() * (2 * channels + 2 * (channels + features) + 2 * length + part[1].size()) * element_bytes;
}

Work Attention::forward_work(const Block& part) const {
  const double per_sample =
      2.0 * static_cast<double>(features * channels + 2 * length * channels + (channels + features) * part[1].size());
  return {static_cast<double>(part[0].size()) * per_sample, touched_bytes(part)};
}

Work Attention::backward_work(const Block& part, bool) const {
  const Work forward = forward_work(part);
  return {2 * forward.flops, 2 * forward.bytes};
}

MultiHeadAttention::MultiHeadAttention(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 3, 3);
  request.expect_type(0, DataType::f32);
  request.allow_attributes({"heads", "causal"});
  const Shape& shape = inputs_[0].shape;
  length = shape[1];
  channels = shape[2];
  heads = request.required_attribute("heads").as_integer(1, int64_t{1} << 24);
  if (channels % heads != 0)
    request.required_attribute("heads").fail("found " + std::to_string(heads) + ", expected a divisor of " +
                                             std::to_string(channels) + " channels");
  head_channels = channels / heads;
  causal = request.flag("causal", false);
  outputs_ = {{"", shape}};
  parameters_ = {{"weight", {3, channels, channels}, std::sqrt(3.0 / static_cast<double>(channels))},
                 {"bias", {3, channels}}};
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]}, {"head", DimensionKind::parameter, heads}};
}

Block MultiHeadAttention::output_block(int, const Block& part) const {
  return {part[0], {0, length}, {part[1].begin * head_channels, part[1].end * head_channels}};
}

Block MultiHeadAttention::input_block(int, const Block& part) const { return {part[0], {0, length}, {0, channels}}; }

Block MultiHeadAttention::parameter_block(int parameter, const Block& part) const {
  Block block(parameters_[parameter].shape);
  block[1] = {part[1].begin * head_channels, part[1].end * head_channels};
  return block;
}

std::string MultiHeadAttention::attribute_text() const {
  return "head_channels=" + std::to_string(head_channels) + (causal ? " causal" : "");
}

// Queries, keys, values and their gradients; weights of all positions, and one head's gradient of them.
int64_t MultiHeadAttention::workspace_bytes(const Block& part) const {
  const int64_t rows = part[0].size() * length, width = part[1].size() * head_channels;
  return (6 * rows * width + part.volume() * length * length + length * length) * element_bytes;
}

Work MultiHeadAttention::forward_work(const Block& part) const {
  const double rows = static_cast<double>(part[0].size() * length),
               width = static_cast<double>(part[1].size() * head_channels);
  return {2 * rows * width * static_cast<double>(3 * channels + 2 * length),
          touched_bytes(part) + 2.0 * static_cast<double>(part.volume() * length * length * element_bytes)};
}

Work MultiHeadAttention::backward_work(const Block& part, bool) const {
  const Work forward = forward_work(part);
  return {2 * forward.flops, 2 * forward.bytes};
}

std::unique_ptr<OperatorDefinition> make_attention(const OperatorRequest& request) {
  return std::make_unique<Attention>(request);
}
std::unique_ptr<OperatorDefinition> make_multi_head_attention(const OperatorRequest& request) {
  return std::make_unique<MultiHeadAttention>(request);
}

}  // namespace ff
