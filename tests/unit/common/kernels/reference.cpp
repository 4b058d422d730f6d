#include "tests/unit/common/kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "common/operators/conv2d.h"
#include "common/operators/elementwise.h"
#include "common/operators/linear.h"
#include "common/operators/normalization.h"
#include "common/operators/pool2d.h"
#include "common/operators/rearrange.h"
#include "common/operators/sequence.h"
#include "common/operators/softmax.h"
#include "common/philox.h"
#include "tests/unit/common/kernels/reference_taped.h"

namespace ff::reference {
namespace {

size_t at(const Shape& s, int64_t n, int64_t c, int64_t h, int64_t w) {
  return static_cast<size_t>(((n * s[1] + c) * s[2] + h) * s[3] + w);
}
size_t elements(const Shape& shape) { return static_cast<size_t>(volume(shape)); }

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

Values conv_forward(const Conv2d& conv, const Operands& x, bool with_relu) {
  const Shape& out = conv.outputs()[0].shape;
  Values y(elements(out), 0);
  for_each_product(conv, [&](size_t o, size_t i, size_t w) { y[o] += x.inputs[0][i] * x.parameters[0][w]; });
  const size_t plane = static_cast<size_t>(out[2] * out[3]);
  for (size_t o = 0; o < y.size(); ++o) {
    if (conv.bias) y[o] += x.parameters[1][o / plane % static_cast<size_t>(out[1])];
    if (with_relu && conv.relu) y[o] = std::max(0.0, y[o]);
  }
  return y;
}

Gradients conv_backward(const Conv2d& conv, const Operands& x, Values dy) {
  const Values y = conv_forward(conv, x, true);
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

// Calls visit(output, inputs of its window, divisor of an average).
template <class Visit>
void for_each_window(const Pool2d& pool, const Visit& visit) {
  const Shape& in = pool.inputs()[0].shape;
  const Shape& out = pool.outputs()[0].shape;
  for (int64_t n = 0; n < out[0]; ++n)
    for (int64_t c = 0; c < out[1]; ++c)
      for (int64_t h = 0; h < out[2]; ++h)
        for (int64_t w = 0; w < out[3]; ++w) {
          Vector<size_t> window;
          for (int64_t kh = 0; kh < pool.height.kernel; ++kh)
            for (int64_t kw = 0; kw < pool.width.kernel; ++kw) {
              const int64_t ih = h * pool.height.stride - pool.height.padding + kh,
                            iw = w * pool.width.stride - pool.width.padding + kw;
              if (ih >= 0 && ih < in[2] && iw >= 0 && iw < in[3]) window.push_back(at(in, n, c, ih, iw));
            }
          const double divisor = pool.count_padding ? static_cast<double>(pool.height.kernel * pool.width.kernel)
                                                    : static_cast<double>(window.size());
          visit(at(out, n, c, h, w), window, divisor);
        }
}

size_t largest(const Vector<size_t>& window, const Values& x) {
  size_t best = window[0];
  for (size_t i : window)
    if (x[i] > x[best]) best = i;
  return best;
}

Values pool_forward(const Pool2d& pool, const Values& x) {
  Values y(elements(pool.outputs()[0].shape), 0);
  for_each_window(pool, [&](size_t o, const Vector<size_t>& window, double divisor) {
    if (pool.method == Pool2d::Method::max) y[o] = x[largest(window, x)];
    else
      for (size_t i : window) y[o] += x[i] / divisor;
  });
  return y;
}

Values pool_backward(const Pool2d& pool, const Values& x, const Values& dy) {
  Values dx(x.size(), 0);
  for_each_window(pool, [&](size_t o, const Vector<size_t>& window, double divisor) {
    if (pool.method == Pool2d::Method::max) dx[largest(window, x)] += dy[o];
    else
      for (size_t i : window) dx[i] += dy[o] / divisor;
  });
  return dx;
}

Values linear_forward(const Linear& linear, const Operands& x) {
  const size_t in = static_cast<size_t>(linear.in_features), out = static_cast<size_t>(linear.out_features),
               rows = x.inputs[0].size() / in;
  Values y(rows * out, 0);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      for (size_t i = 0; i < in; ++i) y[r * out + o] += x.inputs[0][r * in + i] * x.parameters[0][o * in + i];
      if (linear.bias) y[r * out + o] += x.parameters[1][o];
      if (linear.relu) y[r * out + o] = std::max(0.0, y[r * out + o]);
    }
  return y;
}

Gradients linear_backward(const Linear& linear, const Operands& x, Values dy) {
  const size_t in = static_cast<size_t>(linear.in_features), out = static_cast<size_t>(linear.out_features),
               rows = x.inputs[0].size() / in;
  const Values y = linear_forward(linear, x);
  Gradients d{{Values(x.inputs[0].size(), 0)}, {Values(x.parameters[0].size(), 0)}};
  if (linear.bias) d.parameters.emplace_back(out, 0.0);
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      const double g = linear.relu && !(y[r * out + o] > 0) ? 0 : dy[r * out + o];
      for (size_t i = 0; i < in; ++i) {
        d.inputs[0][r * in + i] += g * x.parameters[0][o * in + i];
        d.parameters[0][o * in + i] += g * x.inputs[0][r * in + i];
      }
      if (linear.bias) d.parameters[1][o] += g;
    }
  return d;
}

double apply(Elementwise::Function f, double x) {
  switch (f) {
    case Elementwise::Function::relu: return std::max(0.0, x);
    case Elementwise::Function::tanh: return std::tanh(x);
    case Elementwise::Function::sigmoid: return 1 / (1 + std::exp(-x));
    case Elementwise::Function::gelu: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    default: return x;
  }
}

double slope(Elementwise::Function f, double x) {
  const double y = apply(f, x);
  switch (f) {
    case Elementwise::Function::relu: return x > 0 ? 1 : 0;
    case Elementwise::Function::tanh: return 1 - y * y;
    case Elementwise::Function::sigmoid: return y * (1 - y);
    case Elementwise::Function::gelu:
      return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    default: return 1;
  }
}

double dropout_factor(const Dropout& dropout, const Randomness& r, size_t index) {
  const float uniform = uniform_at(random_stream(r.seed, r.operator_name), index, static_cast<uint64_t>(r.iteration));
  return uniform >= static_cast<float>(dropout.rate) ? 1 / (1 - dropout.rate) : 0;
}

double lrn_base(const LocalResponseNormalization& lrn, const Shape& s, const Values& x, int64_t n, int64_t c, int64_t h,
                int64_t w) {
  double sum = 0;
  for (int64_t j = std::max<int64_t>(0, c - lrn.size / 2); j <= std::min(lrn.channels - 1, c + lrn.size / 2); ++j)
    sum += x[at(s, n, j, h, w)] * x[at(s, n, j, h, w)];
  return lrn.bias + lrn.alpha / static_cast<double>(lrn.size) * sum;
}

template <class Visit>
void for_each_pixel(const Shape& s, const Visit& visit) {
  for (int64_t n = 0; n < s[0]; ++n)
    for (int64_t c = 0; c < s[1]; ++c)
      for (int64_t h = 0; h < s[2]; ++h)
        for (int64_t w = 0; w < s[3]; ++w) visit(n, c, h, w);
}

Values lrn_forward(const LocalResponseNormalization& lrn, const Values& x) {
  const Shape& s = lrn.outputs()[0].shape;
  Values y(x.size());
  for_each_pixel(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    y[at(s, n, c, h, w)] = x[at(s, n, c, h, w)] * std::pow(lrn_base(lrn, s, x, n, c, h, w), -lrn.beta);
  });
  return y;
}

