#pragma once

#include "common/operators/operator.h"

namespace ff {

// broadcast_mul and broadcast_add: x of two to four axes times (plus) what has some of its axes and is the same along
// the others: a second input, which has the sample, or, with one input, the parameter `weight`, which has not. Every
// axis can be split; those of the parameter are P.
//
// Weights of channels (ConvNeXt's layer scale), squeeze-and-excitation, masks of attention, tables of positions.
class Broadcast : public OperatorDefinition {
 public:
  explicit Broadcast(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override { return input == 0 ? part : spread_block(part); }
  Block parameter_block(int, const Block& part) const override { return spread_block(part); }
  bool backward_reads_input(int) const override { return product; }
  std::string attribute_text() const override;

  Block spread_block(const Block& part) const;

  // How a part's elements lie in memory, outermost first: sizes, and how far apart their partners are in the second
  // operand (0: the same one).
  struct Layout {
    Array<int64_t, 4> sizes{1, 1, 1, 1}, strides{0, 0, 0, 0};
    int64_t elements = 1, partners = 1;
  };
  Layout layout(const Block& part) const;

  bool product;      // else a sum
  bool parameter;    // is the second operand one?
  Vector<int> axes;  // of x, which the second operand has, ascending
};

// Trained rows before the positions of a sequence (the class token of Dosovitskiy et al. 2020, arXiv 2010.11929):
// [batch, length, channel] -> [batch, rows + length, channel]; weight [rows, channel].
class Prefix : public OperatorDefinition {
 public:
  explicit Prefix(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;  // empty where the part is all prefix
  Block parameter_block(int parameter, const Block& part) const override;
  bool every_part_reads(int) const override { return false; }
  bool backward_reads_input(int) const override { return false; }
  std::string signature(const Block& part) const override;

  // How many of the part's positions are prefix; they come first.
  int64_t own_rows(const Block& part) const { return parameter_block(0, part)[0].size(); }

  int64_t rows;
};

}  // namespace ff
