#include "common/operators/linear.h"

#include <algorithm>

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

Values linear_forward(const Linear& linear, const Operands& x) {
  const size_t in = static_cast<size_t>(linear.in_features), out = static_cast<size_t>(linear.out_features),
               rows = x.inputs[0].size() / in;
  Values y(rows * out, 0);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) y[r * out + o] += x.inputs[0][r * in + i] * x.parameters[0][o * in + i];
      if (linear.bias) y[r * out + o] += x.parameters[1][o];
      if (linear.relu) y[r * out + o] = std::max(0.0, y[r * out + o]);
    }
  return y;
}

Gradients linear_backward(const Linear& linear, const Operands& x, Values dy) {
  const size_t in = static_cast<size_t>(linear.in_features), out = static_cast<size_t>(linear.out_features),
               rows = x.inputs[0].size() / in;
  const Values y = linear_forward(linear, x);
  Gradients d{{Values(x.inputs[0].size(), 0)}, {Values(x.parameters[0].size(), 0)}};
  if (linear.bias) d.parameters.emplace_back(out, 0.0);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      const double g = linear.relu && !(y[r * out + o] > 0) ? 0 : dy[r * out + o];
      for (size_t i = 0; i < in; ++i) {
        d.inputs[0][r * in + i] += g * x.parameters[0][o * in + i];
        d.parameters[0][o * in + i] += g * x.inputs[0][r * in + i];
      }
      if (linear.bias) d.parameters[1][o] += g;
    }
  return d;
}

}  // namespace

Reference make_linear_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& linear = dynamic_cast<const Linear&>(definition);
  return {[&](const Operands& x) { return Vector<Values>{linear_forward(linear, x)}; },
          [&](const Operands& x, const Vector<Values>& dy) { return linear_backward(linear, x, dy[0]); }};
}

}  // namespace ff::reference
