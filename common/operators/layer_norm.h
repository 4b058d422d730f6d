#pragma once

#include "common/operators/operator.h"

namespace ff {

// Over the last axis of [batch, features] or [batch, length, features] (Ba et al. 2016, arXiv 1607.06450):
//   output = (input - mean) / sqrt(variance + epsilon) * weight + bias, with the mean and variance of each row. weight,
//   bias [features].
class LayerNorm : public OperatorDefinition {
 public:
  explicit LayerNorm(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override;
  int64_t workspace_bytes(const Block& part) const override { return 2 * part.volume() * element_bytes; }
  Work forward_work(const Block& part) const override;

  int64_t features;
  double epsilon;
};

}  // namespace ff
