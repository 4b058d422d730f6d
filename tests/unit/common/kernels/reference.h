// Every operator as plain double-precision loops over whole tensors, in logical row-major order: the judge of the
// kernels.
#pragma once

#include <string>

#include "common/operators/operator.h"
#include "common/vector.h"

namespace ff::reference {

using Values = Vector<double>;  // one tensor, row-major

struct Operands {
  Vector<Values> inputs;  // labels as numbers
  Vector<Values> parameters;
};

struct Gradients {
  Vector<Values> inputs;  // empty for inputs without a gradient
  Vector<Values> parameters;
};

// What dropout draws from.
struct Randomness {
  std::string operator_name;
  uint64_t seed;
  int64_t iteration;
};

Vector<Values> forward(const OperatorDefinition& definition, const Operands& operands, const Randomness& randomness);
// For a loss operator `output_gradients` weights each element of the loss (1 inside the part of interest, 0 outside).
Gradients backward(const OperatorDefinition& definition, const Operands& operands,
                   const Vector<Values>& output_gradients, const Randomness& randomness);

}  // namespace ff::reference
