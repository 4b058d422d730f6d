#include "common/operators/activation.h"

#include <algorithm>

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

using Function = Activation::Function;

double hard_sigmoid(double x, double slope, double offset) { return std::clamp(slope * x + offset, 0.0, 1.0); }

double apply(const Activation& a, double x) {
  switch (a.function) {
    case Function::affine: return a.first * x + a.second;
    case Function::clip: return std::clamp(x, a.first, a.second);
    case Function::leaky_relu: return x > 0 ? x : a.first * x;
    case Function::hard_sigmoid: return hard_sigmoid(x, a.first, a.second);
    case Function::hard_swish: return x * hard_sigmoid(x, 1.0 / 6, 0.5);
  }
  return 0;
}

double slope(const Activation& a, double x) {
  switch (a.function) {
    case Function::affine: return a.first;
    case Function::clip: return x > a.first && x < a.second ? 1 : 0;
    case Function::leaky_relu: return x > 0 ? 1 : a.first;
    case Function::hard_sigmoid: {
      const double y = hard_sigmoid(x, a.first, a.second);
      return y > 0 && y < 1 ? a.first : 0;
    }
    case Function::hard_swish: return x <= -3 ? 0 : x >= 3 ? 1 : (2 * x + 3) / 6;
  }
  return 0;
}

}  // namespace

Reference make_activation_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& activation = dynamic_cast<const Activation&>(definition);
  return {[&](const Operands& x) {
            Values y;
            for (const double value : x.inputs[0]) y.push_back(apply(activation, value));
            return Vector<Values>{y};
          },
          [&](const Operands& x, const Vector<Values>& dy) {
            Gradients d{{Values(dy[0].size())}, {}};
            for (size_t i = 0; i < dy[0].size(); ++i) d.inputs[0][i] = dy[0][i] * slope(activation, x.inputs[0][i]);
            return d;
          }};
}

}  // namespace ff::reference
