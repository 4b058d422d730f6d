// References that are a forward pass on a tape: the gradients follow from it.
#pragma once

#include "tests/unit/common/kernels/reference/reference.h"
#include "tests/unit/common/kernels/reference/tape.h"

namespace ff::reference {

using Numbers = Vector<Number>;  // one tensor, row-major

struct TapedOperands {
  Vector<Numbers> inputs;  // tokens as constants
  Vector<Numbers> parameters;
};

// A row-major tensor of numbers.
class View {
 public:
  View(Numbers& numbers, Shape shape) : numbers_(numbers), shape_(std::move(shape)) {}
  template <class... Index>
  Number& operator()(Index... index) const {
    int64_t at = 0;
    size_t axis = 0;
    ((at = at * shape_[axis++] + static_cast<int64_t>(index)), ...);
    return numbers_[at];
  }
  int64_t size(size_t axis) const { return shape_[axis]; }

 private:
  Numbers& numbers_;
  Shape shape_;
};

// What a forward pass reads and writes, as views.
struct Operation {
  Operation(const OperatorDefinition& definition, TapedOperands x) : operands(std::move(x)) {
    for (const TensorSpec& spec : definition.outputs()) results.emplace_back(static_cast<size_t>(volume(spec.shape)));
    for (size_t i = 0; i < operands.inputs.size(); ++i)
      inputs.emplace_back(operands.inputs[i], definition.inputs()[i].shape);
    for (size_t p = 0; p < operands.parameters.size(); ++p)
      parameters.emplace_back(operands.parameters[p], definition.parameters()[p].shape);
    for (size_t o = 0; o < results.size(); ++o) outputs.emplace_back(results[o], definition.outputs()[o].shape);
  }
  TapedOperands operands;
  Vector<Numbers> results;
  Vector<View> inputs, parameters, outputs;
};

Reference taped(const OperatorDefinition& definition, const std::function<void(Operation&)>& forward);

template <class Definition>
Reference taped(const OperatorDefinition& definition, void (*forward)(const Definition&, Operation&)) {
  const auto& own = dynamic_cast<const Definition&>(definition);
  return taped(definition, [&own, forward](Operation& operation) { forward(own, operation); });
}

}  // namespace ff::reference
