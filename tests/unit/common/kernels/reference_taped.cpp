#include "tests/unit/common/kernels/reference_taped.h"

#include "common/operators/attention.h"
#include "common/operators/embedding.h"
#include "common/operators/lstm.h"
#include "common/operators/matmul.h"
#include "common/operators/mean.h"
#include "common/operators/normalization.h"
#include "common/operators/rearrange.h"

namespace ff::reference {
namespace {

// A row-major tensor of numbers.
class View {
 public:
  View(Numbers& numbers, Shape shape) : numbers_(numbers), shape_(std::move(shape)) {}
  template <class... Index>
  Number& operator()(Index... index) const {
    int64_t at = 0;
    size_t axis = 0;
    ((at = at * shape_[axis++] + static_cast<int64_t>(index)), ...);
    return numbers_[at];
  }
  int64_t size(size_t axis) const { return shape_[axis]; }

 private:
  Numbers& numbers_;
  Shape shape_;
};

// What a forward pass reads and writes, as views.
struct Operation {
  Operation(const OperatorDefinition& definition, TapedOperands x) : operands(std::move(x)) {
    for (const TensorSpec& spec : definition.outputs()) results.emplace_back(static_cast<size_t>(volume(spec.shape)));
    for (size_t i = 0; i < operands.inputs.size(); ++i)
      inputs.emplace_back(operands.inputs[i], definition.inputs()[i].shape);
    for (size_t p = 0; p < operands.parameters.size(); ++p)
      parameters.emplace_back(operands.parameters[p], definition.parameters()[p].shape);
    for (size_t o = 0; o < results.size(); ++o) outputs.emplace_back(results[o], definition.outputs()[o].shape);
  }
  TapedOperands operands;
  Vector<Numbers> results;
  Vector<View> inputs, parameters, outputs;
};

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

void layer_norm(const LayerNorm& norm, Operation& o) {
  const size_t features = static_cast<size_t>(norm.features);
  const Numbers& x = o.operands.inputs[0];
  const double count = static_cast<double>(features);
  for (size_t row = 0; row < x.size(); row += features) {
    Number mean, variance;
    for (size_t f = 0; f < features; ++f) mean = mean + x[row + f] / count;
    for (size_t f = 0; f < features; ++f) variance = variance + (x[row + f] - mean) * (x[row + f] - mean) / count;
    for (size_t f = 0; f < features; ++f)
      o.results[0][row + f] = (x[row + f] - mean) / sqrt(variance + norm.epsilon) * o.operands.parameters[0][f] +
                              o.operands.parameters[1][f];
  }
}

void embedding(const Embedding& embedding, Operation& o) {
  const Numbers& tokens = o.operands.inputs[0];
  for (size_t t = 0; t < tokens.size(); ++t)
    for (int64_t c = 0; c < embedding.channels; ++c)
      o.results[0][t * static_cast<size_t>(embedding.channels) + static_cast<size_t>(c)] =
          o.parameters[0](tokens[t].value, c);
}

void lstm(const Lstm& lstm, Operation& o) {
  const auto gate = [&](int64_t g, int64_t n, int64_t u) {
    Number sum = o.parameters[2](g, u);
    for (int64_t i = 0; i < lstm.in_features; ++i) sum = sum + o.parameters[0](g, u, i) * o.inputs[0](n, i);
    for (int64_t i = 0; i < lstm.hidden && !lstm.first_step(); ++i)
      sum = sum + o.parameters[1](g, u, i) * o.inputs[1](n, i);
    return sum;
  };
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t u = 0; u < lstm.hidden; ++u) {
      const Number kept = lstm.first_step() ? Number(0) : sigmoid(gate(1, n, u)) * o.inputs[2](n, u);
      const Number c = kept + sigmoid(gate(0, n, u)) * tanh(gate(2, n, u));
      o.outputs[1](n, u) = c;
      o.outputs[0](n, u) = sigmoid(gate(3, n, u)) * tanh(c);
    }
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

void matmul(const Matmul& matmul, Operation& o) {
  const View& y = o.outputs[0];
  for (int64_t n = 0; n < y.size(0); ++n)
    for (int64_t i = 0; i < y.size(1); ++i)
      for (int64_t j = 0; j < y.size(2); ++j)
        for (int64_t k = 0; k < matmul.inner; ++k)
          y(n, i, j) = y(n, i, j) + matmul.scale * o.inputs[0](n, i, k) *
                                        (matmul.transposed ? o.inputs[1](n, j, k) : o.inputs[1](n, k, j));
}

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

// Rearrangements: visits every element of the output with its index.
template <class Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  Vector<int64_t> index(shape.size(), 0);
  for (int64_t i = 0, count = volume(shape); i < count; ++i) {
    int64_t rest = i;
    for (size_t axis = shape.size(); axis-- > 0;) {
      index[axis] = rest % shape[axis];
      rest /= shape[axis];
    }
    visit(static_cast<size_t>(i), index);
  }
}
size_t offset(const Shape& shape, const Vector<int64_t>& index) {
  int64_t at = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) at = at * shape[axis] + index[axis];
  return static_cast<size_t>(at);
}

