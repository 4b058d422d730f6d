// Windows over sequences [batch, length, channels]: the same as over images of height 1, whose storage they share.
#pragma once

#include "common/operators/conv2d.h"
#include "common/operators/pool2d.h"

namespace ff {

// Blocks and parts of sequences, [sample, length, channel], as those of images of height 1, [sample, channel, height,
// width], and back.
inline Block to_image(const Block& block) { return {block[0], block[2], {0, 1}, block[1]}; }
inline Block to_sequence(const Block& block) { return {block[0], block[3], block[1]}; }

// input [batch, length, in_channels] -> [batch, out_length, out_channels]. weight [out_channels, in_channels / groups,
// kernel], bias [out_channels].
class Conv1d : public OperatorDefinition {
 public:
  explicit Conv1d(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return to_sequence(image.input_block(0, to_image(part))); }
  Block parameter_block(int parameter, const Block& part) const override;
  bool reads_every_element(int input) const override { return image.reads_every_element(input); }
  std::string signature(const Block& part) const override { return type_ + " as " + image.signature(to_image(part)); }
  bool backward_reads_output() const override { return image.backward_reads_output(); }
  int64_t workspace_bytes(const Block& part) const override { return image.workspace_bytes(to_image(part)); }
  Work forward_work(const Block& part) const override { return image.forward_work(to_image(part)); }
  Work backward_work(const Block& part, bool input_gradients) const override {
    return image.backward_work(to_image(part), input_gradients);
  }

  const Conv2d image;
};

// input [batch, length, channels] -> [batch, out_length, channels].
class Pool1d : public OperatorDefinition {
 public:
  explicit Pool1d(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return to_sequence(image.input_block(0, to_image(part))); }
  bool reads_every_element(int input) const override { return image.reads_every_element(input); }
  std::string signature(const Block& part) const override { return type_ + " as " + image.signature(to_image(part)); }
  bool backward_reads_input(int) const override { return false; }
  int64_t workspace_bytes(const Block& part) const override { return image.workspace_bytes(to_image(part)); }
  Work forward_work(const Block& part) const override { return image.forward_work(to_image(part)); }

  const Pool2d image;
};

}  // namespace ff
