#include "common/operators/attention.h"

#include <cmath>

#include "tests/unit/common/kernels/reference/taped.h"

namespace ff::reference {
namespace {

Numbers softmax(const Numbers& scores) {
  Number sum;
  Numbers weights;
  for (const Number& score : scores) {
    weights.push_back(exp(score));
    sum = sum + weights.back();
  }
  for (Number& weight : weights) weight = weight / sum;
  return weights;
}

void attention(const Attention& attention, Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n) {
    Numbers scores(static_cast<size_t>(attention.length));
    for (int64_t l = 0; l < attention.length; ++l)
      for (int64_t f = 0; f < attention.features; ++f)
        for (int64_t c = 0; c < attention.channels; ++c)
          scores[l] = scores[l] + o.inputs[0](n, f) * o.parameters[0](f, c) * o.inputs[1](n, l, c);
    const Numbers weights = softmax(scores);
    for (int64_t u = 0; u < attention.out_features; ++u) {
      Number sum;
      for (int64_t c = 0; c < attention.channels; ++c)
        for (int64_t l = 0; l < attention.length; ++l)
          sum = sum + o.parameters[1](u, c) * weights[l] * o.inputs[1](n, l, c);
      for (int64_t f = 0; f < attention.features; ++f)
        sum = sum + o.parameters[1](u, attention.channels + f) * o.inputs[0](n, f);
      o.outputs[0](n, u) = tanh(sum);
    }
  }
}

void multi_head_attention(const MultiHeadAttention& attention, Operation& o) {
  const int64_t size = attention.head_channels;
  const auto projected = [&](int64_t which, int64_t n, int64_t l, int64_t channel) {
    Number sum = o.parameters[1](which, channel);
    for (int64_t c = 0; c < attention.channels; ++c)
      sum = sum + o.parameters[0](which, channel, c) * o.inputs[0](n, l, c);
    return sum;
  };
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t h = 0; h < attention.heads; ++h)
      for (int64_t l = 0; l < attention.length; ++l) {
        Numbers scores;
        for (int64_t other = 0; other < (attention.causal ? l + 1 : attention.length); ++other) {
          Number score;
          for (int64_t c = h * size; c < (h + 1) * size; ++c)
            score = score + projected(0, n, l, c) * projected(1, n, other, c);
          scores.push_back(score / std::sqrt(static_cast<double>(size)));
        }
        const Numbers weights = softmax(scores);
        for (int64_t c = h * size; c < (h + 1) * size; ++c)
          for (size_t other = 0; other < weights.size(); ++other)
            o.outputs[0](n, l, c) =
                o.outputs[0](n, l, c) + weights[other] * projected(2, n, static_cast<int64_t>(other), c);
      }
}

}  // namespace

Reference make_attention_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<Attention>(definition, attention);
}

Reference make_multi_head_attention_reference(const OperatorDefinition& definition, const Randomness&) {
  return taped<MultiHeadAttention>(definition, multi_head_attention);
}

}  // namespace ff::reference
