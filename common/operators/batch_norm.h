#pragma once

#include "common/operators/operator.h"

namespace ff {

// Over the batch and all positions of each channel (Ioffe and Szegedy 2015, arXiv 1502.03167): [batch, channel],
// [batch, length, channel] or [batch, channel, height, width] -> the same shape. weight, bias, and (not trained)
// running_mean, running_variance [channel]. With global statistics, sums of all parts with the same channels: [2,
// channels], forward of x and x^2, backward of the output's gradient g and of g times the normalized input.
class BatchNorm : public OperatorDefinition {
 public:
  explicit BatchNorm(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return part; }
  Block parameter_block(int, const Block& part) const override { return {part[channel_axis]}; }
  DataType parameter_type(int) const override { return DataType::f32; }
  std::string attribute_text() const override;
  bool backward_reads_output() const override { return relu; }
  int64_t statistics_bytes(const Block& part, bool) const override {
    return global ? 2 * part[channel_axis].size() * element_bytes : 0;
  }
  Work statistics_work(const Block& part, bool backward) const override;
  int64_t workspace_bytes(const Block& part) const override { return 6 * part[channel_axis].size() * element_bytes; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int channel_axis;
  int64_t elements_per_channel;  // of the whole batch
  double epsilon, momentum;
  bool global;
  bool relu;     // fused: output = max(0, normalized)
  bool trained;  // weight and bias; else they are constants that the model gives
};

}  // namespace ff
