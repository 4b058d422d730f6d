#include "common/operators/layer_norm.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void layer_norm(const LayerNorm& norm, Operation& o) {
  const size_t features = static_cast<size_t>(norm.features);
  const Numbers& x = o.operands.inputs[0];
  const double count = static_cast<double>(features);
  for (size_t row = 0; row < x.size(); row += features) {
    Number mean, variance;
    for (size_t f = 0; f < features; ++f) mean = mean + x[row + f] / count;
    for (size_t f = 0; f < features; ++f) variance = variance + (x[row + f] - mean) * (x[row + f] - mean) / count;
    for (size_t f = 0; f < features; ++f)
      o.results[0][row + f] = (x[row + f] - mean) / sqrt(variance + norm.epsilon) * o.operands.parameters[0][f] +
                              o.operands.parameters[1][f];
  }
}

void rms_norm(const RmsNorm& norm, Operation& o) {
  const size_t features = static_cast<size_t>(norm.features);
  const Numbers& x = o.operands.inputs[0];
  for (size_t row = 0; row < x.size(); row += features) {
    Number square;
    for (size_t f = 0; f < features; ++f) square = square + x[row + f] * x[row + f] / static_cast<double>(features);
    for (size_t f = 0; f < features; ++f)
      o.results[0][row + f] = x[row + f] / sqrt(square + norm.epsilon) * o.operands.parameters[0][f];
  }
}

}  // namespace

Reference make_layer_norm_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<LayerNorm>(definition, layer_norm);
}
Reference make_rms_norm_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<RmsNorm>(definition, rms_norm);
}

}  // namespace ff::reference
