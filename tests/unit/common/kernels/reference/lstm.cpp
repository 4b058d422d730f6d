#include "common/operators/lstm.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void lstm(const Lstm& lstm, Operation& o) {
  const auto gate = [&](int64_t g, int64_t n, int64_t u) {
    Number sum = o.parameters[2](g, u);
    for (int64_t i = 0; i < lstm.in_features; ++i) sum = sum + o.parameters[0](g, u, i) * o.inputs[0](n, i);
    for (int64_t i = 0; i < lstm.hidden && !lstm.first_step(); ++i)
      sum = sum + o.parameters[1](g, u, i) * o.inputs[1](n, i);
    return sum;
  };
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t u = 0; u < lstm.hidden; ++u) {
      const Number kept = lstm.first_step() ? Number(0) : sigmoid(gate(1, n, u)) * o.inputs[2](n, u);
      const Number c = kept + sigmoid(gate(0, n, u)) * tanh(gate(2, n, u));
      o.outputs[1](n, u) = c;
      o.outputs[0](n, u) = sigmoid(gate(3, n, u)) * tanh(c);
    }
}

}  // namespace

Reference make_lstm_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Lstm>(definition, lstm);
}

}  // namespace ff::reference