void slice(const Slice& slice, Operation& o) {
  for (size_t output = 0; output < slice.outputs().size(); ++output)
    for_each_index(slice.outputs()[output].shape, [&](size_t at, Vector<int64_t> index) {
      index[slice.axis] += slice.ranges[output].begin;
      o.results[output][at] = o.operands.inputs[0][offset(slice.inputs()[0].shape, index)];
    });
}

void pad(const Pad& pad, Operation& o) {
  for_each_index(pad.inputs()[0].shape, [&](size_t at, Vector<int64_t> index) {
    for (size_t axis = 0; axis < index.size(); ++axis) index[axis] += pad.before[axis];
    o.results[0][offset(pad.outputs()[0].shape, index)] = o.operands.inputs[0][at];
  });
}

void transpose(const Transpose& transpose, Operation& o) {
  for_each_index(transpose.outputs()[0].shape, [&](size_t at, const Vector<int64_t>& index) {
    Vector<int64_t> source(index.size());
    for (size_t axis = 0; axis < index.size(); ++axis) source[transpose.axes[axis]] = index[axis];
    o.results[0][at] = o.operands.inputs[0][offset(transpose.inputs()[0].shape, source)];
  });
}

void stack(Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (size_t i = 0; i < o.inputs.size(); ++i)
      for (int64_t c = 0; c < o.outputs[0].size(2); ++c) o.outputs[0](n, i, c) = o.inputs[i](n, c);
}

void position_embedding(Operation& o) {
  for (int64_t n = 0; n < o.outputs[0].size(0); ++n)
    for (int64_t l = 0; l < o.outputs[0].size(1); ++l)
      for (int64_t c = 0; c < o.outputs[0].size(2); ++c)
        o.outputs[0](n, l, c) = o.inputs[0](n, l, c) + o.parameters[0](l, c);
}

}  // namespace

Vector<Numbers> taped_forward(const OperatorDefinition& definition, const TapedOperands& x) {
  Operation o(definition, x);
  if (const auto* op = dynamic_cast<const BatchNorm*>(&definition)) batch_norm(*op, o);
  else if (const auto* op = dynamic_cast<const LayerNorm*>(&definition)) layer_norm(*op, o);
  else if (const auto* op = dynamic_cast<const Embedding*>(&definition)) embedding(*op, o);
  else if (dynamic_cast<const PositionEmbedding*>(&definition)) position_embedding(o);
  else if (const auto* op = dynamic_cast<const Lstm*>(&definition)) lstm(*op, o);
  else if (const auto* op = dynamic_cast<const Attention*>(&definition)) attention(*op, o);
  else if (const auto* op = dynamic_cast<const MultiHeadAttention*>(&definition)) multi_head_attention(*op, o);
  else if (const auto* op = dynamic_cast<const Matmul*>(&definition)) matmul(*op, o);
  else if (const auto* op = dynamic_cast<const Mean*>(&definition)) mean(*op, o);
  else if (dynamic_cast<const Stack*>(&definition)) stack(o);
  else if (const auto* op = dynamic_cast<const Slice*>(&definition)) slice(*op, o);
  else if (const auto* op = dynamic_cast<const Pad*>(&definition)) pad(*op, o);
  else if (const auto* op = dynamic_cast<const Transpose*>(&definition)) transpose(*op, o);
  else if (dynamic_cast<const Reshape*>(&definition)) o.results[0] = o.operands.inputs[0];
  else return {};
  return o.results;
}

}  // namespace ff::reference
