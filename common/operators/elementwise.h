#pragma once

#include "common/operators/operator.h"

namespace ff {

// relu, tanh, sigmoid, gelu, silu, elu, softplus, mish, log, exp, sin, pow, identity (one input), sub and mul (two
// inputs of one shape), add (two or more). Every axis can be split; none holds parameters.
class Elementwise : public OperatorDefinition {
 public:
  explicit Elementwise(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return block_of(part); }
  Block input_block(int, const Block& part) const override { return block_of(part); }
  bool backward_reads_input(int) const override {
    return function != Function::add && function != Function::sub && function != Function::identity &&
           !backward_reads_output();
  }
  std::string attribute_text() const override;
  bool backward_reads_output() const override {
    return function == Function::relu || function == Function::tanh || function == Function::sigmoid ||
           function == Function::exp;
  }

  enum class Function {
    relu,
    tanh,
    sigmoid,
    gelu,
    gelu_tanh,
    silu,
    elu,
    softplus,
    mish,
    log,
    exp,
    sin,
    pow,
    add,
    sub,
    mul,
    identity  // copies, so that a tensor may be split in one way before and in another behind
  };
  Function function;
  float alpha = 1;          // of elu: x above 0, alpha (exp(x) - 1) below; of pow the exponent
  bool of_experts = false;  // silu, mul, identity: the samples are along axis 1, as behind expert_linear

 private:
  // Dimensions begin with the samples.
  Block block_of(Block part) const {
    if (of_experts) std::swap(part[0], part[1]);
    return part;
  }
};

}  // namespace ff
