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

// Queries (0), keys (1) or values (2) of one sample, position and head, where keys and values have heads of their own.
Numbers projected(const MultiHeadAttention& attention, Operation& o, int64_t which, int64_t n, int64_t l,
                  int64_t head) {
  const bool grouped = attention.key_value_heads < attention.heads;
  const auto weight = [&](int64_t out, int64_t in) {
    if (!grouped) return o.parameters[0](which, out, in);
    return which == 0 ? o.parameters[0](out, in) : o.parameters[1](which - 1, out, in);
  };
  const auto bias = [&](int64_t out) {
    if (!attention.bias) return Number();
    if (!grouped) return o.parameters[1](which, out);
    return which == 0 ? o.parameters[2](out) : o.parameters[3](which - 1, out);
  };
  const int64_t size = attention.head_channels;
  Numbers result;
  for (int64_t c = head * size; c < (head + 1) * size; ++c) {
    result.push_back(bias(c));
    for (int64_t in = 0; in < attention.channels; ++in)
      result.back() = result.back() + weight(c, in) * o.inputs[0](n, l, in);
  }
  return result;
}

// Pairs of channels as complex numbers, times e^(i angle).
Numbers turned(const MultiHeadAttention& attention, const Numbers& values, int64_t position) {
  Numbers result = values;
  const int64_t half = attention.rotary_channels / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double exponent = static_cast<double>(i) / static_cast<double>(half),
                 angle = static_cast<double>(position) / std::pow(attention.rotary_base, exponent);
    result[i] = values[i] * std::cos(angle) - values[i + half] * std::sin(angle);
    result[i + half] = values[i] * std::sin(angle) + values[i + half] * std::cos(angle);
  }
  return result;
}

void multi_head_attention(const MultiHeadAttention& attention, Operation& o) {
  const int64_t size = attention.head_channels, length = attention.length;
  const auto positioned = [&](int64_t which, int64_t n, int64_t l, int64_t head) {
    const Numbers values = projected(attention, o, which, n, l, head);
    return attention.rotary() ? turned(attention, values, l) : values;
  };
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t h = 0; h < attention.heads; ++h) {
      const int64_t key_head = h * attention.key_value_heads / attention.heads;
      Vector<Numbers> keys, values;
      for (int64_t l = 0; l < length; ++l) {
        keys.push_back(positioned(1, n, l, key_head));
        values.push_back(projected(attention, o, 2, n, l, key_head));
      }
      for (int64_t l = 0; l < length; ++l) {
        const Numbers query = positioned(0, n, l, h);
        Numbers scores;
        for (int64_t other = 0; other < (attention.causal ? l + 1 : length); ++other) {
          Number score;
          for (int64_t c = 0; c < size; ++c) score = score + query[c] * keys[other][c];
          scores.push_back(score / std::sqrt(static_cast<double>(size)));
        }
        const Numbers weights = softmax(scores);
        for (int64_t c = 0; c < size; ++c)
          for (size_t other = 0; other < weights.size(); ++other) {
            Number& output = o.outputs[0](n, l, h * size + c);
            output = output + weights[other] * values[other][c];
          }
      }
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
