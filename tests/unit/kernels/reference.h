// Every operator as plain double-precision loops over whole tensors, in logical row-major order: the judge of the
// kernels.
#pragma once

#include <string>
#include <vector>

#include "common/operators/operator.h"

namespace ff::reference {

using Values = std::vector<double>;  // one tensor, row-major

struct Operands {
  std::vector<Values> inputs;  // labels as numbers
  std::vector<Values> parameters;
};

struct Gradients {
  std::vector<Values> inputs;  // empty for inputs without a gradient
  std::vector<Values> parameters;
};

// What dropout draws from.
struct Randomness {
  std::string operator_name;
  uint64_t seed;
  int64_t iteration;
};

std::vector<Values> forward(const OperatorDefinition& definition, const Operands& operands,
                            const Randomness& randomness);
// For a loss operator `output_gradients` weights each element of the loss (1 inside the part of interest, 0 outside).
Gradients backward(const OperatorDefinition& definition, const Operands& operands,
                   const std::vector<Values>& output_gradients, const Randomness& randomness);

}  // namespace ff::reference
