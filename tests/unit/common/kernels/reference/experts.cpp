#include "common/operators/experts.h"

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

// visit(token, number of the choice, row) for every choice that has a slot.
template <class Visit>
void for_each_row(const Routed& routed, const Numbers& slots, const Visit& visit) {
  const int64_t capacity = routed.routing.capacity,
                groups = static_cast<int64_t>(slots.size()) / routed.top_k / routed.group_tokens;
  for (size_t choice = 0; choice < slots.size(); ++choice) {
    const int64_t slot = static_cast<int64_t>(slots[choice].value);
    if (slot < 0) continue;
    const int64_t token = static_cast<int64_t>(choice) / routed.top_k, group = token / routed.group_tokens;
    visit(token, choice, ((slot / capacity) * groups + group) * capacity + slot % capacity);
  }
}

void dispatch(const Dispatch& dispatch, Operation& o) {
  const int64_t channels = dispatch.inputs()[0].shape[2];
  for_each_row(dispatch, o.operands.inputs[1], [&](int64_t token, size_t, int64_t row) {
    for (int64_t c = 0; c < channels; ++c)
      o.results[0][row * channels + c] = o.operands.inputs[0][token * channels + c];
  });
}

void combine(const Combine& combine, Operation& o) {
  const int64_t channels = combine.inputs()[0].shape[2];
  for_each_row(combine, o.operands.inputs[1], [&](int64_t token, size_t choice, int64_t row) {
    for (int64_t c = 0; c < channels; ++c) {
      Number& sum = o.results[0][token * channels + c];
      sum = sum + o.operands.inputs[2][choice] * o.operands.inputs[0][row * channels + c];
    }
  });
}

void expert_linear(const ExpertLinear& linear, Operation& o) {
  const View &x = o.inputs[0], &y = o.outputs[0], &weight = o.parameters[0];
  for (int64_t e = 0; e < y.size(0); ++e)
    for (int64_t row = 0; row < y.size(1); ++row)
      for (int64_t out = 0; out < y.size(2); ++out) {
        Number sum = linear.bias ? o.parameters[1](e, out) : Number(0);
        for (int64_t in = 0; in < x.size(2); ++in) sum = sum + x(e, row, in) * weight(e, out, in);
        y(e, row, out) = linear.relu ? relu(sum) : sum;
      }
}

}  // namespace

Reference make_dispatch_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Dispatch>(definition, dispatch);
}
Reference make_combine_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Combine>(definition, combine);
}
Reference make_expert_linear_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<ExpertLinear>(definition, expert_linear);
}

}  // namespace ff::reference
