#pragma once

#include "common/operators/operator.h"

namespace ff {

// input [batch, in] or [batch, length, in] -> [..., out]: output = input weight^T + bias.
// weight [out, in], bias [out]. The paper's matrix multiplication: S, and channel P; and in_channel R, which a fused
// activation rules out, as it needs the whole sum. Of the parts that share a sum the first adds the bias.
class Linear : public OperatorDefinition {
 public:
  explicit Linear(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  std::string attribute_text() const override;
  std::string signature(const Block& part) const override;
  bool backward_reads_output() const override { return relu; }
  int64_t workspace_bytes(const Block& part) const override {
    return relu ? output_block(0, part).volume() * element_bytes : 0;
  }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  bool position_matters(int dimension) const override {
    const DimensionKind kind = dimensions_[dimension].kind;
    return kind == DimensionKind::attribute || (kind == DimensionKind::reduction && bias);
  }
  // Which of the input's features the part multiplies; does it add the bias?
  Interval in_channels(const Block& part) const { return relu ? Interval{0, in_features} : part[part.rank() - 1]; }
  bool adds_bias(const Block& part) const { return bias && in_channels(part).begin == 0; }

  int64_t in_features, out_features;
  bool bias;
  bool relu;  // fused: output = max(0, product)
};

}  // namespace ff
