#include "common/operators/elementwise.h"

#include <algorithm>
#include <cmath>

#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

double apply(Elementwise::Function f, double alpha, double x) {
  switch (f) {
    case Elementwise::Function::relu: return std::max(0.0, x);
    case Elementwise::Function::tanh: return std::tanh(x);
    case Elementwise::Function::sigmoid: return 1 / (1 + std::exp(-x));
    case Elementwise::Function::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Elementwise::Function::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
    case Elementwise::Function::silu: return x / (1 + std::exp(-x));
    case Elementwise::Function::elu: return x > 0 ? x : alpha * (std::exp(x) - 1);
    case Elementwise::Function::softplus: return std::log(1 + std::exp(x));
    case Elementwise::Function::mish: return x * std::tanh(std::log(1 + std::exp(x)));
    case Elementwise::Function::log: return std::log(x);
    case Elementwise::Function::exp: return std::exp(x);
    case Elementwise::Function::sin: return std::sin(x);
    case Elementwise::Function::pow: return std::pow(x, alpha);
    default: return x;
  }
}

double slope(Elementwise::Function f, double alpha, double x) {
  const double y = apply(f, alpha, x);
  switch (f) {
    case Elementwise::Function::relu: return x > 0 ? 1 : 0;
    case Elementwise::Function::tanh: return 1 - y * y;
    case Elementwise::Function::sigmoid: return y * (1 - y);
    case Elementwise::Function::gelu:
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    case Elementwise::Function::gelu_tanh: {
      const double root = std::sqrt(2 / std::acos(-1.0)), t = std::tanh(root * (x + 0.044715 * x * x * x));
      return 0.5 * (1 + t + x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x));
    }
    case Elementwise::Function::silu: {
      const double sigmoid = 1 / (1 + std::exp(-x));
      return sigmoid * (1 + x * (1 - sigmoid));
    }
    case Elementwise::Function::elu: return x > 0 ? 1 : alpha * std::exp(x);
    case Elementwise::Function::softplus: return 1 / (1 + std::exp(-x));
    case Elementwise::Function::mish: {
      const double t = std::tanh(std::log(1 + std::exp(x)));
      return t + x * (1 - t * t) / (1 + std::exp(-x));
    }
    case Elementwise::Function::log: return 1 / x;
    case Elementwise::Function::exp: return y;
    case Elementwise::Function::sin: return std::cos(x);
    case Elementwise::Function::pow: return alpha * std::pow(x, alpha - 1);
    default: return 1;
  }
}

Values elementwise_forward(const Elementwise& operation, const Operands& x) {
  Values y(x.inputs[0].size(), 0);
  for (size_t i = 0; i < y.size(); ++i) {
    if (operation.function == Elementwise::Function::mul) y[i] = x.inputs[0][i] * x.inputs[1][i];
    else if (operation.function == Elementwise::Function::sub) y[i] = x.inputs[0][i] - x.inputs[1][i];
    else
      for (const Values& input : x.inputs) y[i] += apply(operation.function, operation.alpha, input[i]);
  }
  return y;
}

Gradients elementwise_backward(const Elementwise& operation, const Operands& x, const Values& dy) {
  Gradients d;
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    d.inputs.emplace_back(dy.size(), 0.0);
    for (size_t k = 0; k < dy.size(); ++k) {
      if (operation.function == Elementwise::Function::mul) d.inputs[i][k] = dy[k] * x.inputs[1 - i][k];
      else if (operation.function == Elementwise::Function::sub) d.inputs[i][k] = i == 0 ? dy[k] : -dy[k];
      else d.inputs[i][k] = dy[k] * slope(operation.function, operation.alpha, x.inputs[i][k]);
    }
  }
  return d;
}

}  // namespace

Reference make_elementwise_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& operation = dynamic_cast<const Elementwise&>(definition);
  return {[&](const Operands& x) { return Vector<Values>{elementwise_forward(operation, x)}; },
          [&](const Operands& x, const Vector<Values>& dy) { return elementwise_backward(operation, x, dy[0]); }};
}

}  // namespace ff::reference
