#pragma once

#include "common/operators/operator.h"

namespace ff {

// Joins its inputs along one axis (default 1, the channel of images). The joined axis can be split too: a part then
// reads of each input only what falls into it, which may be nothing.
class Concat : public OperatorDefinition {
 public:
  explicit Concat(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  bool every_part_reads(int) const override { return false; }
  std::string attribute_text() const override { return "axis=" + std::to_string(axis); }
  bool backward_reads_input(int) const override { return false; }

  // What a part reads of each input, in the output's coordinates.
  Vector<Block> regions(const Block& part) const;

  int axis;
  Vector<int64_t> offsets;  // of each input on the joined axis of the output
};

// [batch, channel, height, width] -> [batch, channel * height * width] (row-major); [batch, length, channel] likewise.
// The axis after the sample can be split: its blocks stay contiguous in the flat axis.
class Flatten : public OperatorDefinition {
 public:
  explicit Flatten(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  bool backward_reads_input(int) const override { return false; }

  int64_t inner;  // elements after axis 1
};

// Inputs [batch, channel] of one shape -> [batch, length, channel], one position an input.
class Stack : public OperatorDefinition {
 public:
  explicit Stack(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;  // empty where the part leaves the input out
  bool every_part_reads(int) const override { return false; }
  bool backward_reads_input(int) const override { return false; }
};

// Ranges of one axis, one an output; `slice` has one range, `split` several that cover the axis. Outputs of a split are
// named by number. The cut axis can be split in a slice alone: a part computes the same share of the other axes of all
// outputs.
class Slice : public OperatorDefinition {
 public:
  explicit Slice(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  bool reads_every_element(int) const override { return ranges.size() > 1; }
  std::string attribute_text() const override { return "axis=" + std::to_string(axis); }
  bool backward_reads_input(int) const override { return false; }
  Work forward_work(const Block& part) const override { return {0, touched_bytes(part)}; }

  // What a part gives of each output, in the input's coordinates.
  Vector<Block> regions(const Block& part) const;

  int axis;
  Vector<Interval> ranges;  // of the input's axis, by output

 private:
  bool is_split() const { return type_ == "split"; }
};

// Zeros before and after each axis but the sample.
class Pad : public OperatorDefinition {
 public:
  explicit Pad(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;  // empty where the part is all padding
  bool every_part_reads(int) const override { return false; }
  bool backward_reads_input(int) const override { return false; }
  std::string signature(const Block& part) const override;

  // What a part reads of the input, in the output's coordinates; empty where the part is all padding.
  Block region(const Block& part) const;

  Vector<int64_t> before;  // by axis; 0 for the sample
};

// Output axis i is input axis axes[i]; axes[0] is 0.
class Transpose : public OperatorDefinition {
 public:
  explicit Transpose(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  std::string attribute_text() const override;
  bool backward_reads_input(int) const override { return false; }

  Vector<int> axes;
};

// The same elements in row-major order; samples stay whole.
class Reshape : public OperatorDefinition {
 public:
  explicit Reshape(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return with_sample(outputs_[0].shape, part); }
  Block input_block(int, const Block& part) const override { return with_sample(inputs_[0].shape, part); }
  bool backward_reads_input(int) const override { return false; }
  int64_t workspace_bytes(const Block& part) const override { return output_block(0, part).volume() * element_bytes; }

 private:
  static Block with_sample(const Shape& shape, const Block& part) {
    Block block(shape);
    block[0] = part[0];
    return block;
  }
};

}  // namespace ff