Values lrn_backward(const LocalResponseNormalization& lrn, const Values& x, const Values& dy) {
  const Shape& s = lrn.outputs()[0].shape;
  Values dx(x.size(), 0);
  // what output c contributes to every input of its window
  for_each_pixel(s, [&](int64_t n, int64_t c, int64_t h, int64_t w) {
    const size_t o = at(s, n, c, h, w);
    const double base = lrn_base(lrn, s, x, n, c, h, w);
    dx[o] += dy[o] * std::pow(base, -lrn.beta);
    for (int64_t j = std::max<int64_t>(0, c - lrn.size / 2); j <= std::min(lrn.channels - 1, c + lrn.size / 2); ++j)
      dx[at(s, n, j, h, w)] -= dy[o] * x[o] * lrn.beta * std::pow(base, -lrn.beta - 1) * 2 * lrn.alpha /
                               static_cast<double>(lrn.size) * x[at(s, n, j, h, w)];
  });
  return dx;
}

// visit(output index, input, input index)
template <class Visit>
void for_each_joined(const Concat& concat, const Visit& visit) {
  const Shape& out = concat.outputs()[0].shape;
  size_t inner = 1, outer = 1;
  for (int a = 0; a < static_cast<int>(out.size()); ++a)
    (a < concat.axis ? outer : a > concat.axis ? inner : inner) *= a == concat.axis ? 1 : static_cast<size_t>(out[a]);
  for (size_t i = 0; i < concat.inputs().size(); ++i) {
    const size_t size = static_cast<size_t>(concat.inputs()[i].shape[concat.axis]);
    for (size_t o = 0; o < outer; ++o)
      for (size_t m = 0; m < size; ++m)
        for (size_t k = 0; k < inner; ++k)
          visit((o * static_cast<size_t>(out[concat.axis]) + static_cast<size_t>(concat.offsets[i]) + m) * inner + k, i,
                (o * size + m) * inner + k);
  }
}

