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

// Scores' keys, context next to query, weights; and their gradients.
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
  request.expect_one_input(3, 3);
  request.allow_attributes(
      {"heads", "key_value_heads", "head_channels", "causal", "rotary_base", "rotary_channels", "bias"});
  const Shape& shape = inputs_[0].shape;
  length = shape[1];
  channels = shape[2];
  heads = request.required_attribute("heads").as_integer(1, int64_t{1} << 24);
  if (const auto given = request.attribute("head_channels")) {
    head_channels = given->as_integer(1, int64_t{1} << 24);
  } else {
    if (channels % heads != 0)
      request.required_attribute("heads").fail("found " + std::to_string(heads) + ", expected a divisor of " +
                                               std::to_string(channels) + " channels, or \"head_channels\"");
    head_channels = channels / heads;
  }
  key_value_heads = request.integer("key_value_heads", heads, 1, int64_t{1} << 24);
  if (heads % key_value_heads != 0)
    request.required_attribute("key_value_heads")
        .fail("found " + std::to_string(key_value_heads) + ", expected a divisor of " + std::to_string(heads) +
              " heads");
  group = heads / key_value_heads;
  causal = request.flag("causal", false);
  bias = request.flag("bias", true);
  rotary_base = request.number("rotary_base", 0, 1, 1e12);
  read_rotary_channels(request);
  const double bound = std::sqrt(3.0 / static_cast<double>(channels));
  const int64_t query_channels = heads * head_channels, key_value_channels = key_value_heads * head_channels;
  outputs_ = {{"", {shape[0], length, query_channels}}};
  if (group == 1) {
    parameters_ = {{"weight", {3, query_channels, channels}, bound}};
    if (bias) parameters_.push_back({"bias", {3, query_channels}});
  } else {
    parameters_ = {{"query", {query_channels, channels}, bound},
                   {"key_value", {2, key_value_channels, channels}, bound}};
    if (bias) {
      parameters_.push_back({"query_bias", {query_channels}});
      parameters_.push_back({"key_value_bias", {2, key_value_channels}});
    }
  }
  dimensions_ = {{"sample", DimensionKind::sample, shape[0]},
                 {"length", DimensionKind::attribute, length},
                 {"head", DimensionKind::parameter, key_value_heads}};
}

void MultiHeadAttention::read_rotary_channels(const OperatorRequest& request) {
  const auto given = request.attribute("rotary_channels");
  if (rotary_base == 0) {
    if (given) given->fail("needs \"rotary_base\", the base of the positions' angles");
    return;
  }
  if (given) {
    rotary_channels = given->as_integer(1, int64_t{1} << 24);
    if (rotary_channels % 2 != 0 || rotary_channels > head_channels)
      given->fail("found " + std::to_string(rotary_channels) + ", expected an even number up to " +
                  std::to_string(head_channels) + ", the channels of each of " + std::to_string(heads) + " heads");
    return;
  }
  if (head_channels % 2 != 0)
    request.required_attribute("rotary_base")
        .fail("turns pairs of channels, but each of " + std::to_string(heads) + " heads has " +
              std::to_string(head_channels) + " channels; \"rotary_channels\" turns fewer");
  rotary_channels = head_channels;
}

MultiHeadAttention::Projected MultiHeadAttention::projected(const Block& part) const {
  Projected result;
  result.samples = part[0].size();
  const Interval keys = key_positions(part);
  result.first_query = part[1].begin - keys.begin;
  result.queries = part[1].size();
  result.positions = keys.size();
  result.key_width = part[2].size() * head_channels;
  result.query_width = group * result.key_width;
  result.weights = group == 1 ? 1 : 2;
  if (group == 1 && result.queries == result.positions) {
    result.keys = result.query_width;
    result.query_stride = result.key_stride = 3 * result.query_width;
    result.matrices = {{0, 3 * result.query_width, 0, 0, 0, result.positions}};
    return result;
  }
  result.keys = result.query_rows() * result.query_width;
  result.query_stride = result.query_width;
  result.key_stride = 2 * result.key_width;
  const int64_t key_row = group == 1 ? result.query_width : 0;  // queries come first in a weight of all three
  result.matrices = {{result.keys, result.key_stride, result.weights - 1, key_row, 0, result.positions},
                     {0, result.query_width, 0, 0, result.first_query, result.queries}};
  return result;
}

