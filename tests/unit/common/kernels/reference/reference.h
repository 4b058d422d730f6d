// Every operator as plain double-precision loops over whole tensors, in logical row-major order: the judge of the
// kernels.
#pragma once

#include <functional>
#include <string>

#include "common/operators/operator.h"
#include "common/operators/operator_list.h"
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

// What one operator computes. For a loss operator `output_gradients` weights each element of the loss (1 inside the
// part of interest, 0 outside).
struct Reference {
  std::function<Vector<Values>(const Operands&)> forward;
  std::function<Gradients(const Operands&, const Vector<Values>& output_gradients)> backward;
};

#define FF_DECLARE(type, family) Reference make_##family##_reference(const OperatorDefinition&, const Randomness&);
FF_OPERATORS(FF_DECLARE)
#undef FF_DECLARE

// The definition and the randomness outlive what is made of them.
Reference make_reference(const OperatorDefinition& definition, const Randomness& randomness);

// Where an element of [batch, channel, height, width] lies.
inline size_t at(const Shape& s, int64_t n, int64_t c, int64_t h, int64_t w) {
  return static_cast<size_t>(((n * s[1] + c) * s[2] + h) * s[3] + w);
}

}  // namespace ff::reference
