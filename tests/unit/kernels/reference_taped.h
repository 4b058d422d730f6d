// Operators whose reference is a forward pass on a tape.
#pragma once

#include "tests/unit/kernels/reference.h"
#include "tests/unit/kernels/tape.h"

namespace ff::reference {

using Numbers = std::vector<Number>;  // one tensor, row-major

struct TapedOperands {
  std::vector<Numbers> inputs;  // tokens as constants
  std::vector<Numbers> parameters;
};

// The outputs, or nothing for a type that is not among them.
std::vector<Numbers> taped_forward(const OperatorDefinition& definition, const TapedOperands& x);

}  // namespace ff::reference
