#pragma once

#include "common/operators/operator.h"

namespace ff {

// input [batch, in] or [batch, length, in] -> [..., out]: output = input weight^T + bias.
// weight [out, in], bias [out]. The paper's matrix multiplication: S, and channel P.
class Linear : public OperatorDefinition {
 public:
  explicit Linear(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  std::string attribute_text() const override;
  bool backward_reads_output() const override { return relu; }
  int64_t workspace_bytes(const Block& part) const override { return relu ? part.volume() * element_bytes : 0; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  bool position_matters(int dimension) const override {
    return dimensions_[dimension].kind == DimensionKind::attribute;
  }

  int64_t in_features, out_features;
  bool bias;
  bool relu;  // fused: output = max(0, product)
};

}  // namespace ff
