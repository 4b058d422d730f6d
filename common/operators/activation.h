#pragma once

#include "common/operators/operator.h"

namespace ff {

// Functions of one number that are straight lines in pieces, or made of such: affine, clip, leaky_relu, hard_sigmoid,
// hard_swish. One input of one to four axes; every axis can be split; no parameters.
class Activation : public OperatorDefinition {
 public:
  explicit Activation(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int, const Block& part) const override { return part; }
  bool backward_reads_input(int) const override { return function != Function::affine; }

  enum class Function {
    affine,        // factor x + offset
    clip,          // x, at least `least` and at most `most`
    leaky_relu,    // x above 0, slope x below
    hard_sigmoid,  // slope x + offset, at least 0 and at most 1
    hard_swish     // x hard_sigmoid(x), of slope 1/6 and offset 1/2 (Howard et al. 2019, arXiv 1905.02244)
  };
  Function function;
  // The attributes, in their order: factor and offset, least and most, slope, slope and offset.
  double first = 0, second = 0;
};

}  // namespace ff
