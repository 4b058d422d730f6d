#include "common/operators/conv2d.h"

#include <algorithm>

#include "tests/unit/common/kernels/reference/sequence.h"

namespace ff::reference {
namespace {

// Calls visit(output, input, weight) for every product of a convolution.
template <class Visit>
void for_each_product(const Conv2d& conv, const Visit& visit) {
  const Shape& in = conv.inputs()[0].shape;
  const Shape& out = conv.outputs()[0].shape;
  const Shape& weight = conv.parameters()[0].shape;
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t c = 0; c < out[1]; ++c)
      for (int64_t h = 0; h < out[2]; ++h)
        for (int64_t w = 0; w < out[3]; ++w)
          for (int64_t i = 0; i < weight[1]; ++i)
            for (int64_t kh = 0; kh < weight[2]; ++kh)
              for (int64_t kw = 0; kw < weight[3]; ++kw) {
                const int64_t ih = h * conv.height.stride - conv.height.padding + kh * conv.height.dilation;
                const int64_t iw = w * conv.width.stride - conv.width.padding + kw * conv.width.dilation;
                if (ih < 0 || ih >= in[2] || iw < 0 || iw >= in[3]) continue;
                const int64_t channel = c / (out[1] / conv.groups) * weight[1] + i;
                visit(at(out, n, c, h, w), at(in, n, channel, ih, iw), at(weight, c, i, kh, kw));
              }
}

Values conv_forward(const Conv2d& conv, const Operands& x) {
  const Shape& out = conv.outputs()[0].shape;
  Values y(static_cast<size_t>(volume(out)), 0);
  for_each_product(conv, [&](size_t o, size_t i, size_t w) { y[o] += x.inputs[0][i] * x.parameters[0][w]; });
  const size_t plane = static_cast<size_t>(out[2] * out[3]);
  for (size_t o = 0; o < y.size(); ++o) {
    if (conv.bias) y[o] += x.parameters[1][o / plane % static_cast<size_t>(out[1])];
    if (conv.relu) y[o] = std::max(0.0, y[o]);
  }
  return y;
}

Gradients conv_backward(const Conv2d& conv, const Operands& x, Values dy) {
  const Values y = conv_forward(conv, x);
  if (conv.relu)
    for (size_t o = 0; o < dy.size(); ++o)
      if (!(y[o] > 0)) dy[o] = 0;
  Gradients d{{Values(x.inputs[0].size(), 0)}, {Values(x.parameters[0].size(), 0)}};
  for_each_product(conv, [&](size_t o, size_t i, size_t w) {
    d.inputs[0][i] += dy[o] * x.parameters[0][w];
    d.parameters[0][w] += dy[o] * x.inputs[0][i];
  });
  if (conv.bias) {
    const Shape& out = conv.outputs()[0].shape;
    d.parameters.emplace_back(static_cast<size_t>(out[1]), 0.0);
    for (size_t o = 0; o < dy.size(); ++o)
      d.parameters[1][o / static_cast<size_t>(out[2] * out[3]) % static_cast<size_t>(out[1])] += dy[o];
  }
  return d;
}

}  // namespace

Reference make_conv2d_reference(const OperatorDefinition& definition, const Randomness&) {
  const auto& conv = dynamic_cast<const Conv2d&>(definition);
  return {[&](const Operands& x) { return Vector<Values>{conv_forward(conv, x)}; },
          [&](const Operands& x, const Vector<Values>& dy) { return conv_backward(conv, x, dy[0]); }};
}

Reference make_conv1d_reference(const OperatorDefinition& definition, const Randomness& randomness) {
  const Reference image = make_conv2d_reference(dynamic_cast<const Conv1d&>(definition).image, randomness);
  return on_images(definition, image);
}

}  // namespace ff::reference
