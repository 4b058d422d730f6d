#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

TapedOperands on_tape(const OperatorDefinition& definition, const Operands& x, Tape& tape) {
  TapedOperands taped;
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    taped.inputs.emplace_back();
    for (double value : x.inputs[i])
      taped.inputs.back().push_back(definition.differentiable_input(static_cast<int>(i)) ? tape.variable(value)
                                                                                         : Number(value));
  }
  for (const Values& parameter : x.parameters) {
    taped.parameters.emplace_back();
    for (double value : parameter) taped.parameters.back().push_back(tape.variable(value));
  }
  return taped;
}

Vector<Values> values_of(const Vector<Numbers>& tensors) {
  Vector<Values> values;
  for (const Numbers& numbers : tensors) {
    values.emplace_back();
    for (const Number& number : numbers) values.back().push_back(number.value);
  }
  return values;
}

// Of the variables; constants have none.
Vector<Values> gradients_of(const Vector<Numbers>& tensors, const Tape& tape) {
  Vector<Values> gradients;
  for (const Numbers& numbers : tensors) {
    gradients.emplace_back();
    for (const Number& number : numbers)
      if (number.tape) gradients.back().push_back(tape.gradient(number));
  }
  return gradients;
}

}  // namespace

Reference taped(const OperatorDefinition& definition, const std::function<void(Operation&)>& forward) {
  return {[&definition, forward](const Operands& x) {
            Tape tape;
            Operation operation(definition, on_tape(definition, x, tape));
            forward(operation);
            return values_of(operation.results);
          },
          [&definition, forward](const Operands& x, const Vector<Values>& output_gradients) {
            Tape tape;
            Operation operation(definition, on_tape(definition, x, tape));
            forward(operation);
            for (size_t o = 0; o < operation.results.size(); ++o)
              for (size_t k = 0; k < operation.results[o].size(); ++k)
                tape.seed(operation.results[o][k], output_gradients[o][k]);
            tape.sweep();
            return Gradients{gradients_of(operation.operands.inputs, tape),
                             gradients_of(operation.operands.parameters, tape)};
          }};
}

}  // namespace ff::reference
