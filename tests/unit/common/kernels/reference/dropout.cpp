#include "common/operators/dropout.h"

#include "common/philox.h"
#include "tests/unit/common/kernels/reference/reference.h"

namespace ff::reference {
namespace {

// What `values` and gradients are multiplied by alike.
Values dropped(const Dropout& dropout, const Randomness& randomness, Values values) {
  const uint64_t stream = random_stream(randomness.seed, randomness.operator_name);
  for (size_t i = 0; i < values.size(); ++i) {
    const float uniform = uniform_at(stream, i, static_cast<uint64_t>(randomness.iteration));
    values[i] *= uniform >= static_cast<float>(dropout.rate) ? 1 / (1 - dropout.rate) : 0;
  }
  return values;
}

}  // namespace

Reference make_dropout_reference(const OperatorDefinition& definition, const Randomness& randomness) {
  const auto& dropout = dynamic_cast<const Dropout&>(definition);
  return {[&, randomness](const Operands& x) { return Vector<Values>{dropped(dropout, randomness, x.inputs[0])}; },
          [&, randomness](const Operands&, const Vector<Values>& dy) {
            return Gradients{{dropped(dropout, randomness, dy[0])}, {}};
          }};
}

}  // namespace ff::reference
