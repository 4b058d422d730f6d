#include "common/operators/batch_norm.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void batch_norm(const BatchNorm& norm, Operation& o) {
  const Shape& shape = norm.outputs()[0].shape;
  const size_t axis = static_cast<size_t>(norm.channel_axis);
  const Numbers& x = o.operands.inputs[0];
  int64_t inner = 1;
  for (size_t a = axis + 1; a < shape.size(); ++a) inner *= shape[a];
  const auto channel_of = [&](size_t i) { return i / static_cast<size_t>(inner) % static_cast<size_t>(shape[axis]); };
  const double count = static_cast<double>(norm.elements_per_channel);
  Numbers mean(static_cast<size_t>(shape[axis])), variance(mean.size());
  for (size_t i = 0; i < x.size(); ++i) mean[channel_of(i)] = mean[channel_of(i)] + x[i] / count;
  for (size_t i = 0; i < x.size(); ++i) {
    const Number centered = x[i] - mean[channel_of(i)];
    variance[channel_of(i)] = variance[channel_of(i)] + centered * centered / count;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = channel_of(i);
    const Number y =
        (x[i] - mean[c]) / sqrt(variance[c] + norm.epsilon) * o.operands.parameters[0][c] + o.operands.parameters[1][c];
    o.results[0][i] = norm.relu ? relu(y) : y;
  }
}

}  // namespace

Reference make_batch_norm_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<BatchNorm>(definition, batch_norm);
}

}  // namespace ff::reference