int64_t MultiHeadAttention::scores(const Block& part) const {
  const Interval queries = part[1];
  const bool masked = causal && !exchanges_keys_;
  const int64_t of_head = masked ? (queries.end + queries.begin) * queries.size() : queries.size() * length;
  return part[0].size() * part[2].size() * group * of_head;
}

int64_t MultiHeadAttention::exchanged_bytes(const Block& part) const {
  if (!exchanges_keys_ || part[1].size() == length) return 0;
  return part[0].size() * length * 2 * part[2].size() * head_channels * activation_bytes();
}

// A part's own of what is exchanged. The reduction of statistics is costed as an all-reduce, a reduce-scatter and an
// all-gather of so many bytes: forward has the half of that.
int64_t MultiHeadAttention::statistics_bytes(const Block& part, bool backward) const {
  return exchanged_bytes(part) * part[1].size() / length / (backward ? 1 : 2);
}

Block MultiHeadAttention::output_block(int, const Block& part) const {
  const int64_t width = group * head_channels;  // of the queries that one head of keys and values serves
  return {part[0], part[1], {part[2].begin * width, part[2].end * width}};
}

Block MultiHeadAttention::input_block(int, const Block& part) const {
  return {part[0], key_positions(part), {0, channels}};
}

Block MultiHeadAttention::parameter_block(int parameter, const Block& part) const {
  Block block(parameters_[parameter].shape);
  const bool query = group > 1 && parameter % 2 == 0;  // else of keys and values, or of all three
  const int64_t width = query ? group * head_channels : head_channels;
  block[query ? 0 : 1] = {part[2].begin * width, part[2].end * width};
  return block;
}

std::string MultiHeadAttention::attribute_text() const {
  std::string text = "head_channels=" + std::to_string(head_channels);
  if (group > 1) text += " group=" + std::to_string(group);
  if (causal) text += " causal";
  if (rotary()) text += " rotary";
  if (rotary() && rotary_channels < head_channels) text += "=" + std::to_string(rotary_channels);
  if (!bias) text += " no_bias";
  return text;
}

// Queries, keys, values and their gradients; a logarithm for each query and head; a tile's probabilities and their
// gradients, which GPUs have in shared memory; cosines and sines of all positions.
int64_t MultiHeadAttention::workspace_bytes(const Block& part) const {
  const int64_t positions = keys_of(part);
  return (2 * projected(part).size() + part.volume() * group + 2 * tile_queries(part) * positions +
          positions * rotary_channels) *
         element_bytes;
}

int64_t MultiHeadAttention::turned(const Projected& widths) const {
  return (widths.query_rows() * widths.query_width + widths.key_rows() * widths.key_width) / head_channels *
         rotary_channels;
}

Work MultiHeadAttention::forward_work(const Block& part) const {
  const Projected widths = projected(part);
  const int64_t turned = this->turned(widths);
  const double products = 2.0 * static_cast<double>(widths.size() * channels + 2 * scores(part) * head_channels);
  // Queries, keys and values are written and read. Rotation takes two products and a sum for each channel, which is
  // read and written.
  return {products + 3.0 * static_cast<double>(turned),
          touched_bytes(part) + 2.0 * static_cast<double>((widths.size() + turned) * activation_bytes())};
}

// Twice the forward pass, and the scores once more.
Work MultiHeadAttention::backward_work(const Block& part, bool) const {
  const Work forward = forward_work(part);
  return {2 * forward.flops + 2.0 * static_cast<double>(scores(part) * head_channels), 2 * forward.bytes};
}

AttentionWork MultiHeadAttention::attention_work(const Block& part, bool backward) const {
  const double product = 2.0 * static_cast<double>(scores(part) * head_channels);
  return {(backward ? 5 : 2) * product, keys_of(part), head_channels, causal};
}

std::unique_ptr<OperatorDefinition> make_attention(const OperatorRequest& request) {
  return std::make_unique<Attention>(request);
}
std::unique_ptr<OperatorDefinition> make_multi_head_attention(const OperatorRequest& request) {
  return std::make_unique<MultiHeadAttention>(request);
}

}  // namespace ff
