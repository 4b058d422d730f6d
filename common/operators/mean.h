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

}  // namespace ff
