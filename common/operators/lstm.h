#pragma once

#include "common/operators/operator.h"

namespace ff {

// One step of an LSTM (Hochreiter and Schmidhuber 1997, with forget gates). Inputs: x [batch, in], and h, c [batch,
// hidden] of the step before; without h and c they are zero (the first step). Outputs "h", "c" [batch, hidden]:
//   i, f, o = sigmoid, g = tanh of  weight[gate] x + recurrent[gate] h + bias[gate]     gates in the order i, f, g, o
//   c' = f c + i g,  h' = o tanh(c')
// weight [4, hidden, in], recurrent [4, hidden, hidden], bias [4, hidden]. A part of `hidden` computes all four gates
// of its units: it reads all of x and h, and its own units of c.
class Lstm : public OperatorDefinition {
 public:
  explicit Lstm(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  std::string attribute_text() const override { return first_step() ? "first" : ""; }
  bool backward_reads_output() const override { return true; }
  int64_t workspace_bytes(const Block& part) const override { return 9 * part.volume() * element_bytes; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  bool position_matters(int dimension) const override {
    return dimensions_[dimension].kind == DimensionKind::attribute;
  }

  bool first_step() const { return inputs_.size() == 1; }

  int64_t in_features, hidden;
};

}  // namespace ff
