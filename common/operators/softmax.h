#pragma once

#include "common/operators/operator.h"

namespace ff {

// Over the last axis of [batch, classes] or [batch, length, classes]; the classes are not split.
class Softmax : public OperatorDefinition {
 public:
  explicit Softmax(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  bool backward_reads_input(int) const override { return false; }
  bool backward_reads_output() const override { return true; }
  Work forward_work(const Block& part) const override;

  int64_t classes;
};

// logits [batch, classes] or [batch, length, classes] and labels (i32) [batch] or [batch, length] ->
//   "loss"    [batch] or [batch, length]: -log softmax(logits)[label]
//   "correct" the same shape: 1 where the label has the largest logit (the first one, of equals), else 0.
// The training loss is the mean over all elements of "loss", times `weight`, summed over all loss operators of the
// graph.
class SoftmaxCrossEntropy : public OperatorDefinition {
 public:
  explicit SoftmaxCrossEntropy(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  bool is_loss() const override { return true; }
  double loss_weight() const override { return weight; }
  int64_t index_limit(int) const override { return classes; }
  int64_t workspace_bytes(const Block& part) const override { return part.volume() * classes * element_bytes; }
  Work forward_work(const Block& part) const override;

  int64_t classes;
  double weight;
};

}  // namespace ff
