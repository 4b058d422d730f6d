#include "common/operators/softmax.h"

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
  request.expect_inputs(1);
  request.expect_rank(0, 2, 3);
  request.expect_type(0, DataType::f32);
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
  request.allow_attributes({"weight"});
  const Shape& logits = inputs_[0].shape;
  classes = logits.back();
  const Shape labels(logits.begin(), logits.end() - 1);
  if (inputs_[1].shape != labels)
    request.place.at("inputs").items()[1].fail("has shape " + to_string(inputs_[1].shape) + ", logits of shape " +
                                               to_string(logits) + " need labels of shape " + to_string(labels));
  weight = request.number("weight", 1, 0, 1e9);
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

Block SoftmaxCrossEntropy::input_block(int input, const Block& part) const { return input == 0 ? part : rows(part); }

std::string SoftmaxCrossEntropy::signature(const Block& part) const {
  return OperatorDefinition::signature(part) +
         (splits_classes(part) ? " of " + std::to_string(classes) + " classes" : "");
}

int64_t SoftmaxCrossEntropy::statistics_bytes(const Block& part, bool backward) const {
  return backward || !splits_classes(part) ? 0 : cross_entropy_statistics * rows(part).volume() * element_bytes;
}

// The probabilities; of some classes also the largest of their logits and the sum.
int64_t SoftmaxCrossEntropy::workspace_bytes(const Block& part) const {
  return (part.volume() + (splits_classes(part) ? 2 * rows(part).volume() : 0)) * element_bytes;
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
