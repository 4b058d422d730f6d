// Operators whose reference is a forward pass on a tape.
#pragma once

#include "tests/unit/common/kernels/reference.h"
#include "tests/unit/common/kernels/tape.h"

namespace ff::reference {

using Numbers = Vector<Number>;  // one tensor, row-major

struct TapedOperands {
  Vector<Numbers> inputs;  // tokens as constants
  Vector<Numbers> parameters;
};

// The outputs, or nothing for a type that is not among them.
Vector<Numbers> taped_forward(const OperatorDefinition& definition, const TapedOperands& x);

}  // namespace ff::reference