Values softmax_rows(const Values& x, size_t classes) {
  Values y(x.size());
  for (size_t row = 0; row < x.size(); row += classes) {
    const double* values = x.data() + row;
    const double most = *std::max_element(values, values + classes);
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += y[row + c] = std::exp(x[row + c] - most);
    for (size_t c = 0; c < classes; ++c) y[row + c] /= sum;
  }
  return y;
}

// [batch, length, channel] as [batch, channel, 1, length], and back.
Values swap_positions(const Values& x, int64_t batch, int64_t rows, int64_t columns) {
  Values y(x.size());
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) y[(n * columns + c) * rows + r] = x[(n * rows + r) * columns + c];
  return y;
}
Values sequence_to_image(const Values& x, const Shape& sequence) {
  return swap_positions(x, sequence[0], sequence[1], sequence[2]);
}
Values image_to_sequence(const Values& x, const Shape& sequence) {
  return swap_positions(x, sequence[0], sequence[2], sequence[1]);
}

// What conv1d and pool1d are on images.
const OperatorDefinition* image_form(const OperatorDefinition& definition) {
  if (const auto* conv = dynamic_cast<const Conv1d*>(&definition)) return &conv->image;
  if (const auto* pool = dynamic_cast<const Pool1d*>(&definition)) return &pool->image;
  return nullptr;
}

TapedOperands on_tape(const OperatorDefinition& definition, const Operands& x, Tape& tape) {
  TapedOperands taped;
  for (size_t i = 0; i < x.inputs.size(); ++i) {
    taped.inputs.emplace_back();
    for (double value : x.inputs[i])
      taped.inputs.back().push_back(definition.differentiable_input(static_cast<int>(i)) ? tape.variable(value)
                                                                                         : Number(value));
  }
  for (const Values& parameter : x.parameters) {
    taped.parameters.emplace_back();
    for (double value : parameter) taped.parameters.back().push_back(tape.variable(value));
  }
  return taped;
}

