#include "common/operators/layer_norm.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

// Where feature f of a row lies: the features of an image's position are its channels.
struct Rows {
  explicit Rows(const RowNorm& norm)
      : features(norm.features), rows(volume(norm.inputs()[0].shape) / features),
        distance(norm.inputs()[0].shape.size() == 4 ? norm.inputs()[0].shape[2] * norm.inputs()[0].shape[3] : 1) {}
  int64_t at(int64_t row, int64_t f) const {
    return row / distance * distance * features + row % distance + f * distance;
  }
  int64_t features, rows, distance;
};

void layer_norm(const LayerNorm& norm, Operation& o) {
  const Rows rows(norm);
  const Numbers& x = o.operands.inputs[0];
  const double count = static_cast<double>(rows.features);
  for (int64_t row = 0; row < rows.rows; ++row) {
    const auto value = [&](int64_t f) { return x[rows.at(row, f)]; };
    Number mean, variance;
    for (int64_t f = 0; f < rows.features; ++f) mean = mean + value(f) / count;
    for (int64_t f = 0; f < rows.features; ++f) variance = variance + (value(f) - mean) * (value(f) - mean) / count;
    for (int64_t f = 0; f < rows.features; ++f)
      o.results[0][rows.at(row, f)] =
          norm.affine ? (value(f) - mean) / sqrt(variance + norm.epsilon) * o.operands.parameters[0][f] +
                            o.operands.parameters[1][f]
                      : (value(f) - mean) / sqrt(variance + norm.epsilon);
  }
}

void rms_norm(const RmsNorm& norm, Operation& o) {
  const Rows rows(norm);
  const Numbers& x = o.operands.inputs[0];
  for (int64_t row = 0; row < rows.rows; ++row) {
    const auto value = [&](int64_t f) { return x[rows.at(row, f)]; };
    Number square;
    for (int64_t f = 0; f < rows.features; ++f)
      square = square + value(f) * value(f) / static_cast<double>(norm.features);
    for (int64_t f = 0; f < rows.features; ++f)
      o.results[0][rows.at(row, f)] = norm.affine ? value(f) / sqrt(square + norm.epsilon) * o.operands.parameters[0][f]
                                                  : value(f) / sqrt(square + norm.epsilon);
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
