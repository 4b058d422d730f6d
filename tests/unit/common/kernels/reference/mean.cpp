#include "common/operators/mean.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

void mean(const Mean& mean, Operation& o) {
  const View &x = o.inputs[0], &y = o.outputs[0];
  for (int64_t n = 0; n < y.size(0); ++n)
    for (int64_t c = 0; c < y.size(1); ++c)
      for (int64_t p = 0; p < mean.positions; ++p) {
        const bool image = mean.inputs()[0].shape.size() == 4;
        y(n, c) = y(n, c) +
                  (image ? x(n, c, p / x.size(3), p % x.size(3)) : x(n, p, c)) / static_cast<double>(mean.positions);
      }
}

}  // namespace

Reference make_mean_loss_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& loss = dynamic_cast<const MeanLoss&>(definition);
  return {[](const Operands& x) { return Vector<Values>{x.inputs[0]}; },
          [&](const Operands&, const Vector<Values>& dy) {
            Values dx = dy[0];
            for (double& value : dx) value *= loss.weight / static_cast<double>(dx.size());
            return Gradients{{dx}, {}};
          }};
}

Reference make_mean_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Mean>(definition, mean);
}

}  // namespace ff::reference
