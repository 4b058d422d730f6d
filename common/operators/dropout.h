#pragma once

#include "common/operators/operator.h"

namespace ff {

// Keeps each element with probability 1 - rate and scales it by 1 / (1 - rate); identity in evaluation. The mask is
// drawn by Philox from (seed, operator name, iteration, index of the element in the whole tensor), so that every split
// sees the same mask.
class Dropout : public OperatorDefinition {
 public:
  explicit Dropout(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return part; }
  std::string attribute_text() const override;
  bool backward_reads_input(int) const override { return false; }
  int64_t workspace_bytes(const Block& part) const override { return part.volume() * element_bytes; }

  double rate;
};

}  // namespace ff
