#pragma once

#include "common/operators/operator.h"

namespace ff {

// What operators that normalize each row of [batch, features] or [batch, length, features] have in common: rows can be
// split, the features of a row cannot. Of images [batch, channel, height, width] a row is all channels of a position,
// which lie together in memory.
class RowNorm : public OperatorDefinition {
 public:
  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  DataType parameter_type(int) const override { return DataType::f32; }
  std::string attribute_text() const override;
  // Bytes of what stands for the parameters that there are not.
  int64_t unit_bytes() const { return affine ? 0 : 4 * features * element_bytes; }

  int64_t features;
  int axis;  // that of the features
  double epsilon;
  bool affine;  // has a weight and perhaps a bias; else they are 1 and 0

 protected:
  explicit RowNorm(const OperatorRequest& request);
};

// Ba et al. 2016, arXiv 1607.06450:
//   output = (input - mean) / sqrt(variance + epsilon) * weight + bias, with the mean and variance of each row. weight,
//   bias [features].
class LayerNorm : public RowNorm {
 public:
  explicit LayerNorm(const OperatorRequest& request);

  int64_t workspace_bytes(const Block& part) const override { return 2 * part.volume() * element_bytes + unit_bytes(); }
  Work forward_work(const Block& part) const override;
};

// Zhang and Sennrich 2019, arXiv 1910.07467:
//   output = input / sqrt(mean of input^2 + epsilon) * weight, with the mean of each row. weight [features].
class RmsNorm : public RowNorm {
 public:
  explicit RmsNorm(const OperatorRequest& request);

  int64_t workspace_bytes(const Block& part) const override { return part.volume() * element_bytes + unit_bytes(); }
  Work forward_work(const Block& part) const override;
};

}  // namespace ff
