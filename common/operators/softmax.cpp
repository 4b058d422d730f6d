#include "common/operators/softmax.h"

#include <limits>

#include "common/operators/operator_list.h"

namespace ff {
namespace {

Block with_classes(const Block& part, int64_t classes) {
  Block block = part;
  block.append({0, classes});
  return block;
}

}  // namespace

Softmax::Softmax(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(2, 3);
  request.allow_attributes({});
  classes = inputs_[0].shape.back();
  outputs_ = {{"", inputs_[0].shape}};
  dimensions_ = every_axis(inputs_[0].shape);
  dimensions_.pop_back();
}

Block Softmax::output_block(int, const Block& part) const { return with_classes(part, classes); }
Block Softmax::input_block(int, const Block& part) const { return with_classes(part, classes); }
Work Softmax::forward_work(const Block& part) const {
  return {20.0 * static_cast<double>(part.volume() * classes), touched_bytes(part)};
}

SoftmaxCrossEntropy::SoftmaxCrossEntropy(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(2);
  request.expect_rank(0, 2, 3);
  request.expect_type(0, DataType::f32);
  request.expect_type(1, DataType::i32);
  request.allow_attributes({"weight", "ignored_label", "mean_over"});
  const Shape& logits = inputs_[0].shape;
  classes = logits.back();
  const Shape labels(logits.begin(), logits.end() - 1);
  if (inputs_[1].shape != labels)
    request.place.at("inputs").items()[1].fail("has shape " + to_string(inputs_[1].shape) + ", logits of shape " +
                                               to_string(logits) + " need labels of shape " + to_string(labels));
  weight = request.number("weight", 1, 0, 1e9);
  constexpr int64_t least = std::numeric_limits<int32_t>::min(), most = std::numeric_limits<int32_t>::max();
  if (request.attribute("ignored_label"))
    ignored_label = static_cast<int32_t>(request.integer("ignored_label", 0, least, most));
  else if (const auto place = request.attribute("mean_over")) place->fail("is for losses with an ignored_label");
  mean_over_counted = request.choice("mean_over", "counted", {"counted", "all"}) == "counted";
  outputs_ = {{"loss", labels}, {"correct", labels}};
  dimensions_ = every_axis(logits);
  dimensions_.back() = {"class", DimensionKind::reduction, classes};
}

Block SoftmaxCrossEntropy::rows(const Block& part) {
  Block rows;
  for (int axis = 0; axis + 1 < part.rank(); ++axis) rows.append(part[axis]);
  return rows;
}

Block SoftmaxCrossEntropy::output_block(int, const Block& part) const {
  Block block = rows(part);
  if (own_classes(part).begin > 0) block[0].end = block[0].begin;
  return block;
}

Block SoftmaxCrossEntropy::input_block(int input, const Block& part) const {
  if (input == 0) return part;
  return counts_rows() ? Block(inputs_[1].shape) : rows(part);
}

LabelPlaces::LabelPlaces(const SoftmaxCrossEntropy& loss, const Block& part) {
  const Block own = SoftmaxCrossEntropy::rows(part), read = loss.input_block(1, part);
  own_length = own.rank() > 1 ? own[1].size() : 1;
  length = read.rank() > 1 ? read[1].size() : 1;
  first = (own[0].begin - read[0].begin) * length + (own.rank() > 1 ? own[1].begin - read[1].begin : 0);
  all = read.volume();
  ignores = loss.ignored_label.has_value();
  ignored = loss.ignored_label.value_or(0);
  counts = loss.counts_rows();
}

std::string SoftmaxCrossEntropy::signature(const Block& part) const {
  return OperatorDefinition::signature(part) +
         (splits_classes(part) ? " of " + std::to_string(classes) + " classes" : "");
}

int64_t SoftmaxCrossEntropy::statistics_bytes(const Block& part, bool backward) const {
  return backward || !splits_classes(part) ? 0 : cross_entropy_statistics * rows(part).volume() * element_bytes;
}

// The probabilities; of some classes also the largest of their logits and the sum; the factor of rows that count.
int64_t SoftmaxCrossEntropy::workspace_bytes(const Block& part) const {
  return (part.volume() + (splits_classes(part) ? 2 * rows(part).volume() : 0) + (counts_rows() ? 1 : 0)) *
         element_bytes;
}

Work SoftmaxCrossEntropy::statistics_work(const Block& part, bool backward) const {
  if (backward || !splits_classes(part)) return {};
  const double logits = static_cast<double>(part.volume());
  return {20.0 * logits, 2.0 * logits * static_cast<double>(activation_bytes())};
}

Work SoftmaxCrossEntropy::forward_work(const Block& part) const {
  const double logits = static_cast<double>(part.volume());
  if (!splits_classes(part)) return {20.0 * logits, touched_bytes(part)};
  // What the statistics task has left is scaled.
  return {logits, 2.0 * logits * static_cast<double>(activation_bytes())};
}

std::unique_ptr<OperatorDefinition> make_softmax(const OperatorRequest& request) {
  return std::make_unique<Softmax>(request);
}
std::unique_ptr<OperatorDefinition> make_softmax_cross_entropy(const OperatorRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy>(request);
}

}  // namespace ff
