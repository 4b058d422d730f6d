#include "common/operators/gating.h"

#include <algorithm>
#include <cmath>

#include "common/operators/routing.h"
#include "common/philox.h"
#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

Vector<Number> softmax(const Number* logits, int64_t classes) {
  Number sum = 0;
  Vector<Number> gates;
  for (int64_t c = 0; c < classes; ++c) {
    gates.push_back(exp(logits[c]));
    sum = sum + gates.back();
  }
  for (Number& gate : gates) gate = gate / sum;
  return gates;
}

// The experts in the order of their logits.
Vector<int64_t> by_logit(const Number* logits, int64_t experts) {
  Vector<int64_t> order;
  for (int64_t e = 0; e < experts; ++e) order.push_back(e);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return logits[a].value > logits[b].value; });
  return order;
}

// Line by line as GShard's algorithm 1, but that a second choice that is dropped at random takes no place.
void top_k_gating(const TopKGating& gating, const Randomness& randomness, Operation& o) {
  const int64_t experts = gating.routing.experts, capacity = gating.routing.capacity, top_k = gating.top_k,
                tokens = static_cast<int64_t>(o.operands.inputs[0].size()) / experts;
  const uint64_t stream = random_stream(randomness.seed, randomness.operator_name);
  const auto give = [&](int64_t token, int64_t choice, int64_t expert, const Number& gate, Vector<int64_t>& taken) {
    const bool fits = taken[expert] < capacity;
    o.results[0][token * top_k + choice] = fits ? static_cast<double>(expert * capacity + taken[expert]) : -1.0;
    o.results[1][token * top_k + choice] = fits ? gate : Number(0);
    ++taken[expert];
  };
  for (int64_t begin = 0; begin < tokens; begin += gating.group_tokens) {
    Vector<int64_t> taken(static_cast<size_t>(experts), 0);
    for (int64_t choice = 0; choice < top_k; ++choice)
      for (int64_t token = begin; token < begin + gating.group_tokens; ++token) {
        const Number* logits = o.operands.inputs[0].data() + token * experts;
        const Vector<int64_t> order = by_logit(logits, experts);
        const Vector<Number> gates = softmax(logits, experts);
        Number all(gating.normalized ? 0 : 1);
        if (gating.normalized)
          for (int64_t k = 0; k < top_k; ++k) all = all + gates[order[k]];
        const Number weight = gates[order[choice]] / all;
        const float uniform =
            uniform_at(stream, static_cast<uint64_t>(token), static_cast<uint64_t>(randomness.iteration));
        if (choice == 1 && gating.random_routing && !keeps_second(weight.value, uniform))
          o.results[0][token * top_k + 1] = -1.0;
        else give(token, choice, order[choice], weight, taken);
      }
  }
}

void load_balancing_loss(const LoadBalancingLoss& loss, Operation& o) {
  const int64_t experts = loss.experts, tokens = loss.group_tokens;
  for (size_t group = 0; group < o.results[0].size(); ++group) {
    Vector<double> chosen(static_cast<size_t>(experts), 0.0);
    Vector<Number> gates(static_cast<size_t>(experts));
    for (int64_t token = 0; token < tokens; ++token) {
      const Number* logits = o.operands.inputs[0].data() + (static_cast<int64_t>(group) * tokens + token) * experts;
      chosen[by_logit(logits, experts)[0]] += 1;
      const Vector<Number> of_token = softmax(logits, experts);
      for (int64_t e = 0; e < experts; ++e) gates[e] = gates[e] + of_token[e];
    }
    const double count = static_cast<double>(tokens);
    for (int64_t e = 0; e < experts; ++e)
      o.results[0][group] =
          o.results[0][group] + (chosen[e] / count) * (gates[e] / count) / static_cast<double>(experts);
  }
}

}  // namespace

Reference make_top_k_gating_reference(const OperatorDefinition& definition, const Randomness& randomness) {
  const auto& gating = dynamic_cast<const TopKGating&>(definition);
  return taped(definition, [&gating, randomness](Operation& o) { top_k_gating(gating, randomness, o); });
}

Reference make_load_balancing_loss_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& loss = dynamic_cast<const LoadBalancingLoss&>(definition);
  const Reference plain = taped<LoadBalancingLoss>(definition, load_balancing_loss);
  return {plain.forward, [&loss, plain](const Operands& x, const Vector<Values>& output_gradients) {
            Values weights = output_gradients[0];  // in the training loss
            for (double& weight : weights) weight *= loss.weight / static_cast<double>(weights.size());
            return plain.backward(x, {weights});
          }};
}

}  // namespace ff::reference