Gradients taped_backward(const OperatorDefinition& definition, const Operands& x,
                         const Vector<Values>& output_gradients) {
  Tape tape;
  const TapedOperands taped = on_tape(definition, x, tape);
  const Vector<Numbers> outputs = taped_forward(definition, taped);
  for (size_t o = 0; o < outputs.size(); ++o)
    for (size_t k = 0; k < outputs[o].size(); ++k) tape.seed(outputs[o][k], output_gradients[o][k]);
  tape.sweep();
  Gradients gradients;
  const auto gradients_of = [&](const Numbers& numbers) {
    Values values;
    for (const Number& number : numbers)
      if (number.tape) values.push_back(tape.gradient(number));
    return values;
  };
  for (const Numbers& input : taped.inputs) gradients.inputs.push_back(gradients_of(input));
  for (const Numbers& parameter : taped.parameters) gradients.parameters.push_back(gradients_of(parameter));
  return gradients;
}

}  // namespace

Vector<Values> forward(const OperatorDefinition& definition, const Operands& x, const Randomness& randomness) {
  if (const OperatorDefinition* image = image_form(definition)) {
    const Values y =
        forward(*image, {{sequence_to_image(x.inputs[0], definition.inputs()[0].shape)}, x.parameters}, randomness)[0];
    return {image_to_sequence(y, definition.outputs()[0].shape)};
  }
  Tape tape;
  if (const Vector<Numbers> taped = taped_forward(definition, on_tape(definition, x, tape)); !taped.empty()) {
    Vector<Values> values;
    for (const Numbers& output : taped) {
      values.emplace_back();
      for (const Number& number : output) values.back().push_back(number.value);
    }
    return values;
  }
  if (const auto* conv = dynamic_cast<const Conv2d*>(&definition)) return {conv_forward(*conv, x, true)};
  if (const auto* pool = dynamic_cast<const Pool2d*>(&definition)) return {pool_forward(*pool, x.inputs[0])};
  if (const auto* linear = dynamic_cast<const Linear*>(&definition)) return {linear_forward(*linear, x)};
  if (const auto* lrn = dynamic_cast<const LocalResponseNormalization*>(&definition))
    return {lrn_forward(*lrn, x.inputs[0])};
  Values y(elements(definition.outputs()[0].shape), 0);
  if (const auto* elementwise = dynamic_cast<const Elementwise*>(&definition)) {
    for (size_t i = 0; i < y.size(); ++i) {
      if (elementwise->function == Elementwise::Function::mul) y[i] = x.inputs[0][i] * x.inputs[1][i];
      else if (elementwise->function == Elementwise::Function::sub) y[i] = x.inputs[0][i] - x.inputs[1][i];
      else
        for (const Values& input : x.inputs) y[i] += apply(elementwise->function, input[i]);
    }
  } else if (const auto* dropout = dynamic_cast<const Dropout*>(&definition)) {
    for (size_t i = 0; i < y.size(); ++i) y[i] = x.inputs[0][i] * dropout_factor(*dropout, randomness, i);
  } else if (const auto* concat = dynamic_cast<const Concat*>(&definition)) {
    for_each_joined(*concat, [&](size_t o, size_t i, size_t k) { y[o] = x.inputs[i][k]; });
  } else if (dynamic_cast<const Flatten*>(&definition)) {
    y = x.inputs[0];
  } else if (const auto* softmax = dynamic_cast<const Softmax*>(&definition)) {
    y = softmax_rows(x.inputs[0], static_cast<size_t>(softmax->classes));
  } else if (const auto* loss = dynamic_cast<const SoftmaxCrossEntropy*>(&definition)) {
    const size_t classes = static_cast<size_t>(loss->classes);
    const Values p = softmax_rows(x.inputs[0], classes);
    Values correct(y.size());
    for (size_t row = 0; row < y.size(); ++row) {
      const size_t label = static_cast<size_t>(x.inputs[1][row]);
      y[row] = -std::log(p[row * classes + label]);
      const auto first = x.inputs[0].begin() + static_cast<int64_t>(row * classes);
      correct[row] =
          static_cast<size_t>(std::max_element(first, first + static_cast<int64_t>(classes)) - first) == label ? 1 : 0;
    }
    return {y, correct};
  } else {
    throw std::logic_error("no reference for " + definition.type());
  }
  return {y};
}

