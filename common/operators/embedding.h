#pragma once

#include "common/operators/operator.h"

namespace ff {

// tokens (i32) [batch] or [batch, length] -> [..., channels]: row `token` of weight [vocabulary, channels]. S, channel
// P, and vocabulary R: a part writes the rows that it has, and zeros for the tokens of others.
class Embedding : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  explicit Embedding(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  std::string signature(const Block& part) const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  double gradient_addition_bytes(const Block& part) const override;
  int64_t index_limit(int) const override { return vocabulary; }
  bool position_matters(int dimension) const override {
    return dimensions_[dimension].kind == DimensionKind::attribute;
  }

  // The rows of the table that the part has.
  Interval rows(const Block& part) const { return part[part.rank() - 1]; }

  int64_t vocabulary, channels;
};

// input [batch, length, channels] + weight [length, channels] for every sample.
class PositionEmbedding : public OperatorDefinition {
 public:
  bool kernel_names_operator() const override { return true; }
  explicit PositionEmbedding(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return part; }
  Block parameter_block(int, const Block& part) const override { return {part[1], part[2]}; }
  bool backward_reads_input(int) const override { return false; }
};

}  // namespace ff
