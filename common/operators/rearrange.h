#pragma once

#include "common/operators/operator.h"

namespace ff {

// Joins its inputs along one axis (default 1, the channel of images). The joined axis can be split too: a part then reads of each
// input only what falls into it, which may be nothing.
class Concat : public OperatorDefinition {
 public:
  explicit Concat(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  bool every_part_reads(int) const override { return false; }
  std::string attribute_text() const override { return "axis=" + std::to_string(axis); }
  bool backward_reads_input(int) const override { return false; }

  int axis;
  std::vector<int64_t> offsets;  // of each input on the joined axis of the output
};

// [batch, channel, height, width] -> [batch, channel * height * width] (row-major); [batch, length, channel] likewise. The axis
// behind the sample can be split: its blocks stay contiguous in the flat axis.
class Flatten : public OperatorDefinition {
 public:
  explicit Flatten(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  bool backward_reads_input(int) const override { return false; }

  int64_t inner;  // elements behind axis 1
};

}  // namespace ff
