#pragma once

#include "common/operators/operator.h"

namespace ff {

// Over all positions: [batch, length, channel] or [batch, channel, height, width] -> [batch, channel].
class Mean : public OperatorDefinition {
 public:
  explicit Mean(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  bool backward_reads_input(int) const override { return false; }
  Work forward_work(const Block& part) const override;

  int64_t positions;
};

// A tensor of losses, whatever they are of, with up to four axes -> "loss" of the same shape, its copy. The training
// loss has their mean over all elements, times `weight`. Elements stay where they are: all axes may be split.
class MeanLoss : public OperatorDefinition {
 public:
  explicit MeanLoss(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return part; }
  bool is_loss() const override { return true; }
  double loss_weight() const override { return weight; }
  bool backward_reads_input(int) const override { return false; }
  bool position_matters(int) const override { return false; }
  Work forward_work(const Block& part) const override { return {0, touched_bytes(part)}; }
  Work backward_work(const Block& part, bool input_gradients) const override;

  double weight;
};

}  // namespace ff