Gradients backward(const OperatorDefinition& definition, const Operands& x, const Vector<Values>& output_gradients,
                   const Randomness& randomness) {
  const Values& dy = output_gradients[0];
  if (const OperatorDefinition* image = image_form(definition)) {
    Gradients gradients =
        backward(*image, {{sequence_to_image(x.inputs[0], definition.inputs()[0].shape)}, x.parameters},
                 {sequence_to_image(dy, definition.outputs()[0].shape)}, randomness);
    gradients.inputs[0] = image_to_sequence(gradients.inputs[0], definition.inputs()[0].shape);
    return gradients;
  }
  Tape tape;
  if (!taped_forward(definition, on_tape(definition, x, tape)).empty())
    return taped_backward(definition, x, output_gradients);
  if (const auto* conv = dynamic_cast<const Conv2d*>(&definition)) return conv_backward(*conv, x, dy);
  if (const auto* linear = dynamic_cast<const Linear*>(&definition)) return linear_backward(*linear, x, dy);
  if (const auto* pool = dynamic_cast<const Pool2d*>(&definition)) return {{pool_backward(*pool, x.inputs[0], dy)}, {}};
  if (const auto* lrn = dynamic_cast<const LocalResponseNormalization*>(&definition))
    return {{lrn_backward(*lrn, x.inputs[0], dy)}, {}};
  Gradients d;
  for (const Values& input : x.inputs) d.inputs.emplace_back(input.size(), 0.0);
  if (const auto* elementwise = dynamic_cast<const Elementwise*>(&definition)) {
    for (size_t i = 0; i < x.inputs.size(); ++i)
      for (size_t k = 0; k < dy.size(); ++k) {
        if (elementwise->function == Elementwise::Function::mul) d.inputs[i][k] = dy[k] * x.inputs[1 - i][k];
        else if (elementwise->function == Elementwise::Function::sub) d.inputs[i][k] = i == 0 ? dy[k] : -dy[k];
        else d.inputs[i][k] = dy[k] * slope(elementwise->function, x.inputs[i][k]);
      }
  } else if (const auto* dropout = dynamic_cast<const Dropout*>(&definition)) {
    for (size_t k = 0; k < dy.size(); ++k) d.inputs[0][k] = dy[k] * dropout_factor(*dropout, randomness, k);
  } else if (const auto* concat = dynamic_cast<const Concat*>(&definition)) {
    for_each_joined(*concat, [&](size_t o, size_t i, size_t k) { d.inputs[i][k] = dy[o]; });
  } else if (dynamic_cast<const Flatten*>(&definition)) {
    d.inputs[0] = dy;
  } else if (const auto* softmax = dynamic_cast<const Softmax*>(&definition)) {
    const size_t classes = static_cast<size_t>(softmax->classes);
    const Values y = softmax_rows(x.inputs[0], classes);
    for (size_t row = 0; row < y.size(); row += classes) {
      double sum = 0;
      for (size_t c = 0; c < classes; ++c) sum += y[row + c] * dy[row + c];
      for (size_t c = 0; c < classes; ++c) d.inputs[0][row + c] = y[row + c] * (dy[row + c] - sum);
    }
  } else if (const auto* loss = dynamic_cast<const SoftmaxCrossEntropy*>(&definition)) {
    const size_t classes = static_cast<size_t>(loss->classes);
    d.inputs[0] = softmax_rows(x.inputs[0], classes);
    d.inputs[1].clear();
    for (size_t row = 0; row < dy.size(); ++row) {
      d.inputs[0][row * classes + static_cast<size_t>(x.inputs[1][row])] -= 1;
      for (size_t c = 0; c < classes; ++c)
        d.inputs[0][row * classes + c] *= dy[row] * loss->weight / static_cast<double>(dy.size());
    }
  } else {
    throw std::logic_error("no reference for " + definition.type());
  }
  return d;
}

}  // namespace ff::reference
