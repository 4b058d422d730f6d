#pragma once

#include "common/operators/contraction.h"
#include "common/operators/operator.h"

namespace ff {

// A product of two tensors as numpy's einsum writes it, "GSEC,GSM->EGCM"; the second may be a parameter, "weight".
// Every letter is a parallelizable dimension. In the output: P if the parameter has it; else S for the first such
// letter of the first operand, and A. Summed over: R. The dimensions are S, then the others in the output's order,
// then R in the first operand's.
class Einsum : public OperatorDefinition {
 public:
  explicit Einsum(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return block(output, part); }
  Block input_block(int input, const Block& part) const override { return block(input, part); }
  Block parameter_block(int, const Block& part) const override { return block(1, part); }
  bool position_matters(int) const override { return false; }
  std::string attribute_text() const override { return equation; }
  int64_t workspace_bytes(const Block& part) const override;  // permuted copies of tensors
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  // The three tensors of a product: the two operands and the output, or its gradient.
  static constexpr int output = 2;
  bool has_parameter() const { return !parameters_.empty(); }
  // Each of the three is a product of the others: operand 0 of (output, 1), operand 1 of (0, output), the output of
  // (0, 1).
  static int first_factor(int tensor) { return tensor == 0 ? output : 0; }
  static int second_factor(int tensor) { return tensor == 1 ? output : 1; }
  MatrixProducts products(int tensor, const Block& part) const;

  std::string equation;                  // without spaces
  Array<Vector<int>, 3> axis_dimension;  // [tensor][axis]: number of its letter's dimension

 private:
  Block block(int tensor, const Block& part) const;
  StoredLetters stored(int tensor) const;
  double product_flops(const Block& part) const;
  double product_bytes(int tensor, const Block& part) const;
};

}  // namespace ff
