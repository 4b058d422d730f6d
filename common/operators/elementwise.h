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
  bool backward_reads_input(int input) const override {
    if (gate_kernel == GateKernel::product) return input != activated_input;
    return function != Function::add && function != Function::sub && function != Function::identity &&
           !backward_reads_output();
  }
  std::string attribute_text() const override;
  bool backward_reads_output() const override {
    return gate_kernel == GateKernel::none && (function == Function::relu || function == Function::tanh ||
                                               function == Function::sigmoid || function == Function::exp);
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

  // In predictions of frameworks whose gated layers are one kernel (search/cost/conventions.h), which ffexec's are not:
  // an activation has no kernel, and the product behind it reads what the activation reads, forward and backward.
  enum class GateKernel { none, activation, product };
  GateKernel gate_kernel = GateKernel::none;
  int activated_input = 0;  // of the product

 private:
  // Dimensions begin with the samples.
  Block block_of(Block part) const {
    if (of_experts) std::swap(part[0], part[1]);
    return part;
  }
};

}  // namespace ff
