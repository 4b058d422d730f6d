// Shapes of what nodes write, operator by operator as ONNX's specification has them.
#include <algorithm>
#include <functional>
#include <optional>

#include "common/errors.h"
#include "search/import/analysis.h"
#include "search/import/attributes.h"
#include "search/import/control_flow.h"
#include "search/import/operator_table.h"

namespace ff::importing {
namespace {

using Shapes = Vector<Shape>;

// Of a node's inputs; an input that is left out has an empty one.
std::optional<Shapes> input_shapes(const Model& model, const Node& node) {
  Shapes shapes;
  for (const std::string& input : node.inputs) {
    if (input.empty()) {
      shapes.emplace_back();
      continue;
    }
    const Constant* constant = model.constant(input);
    const auto it = model.shapes.find(input);
    if (!constant && it == model.shapes.end()) return std::nullopt;
    shapes.push_back(constant ? constant->shape : it->second);
  }
  return shapes;
}

void expect_inputs(const Model& model, const Node& node, const Shapes& in, size_t least) {
  if (in.size() < least)
    model.fail(node, "has " + std::to_string(in.size()) + " inputs, expected " + std::to_string(least));
}

void expect_rank(const Model& model, const Node& node, const Shape& shape, size_t least) {
  if (shape.size() < least)
    model.fail(node, "has an input of shape " + to_string(shape) + ", expected at least " + std::to_string(least) +
                         (least == 1 ? " axis" : " axes"));
}

Shape convolved(const Model& model, const Node& node, const Shape& in, const Vector<int64_t>& kernel,
                int64_t channels) {
  const size_t spatial = in.size() - 2;
  const Vector<int64_t> ones(spatial, 1);
  const Vector<int64_t> strides = model.integers(node, "strides", ones),
                        dilations = model.integers(node, "dilations", ones);
  const bool ceil = model.integer(node, "ceil_mode", 0) != 0;
  if (kernel.size() != spatial || strides.size() != spatial || dilations.size() != spatial)
    model.fail(node, "has a kernel, strides or dilations that do not go with an input of shape " + to_string(in));
  for (size_t i = 0; i < spatial; ++i)
    for (const int64_t value : {kernel[i], strides[i], dilations[i]})
      if (value < 1 || value > 1 << 16)
        model.fail(node, "has a kernel, stride or dilation of " + std::to_string(value));
  const Padding padding = padding_of(model, node, in, kernel);
  Shape out{in[0], channels};
  for (size_t i = 0; i < spatial; ++i) {
    const int64_t room = in[i + 2] + padding.before[i] + padding.behind[i] - (dilations[i] * (kernel[i] - 1) + 1);
    if (room < 0)
      model.fail(node, "has a kernel of " + std::to_string(kernel[i]) + " on an input of shape " + to_string(in));
    int64_t size = room / strides[i] + 1;
    // A last window may hang over the end, but begins inside (PyTorch's rule, which ONNX has since operator set 19).
    if (ceil && room % strides[i] != 0 && size * strides[i] < in[i + 2] + padding.before[i]) ++size;
    out.push_back(size);
  }
  return out;
}

Shapes conv(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  expect_rank(model, node, in[0], 3);
  if (in[1].size() != in[0].size())
    model.fail(node, "has a kernel of shape " + to_string(in[1]) + " on an input of shape " + to_string(in[0]));
  return {convolved(model, node, in[0], Vector<int64_t>(in[1].begin() + 2, in[1].end()), in[1][0])};
}

Shapes pool(const Model& model, const Node& node, const Shapes& in) {
  expect_rank(model, node, in[0], 3);
  return {convolved(model, node, in[0], model.integers(node, "kernel_shape", {}), in[0][1])};
}

Shapes global_pool(const Model& model, const Node& node, const Shapes& in) {
  expect_rank(model, node, in[0], 3);
  Shape out = in[0];
  std::fill(out.begin() + 2, out.end(), 1);
  return {out};
}

Shapes gemm(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  if (in[0].size() != 2 || in[1].size() != 2) model.fail(node, "has inputs that are no matrices");
  const bool first = model.integer(node, "transA", 0) != 0, second = model.integer(node, "transB", 0) != 0;
  if (in[0][first ? 0 : 1] != in[1][second ? 1 : 0])
    model.fail(node, "multiplies shapes " + to_string(in[0]) + " and " + to_string(in[1]));
  return {{in[0][first ? 1 : 0], in[1][second ? 0 : 1]}};
}

Shapes matmul(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  for (size_t i : {0u, 1u}) expect_rank(model, node, in[i], 1);
  Shape a = in[0], b = in[1];
  if (a.size() == 1) a.insert(a.begin(), 1);
  if (b.size() == 1) b.push_back(1);
  if (a.back() != b[b.count() - 2])
    model.fail(node, "multiplies shapes " + to_string(in[0]) + " and " + to_string(in[1]));
  Shape out = broadcast(model, node, {Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)});
  if (in[0].size() > 1) out.push_back(a[a.count() - 2]);
  if (in[1].size() > 1) out.push_back(b.back());
  return {out};
}

Shapes concat(const Model& model, const Node& node, const Shapes& in) {
  expect_rank(model, node, in[0], 1);
  Shape out = in[0];
  const int axis = model.axis(node, model.integer(node, "axis", 1), out.size());
  out[axis] = 0;
  for (const Shape& shape : in) {
    Shape expected = in[0];
    if (shape.size() == expected.size()) expected[axis] = shape[axis];
    if (shape != expected) model.fail(node, "joins shapes " + to_string(in[0]) + " and " + to_string(shape));
    out[axis] += shape[axis];
  }
  return {out};
}

Shapes gather(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  const int axis = model.axis(node, model.integer(node, "axis", 0), in[0].size());
  Shape out(in[0].begin(), in[0].begin() + axis);
  out.insert(out.end(), in[1].begin(), in[1].end());
  out.insert(out.end(), in[0].begin() + axis + 1, in[0].end());
  return {out};
}

Shapes transpose(const Model& model, const Node& node, const Shapes& in) {
  Vector<int64_t> axes;
  for (int axis = in[0].count() - 1; axis >= 0; --axis) axes.push_back(axis);
  axes = model.integers(node, "perm", axes);
  Vector<int64_t> sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  bool fits = axes.size() == in[0].size();
  for (const int i : sorted.indices()) fits = fits && sorted[i] == i;
  if (!fits) model.fail(node, "has axes " + to_string(axes) + " for a tensor of shape " + to_string(in[0]));
  Shape out;
  for (const int64_t axis : axes) out.push_back(in[0][axis]);
  return {out};
}

Shapes reshape(const Model& model, const Node& node, const Shapes& in) {
  return {reshaped(model, node, in[0], model.integers_or_input(node, "shape", 1, {}))};
}

Shapes flatten(const Model& model, const Node& node, const Shapes& in) {
  const int64_t given = model.integer(node, "axis", 1);
  const int axis = given == static_cast<int64_t>(in[0].size()) ? in[0].count() : model.axis(node, given, in[0].size());
  Shape out{1, 1};
  for (const int a : in[0].indices()) out[a < axis ? 0 : 1] *= in[0][a];
  return {out};
}

Shapes unsqueeze(const Model& model, const Node& node, const Shapes& in) {
  const Vector<int64_t> axes = model.integers_or_input(node, "axes", 1, {});
  Shape out(in[0].size() + axes.size(), 0);
  if (out.size() > 16) model.fail(node, "makes a tensor of " + std::to_string(out.size()) + " axes");
  for (const int64_t axis : axes) {
    int64_t& size = out[model.axis(node, axis, out.size())];
    if (size == 1) model.fail(node, "names axis " + std::to_string(axis) + " twice");
    size = 1;
  }
  auto next = in[0].begin();
  for (int64_t& size : out)
    if (size == 0) size = *next++;
  return {out};
}

Shapes squeeze(const Model& model, const Node& node, const Shapes& in) {
  const Vector<int64_t> axes = model.integers_or_input(node, "axes", 1, {});
  Vector<bool> drop(in[0].size(), false);
  for (const int axis : in[0].indices()) drop[axis] = axes.empty() && in[0][axis] == 1;
  for (const int64_t given : axes) {
    const int axis = model.axis(node, given, in[0].size());
    if (in[0][axis] != 1) model.fail(node, "squeezes axis " + std::to_string(axis) + " of shape " + to_string(in[0]));
    drop[axis] = true;
  }
  Shape out;
  for (const int axis : in[0].indices())
    if (!drop[axis]) out.push_back(in[0][axis]);
  return {out};
}

Shapes slice(const Model& model, const Node& node, const Shapes& in) {
  Shape out;
  for (const SliceRange& range : slice_ranges(model, node, in[0])) out.push_back(range.count);
  return {out};
}

Shapes split(const Model& model, const Node& node, const Shapes& in) {
  const int axis = model.axis(node, model.integer(node, "axis", 0), in[0].size());
  Shapes out;
  for (const int64_t size : split_sizes(model, node, in[0][axis])) {
    out.push_back(in[0]);
    out.back()[axis] = size;
  }
  return out;
}

Shapes expand(const Model& model, const Node& node, const Shapes& in) {
  const Shape asked = model.integers_or_input(node, "shape", 1, {});
  for (const int64_t size : asked)
    if (size < 0) model.fail(node, "asks for shape " + to_string(asked));
  return {broadcast(model, node, {in[0], asked})};
}

Shapes tile(const Model& model, const Node& node, const Shapes& in) {
  const Vector<int64_t> repeats = model.integers_or_input(node, "repeats", 1, {});
  Shape out = in[0];
  if (repeats.size() != out.size()) model.fail(node, "repeats " + to_string(repeats) + " of " + to_string(out));
  for (const int axis : out.indices()) {
    if (repeats[axis] < 0 || repeats[axis] > int64_t{1} << 32) model.fail(node, "repeats " + to_string(repeats));
    out[axis] *= repeats[axis];
  }
  return {out};
}

Shapes pad(const Model& model, const Node& node, const Shapes& in) {
  const Padding both = pads_of(model, node, in[0]);
  Shape out = in[0];
  for (const int axis : out.indices())
    for (const int64_t size : {both.before[axis], both.behind[axis]}) {
      if (size < -out[axis] || size > 1 << 24) model.fail(node, "pads by " + std::to_string(size));
      out[axis] += size;
    }
  return {out};
}

Shapes reduce(const Model& model, const Node& node, const Shapes& in) {
  const bool keep = model.integer(node, "keepdims", 1) != 0;
  Vector<bool> over(in[0].size(), false);
  const Vector<int64_t> axes = model.integers_or_input(node, "axes", 1, {});
  for (const int64_t axis : axes) over[model.axis(node, axis, over.size())] = true;
  const bool all = axes.empty() && model.integer(node, "noop_with_empty_axes", 0) == 0;
  Shape out;
  for (const int axis : in[0].indices()) {
    if (!all && !over[axis]) out.push_back(in[0][axis]);
    else if (keep) out.push_back(1);
  }
  return {out};
}

Shapes lstm(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 3);
  if (in[0].size() != 3 || in[1].size() != 3 || in[2].size() != 3)
    model.fail(node, "has shapes " + to_string(in[0]) + ", " + to_string(in[1]) + ", " + to_string(in[2]));
  const int64_t directions = in[1][0], hidden = in[2][2];
  const bool batch_first = model.integer(node, "layout", 0) != 0;
  const Shape states = batch_first ? Shape{in[0][0], directions, hidden} : Shape{directions, in[0][1], hidden};
  const Shape all =
      batch_first ? Shape{in[0][0], in[0][1], directions, hidden} : Shape{in[0][0], directions, in[0][1], hidden};
  return {all, states, states};
}

// Of a GRU or RNN with so many gates.
Shapes recurrent(const Model& model, const Node& node, const Shapes& in) {
  return {lstm(model, node, in)[0], lstm(model, node, in)[1]};
}

Shapes conv_transpose(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  expect_rank(model, node, in[0], 3);
  if (in[1].size() != in[0].size())
    model.fail(node, "has a kernel of shape " + to_string(in[1]) + " on an input of shape " + to_string(in[0]));
  const size_t spatial = in[0].size() - 2;
  const Vector<int64_t> ones(spatial, 1), none(spatial, 0);
  const Vector<int64_t> strides = model.integers(node, "strides", ones),
                        dilations = model.integers(node, "dilations", ones),
                        more = model.integers(node, "output_padding", none),
                        pads = model.integers(node, "pads", Vector<int64_t>(2 * spatial, 0));
  if (model.text(node, "auto_pad", "NOTSET") != "NOTSET" || node.attributes.count("output_shape"))
    model.fail(node, "has auto_pad or output_shape, which are not understood");
  if (strides.size() != spatial || dilations.size() != spatial || more.size() != spatial || pads.size() != 2 * spatial)
    model.fail(node, "has strides, dilations or pads that do not go with an input of shape " + to_string(in[0]));
  Shape out{in[0][0], in[1][1] * model.integer(node, "group", 1)};
  for (size_t i = 0; i < spatial; ++i) {
    for (const int64_t value : {strides[i], dilations[i], pads[i], pads[i + spatial], more[i]})
      if (value < 0 || value > 1 << 16) model.fail(node, "has a stride, dilation or pad of " + std::to_string(value));
    out.push_back((in[0][i + 2] - 1) * strides[i] + more[i] + (in[1][i + 2] - 1) * dilations[i] + 1 - pads[i] -
                  pads[i + spatial]);
    if (out.back() < 1) model.fail(node, "leaves nothing of an input of shape " + to_string(in[0]));
  }
  return {out};
}

Shapes resize(const Model& model, const Node& node, const Shapes& in) {
  Shape out = in[0];
  if (node.has_input(3)) {
    const Constant* sizes = model.constant(node.inputs[3]);
    if (!sizes) model.fail(node, "has sizes that are not constant");
    const Vector<int64_t> asked = sizes->as_integers();
    const Vector<int64_t> axes = model.integers(node, "axes", {});
    if (asked.size() != (axes.empty() ? out.size() : axes.size()))
      model.fail(node, "has sizes " + to_string(asked) + " for shape " + to_string(in[0]));
    for (const int i : asked.indices()) out[axes.empty() ? i : model.axis(node, axes[i], out.size())] = asked[i];
  } else {
    const Vector<double> scales = resize_scales(model, node, in[0], {});
    for (const int axis : out.indices())
      out[axis] = static_cast<int64_t>(static_cast<double>(in[0][axis]) * scales[axis] + 1e-6);
  }
  for (const int64_t size : out)
    if (size < 1 || size > 1 << 24) model.fail(node, "makes a tensor of shape " + to_string(out));
  return {out};
}

Shapes depth_to_space(const Model& model, const Node& node, const Shapes& in) {
  const int64_t block = model.integer(node, "blocksize", 1);
  expect_rank(model, node, in[0], 4);
  if (block < 1 || block > 1 << 12) model.fail(node, "has blocks of " + std::to_string(block));
  if (node.op == "DepthToSpace") return {{in[0][0], in[0][1] / (block * block), in[0][2] * block, in[0][3] * block}};
  return {{in[0][0], in[0][1] * block * block, in[0][2] / block, in[0][3] / block}};
}

// x and a constant matrix [out, in] for one of its axes.
Shapes fixed_product(const Model& model, const Node& node, const Shapes& in) {
  Shape out = in[0];
  out[model.axis(node, model.integer(node, "axis", -1), out.size())] = in[1][0];
  return {out};
}

Shapes linear(const Model&, const Node&, const Shapes& in) {
  Shape out = in[0];
  out.back() = in[1][1];
  return {out};
}

Shapes einsum(const Model& model, const Node& node, const Shapes& in) {
  const Vector<std::string> letters = einsum_letters(model, node);
  std::map<char, int64_t> sizes;
  if (letters.size() != in.size() + 1) model.fail(node, "has another number of inputs than its equation");
  for (const int i : in.indices()) {
    if (letters[i].size() != in[i].size())
      model.fail(node, "has an input of shape " + to_string(in[i]) + " for \"" + letters[i] + "\"");
    for (const int axis : in[i].indices())
      if (sizes.emplace(letters[i][static_cast<size_t>(axis)], in[i][axis]).first->second != in[i][axis])
        model.fail(node, "has different sizes for one letter");
  }
  Shape out;
  for (const char letter : letters.back()) {
    if (!sizes.count(letter)) model.fail(node, "gives a letter that no input has");
    out.push_back(sizes[letter]);
  }
  return {out};
}

Shapes same(const Model&, const Node& node, const Shapes& in) {
  return Shapes(node.outputs.size(), in[0]);  // Dropout's mask has the shape, too
}

// The first output has the first input's shape; others (running statistics, saved means) nobody reads.
Shapes one_hot(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 3);
  const Constant* depth = model.constant(node.inputs[1]);
  if (!depth || !depth->is_scalar()) model.fail(node, "has a depth that is not constant");
  Shape out = in[0];
  const int axis = model.axis(node, model.integer(node, "axis", -1), out.size() + 1);
  out.insert(out.begin() + axis, depth->as_integers()[0]);
  return {out};
}

Shapes gather_elements(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  if (in[0].size() != in[1].size())
    model.fail(node, "has indices of shape " + to_string(in[1]) + " for shape " + to_string(in[0]));
  return {in[1]};
}

// SoftmaxCrossEntropyLoss also has an output of logarithms.
Shapes label_loss(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 2);
  const bool none = model.text(node, "reduction", "mean") == "none";
  return {none ? in[1] : Shape{}, in[0]};
}

// Of queries, keys and values with an axis of heads, or without one.
Shapes attention(const Model& model, const Node& node, const Shapes& in) {
  expect_inputs(model, node, in, 3);
  Shape out = in[0];
  if ((out.size() != 3 && out.size() != 4) || in[2].size() != out.size())
    model.fail(node, "has inputs of shapes " + to_string(in[0]) + " and " + to_string(in[2]));
  if (out.size() == 4) {
    out[3] = in[2][3];
  } else {
    const int64_t heads = model.integer(node, "kv_num_heads", 0);
    if (heads < 1 || in[2][2] % heads != 0) model.fail(node, "has " + std::to_string(heads) + " heads of values");
    out[2] = in[2][2] / heads * model.integer(node, "q_num_heads", 0);
  }
  return {out};
}

Shapes first(const Model&, const Node&, const Shapes& in) { return {in[0]}; }

Shapes broadcasting(const Model& model, const Node& node, const Shapes& in) { return {broadcast(model, node, in)}; }

using Rule = Shapes (*)(const Model&, const Node&, const Shapes&);

const std::map<std::string, Rule>& rules() {
  static const std::map<std::string, Rule> table = operator_table<Rule>({
      {"Conv", conv},
      {"MaxPool AveragePool", pool},
      {"GlobalMaxPool GlobalAveragePool", global_pool},
      {"Gemm", gemm},
      {"MatMul", matmul},
      {"Concat", concat},
      {"Gather", gather},
      {"Transpose", transpose},
      {"Reshape", reshape},
      {"Flatten", flatten},
      {"Unsqueeze", unsqueeze},
      {"Squeeze", squeeze},
      {"Slice", slice},
      {"Split", split},
      {"Expand", expand},
      {"Tile", tile},
      {"Pad", pad},
      {"LSTM", lstm},
      {"GRU RNN", recurrent},
      {"ConvTranspose", conv_transpose},
      {"Resize Upsample", resize},
      {"DepthToSpace SpaceToDepth", depth_to_space},
      {"FixedProduct", fixed_product},
      {"Linear", linear},
      {"Dropout", same},
      {"Einsum", einsum},
      {"OneHot", one_hot},
      {"Attention", attention},
      {"GatherElements", gather_elements},
      {"SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss", label_loss},
      {"ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare "
       "ReduceLogSum ReduceLogSumExp",
       reduce},
      {"Add Sub Mul Div Pow Max Min Mod Where Equal Less LessOrEqual Greater GreaterOrEqual "
       "And Or Xor Sum Mean",
       broadcasting},
      {"BatchNormalization LayerNormalization RMSNormalization InstanceNormalization "
       "GroupNormalization InverseSqrt LogSigmoid Softsign Celu Swish Sign Round ScatterND LRN Relu "
       "Sigmoid Tanh Gelu Silu Selu Softplus Mish HardSigmoid HardSwish Clip LeakyRelu PRelu Elu "
       "Identity Cast Neg Abs Sqrt Exp Log Erf CumSum Reciprocal Sin Cos Not Softmax LogSoftmax "
       "Trilu Floor Ceil Square RotaryEmbedding IsNaN",
       first},
  });
  return table;
}

ElementType output_type(const Model& model, const Node& node) {
  static const std::set<std::string> booleans = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual",
                                                 "And",   "Or",   "Not",         "Xor",     "IsNaN"};
  if (booleans.count(node.op)) return ElementType::boolean;
  if (node.op == "OneHot") return ElementType::f32;
  if (node.op == "Cast") {
    return type_of_cast(model.integer(node, "to", 1)).value_or(ElementType::integer);
  }
  for (const size_t i : {node.op == "Where" ? 1u : 0u})
    if (node.has_input(i)) {
      if (const Constant* constant = model.constant(node.inputs[i])) return constant->type;
      if (const auto it = model.types.find(node.inputs[i]); it != model.types.end()) return it->second;
    }
  return ElementType::f32;
}

}  // namespace

Vector<std::string> einsum_letters(const Model& model, const Node& node) {
  std::string equation;
  for (const char c : model.text(node, "equation", ""))
    if (c != ' ') equation += c;
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || equation.find('.') != std::string::npos)
    model.fail(node, "has the equation \"" + equation + "\", expected one with \"->\" and without \".\"");
  Vector<std::string> letters{""};
  for (const char c : equation.substr(0, arrow)) {
    if (c == ',') letters.emplace_back();
    else letters.back() += c;
  }
  letters.push_back(equation.substr(arrow + 2));
  return letters;
}

Shape broadcast(const Model& model, const Node& node, const Vector<Shape>& shapes) {
  Shape out;
  for (const Shape& shape : shapes) {
    if (shape.size() > out.size()) out.insert(out.begin(), shape.size() - out.size(), 1);
    for (const int axis : shape.indices()) {
      int64_t& size = out[out.count() - shape.count() + axis];
      if (size != shape[axis] && size != 1 && shape[axis] != 1) {
        std::string all;
        for (const Shape& each : shapes) all += (all.empty() ? "" : " and ") + to_string(each);
        model.fail(node, "has inputs of shapes " + all + ", which do not go together");
      }
      if (size == 1) size = shape[axis];
    }
  }
  return out;
}

Shape reshaped(const Model& model, const Node& node, const Shape& input, const Vector<int64_t>& asked) {
  Shape out = asked;
  int unknown = -1;
  double elements = 1;
  const bool zero_is_zero = model.integer(node, "allowzero", 0) != 0;
  for (const int axis : out.indices()) {
    if (out[axis] == 0 && !zero_is_zero && axis < input.count()) out[axis] = input[axis];
    if (out[axis] == -1 && unknown < 0) unknown = axis;
    else elements *= static_cast<double>(out[axis]);
  }
  const int64_t all = volume(input);
  const bool fits = elements > 0 && elements <= static_cast<double>(std::max<int64_t>(all, 1));
  if (unknown >= 0 && fits && all % static_cast<int64_t>(elements) == 0) {
    out[unknown] = all / static_cast<int64_t>(elements);
    elements = static_cast<double>(all);
  }
  for (const int64_t size : out)
    if (size < 0 || elements != static_cast<double>(all))
      model.fail(node, "asks for shape " + to_string(asked) + " of a tensor of shape " + to_string(input) +
                           "; a model that was exported for a fixed batch can only be imported for that one");
  return out;
}

Vector<SliceRange> slice_ranges(const Model& model, const Node& node, const Shape& input) {
  const Vector<int64_t> begins = model.integers_or_input(node, "starts", 1, {}),
                        ends = model.integers_or_input(node, "ends", 2, {});
  Vector<int64_t> axes, steps(begins.size(), 1);
  for (const int i : begins.indices()) axes.push_back(i);
  axes = model.integers_or_input(node, "axes", 3, axes);
  steps = model.integers_or_input(node, "steps", 4, steps);
  if (ends.size() != begins.size() || axes.size() != begins.size() || steps.size() != begins.size())
    model.fail(node, "has different numbers of starts, ends, axes and steps");
  Vector<SliceRange> ranges;
  for (const int64_t size : input) ranges.push_back({0, 1, size});
  for (const int i : begins.indices()) {
    const int axis = model.axis(node, axes[i], input.size());
    const int64_t size = input[axis], step = std::min(steps[i], std::max<int64_t>(1, size));  // more is one element
    if (step == 0 || step < -size - 1) model.fail(node, "has a step of " + std::to_string(step));
    const auto from_front = [&](int64_t at) { return at < 0 && at >= -size ? at + size : at; };
    const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
    // After a negative step, an end below -size means "to the first".
    const int64_t begin = std::clamp(from_front(begins[i]), least, most),
                  end = std::clamp(from_front(ends[i]), least, most);
    const int64_t distance = step > 0 ? end - begin : begin - end, stride = std::abs(step);
    ranges[axis] = {begin, step, distance > 0 ? (distance - 1) / stride + 1 : 0};
    if (ranges[axis].count == 0) ranges[axis].begin = 0;
  }
  return ranges;
}

Vector<int64_t> split_sizes(const Model& model, const Node& node, int64_t size) {
  Vector<int64_t> sizes = model.integers_or_input(node, "split", 1, {});
  const int64_t outputs = static_cast<int64_t>(node.outputs.size());
  if (sizes.empty())
    for (int64_t i = 0, each = (size + outputs - 1) / outputs; i < outputs; ++i)
      sizes.push_back(std::clamp<int64_t>(size - i * each, 0, each));
  int64_t sum = 0;
  for (const int64_t part : sizes) {
    if (part < 0 || part > size) model.fail(node, "splits " + std::to_string(size) + " into " + to_string(sizes));
    sum += part;
  }
  if (sum != size || static_cast<int64_t>(sizes.size()) != outputs)
    model.fail(node, "splits " + std::to_string(size) + " into " + to_string(sizes) + " for " +
                         std::to_string(outputs) + " outputs");
  return sizes;
}

Vector<double> resize_scales(const Model& model, const Node& node, const Shape& input, const Shape& output) {
  Vector<double> scales(input.size(), 1.0);
  const size_t place = node.op == "Upsample" || model.opset < 11 ? 1 : 2;
  const Constant* constant = node.has_input(place) ? model.constant(node.inputs[place]) : nullptr;
  if (node.has_input(place) && !constant) model.fail(node, "has factors that are not constant");
  Vector<double> given;
  if (const auto it = node.attributes.find("scales"); it != node.attributes.end())
    if (const auto* list = std::get_if<Vector<double>>(&it->second)) given = *list;
  for (int64_t i = 0; constant && i < constant->elements(); ++i) given.push_back(constant->at(i));
  const Vector<int64_t> axes = model.integers(node, "axes", {});
  if (!given.empty()) {
    if (given.size() != (axes.empty() ? input.size() : axes.size()))
      model.fail(node, "has " + std::to_string(given.size()) + " factors for shape " + to_string(input));
    for (const int i : given.indices()) {
      if (!(given[i] > 0 && given[i] < 0x1p16)) model.fail(node, "has a factor of " + std::to_string(given[i]));
      scales[axes.empty() ? i : model.axis(node, axes[i], input.size())] = given[i];
    }
    return scales;
  }
  for (const int axis : output.indices())
    scales[axis] = static_cast<double>(output[axis]) / static_cast<double>(input[axis]);
  return scales;
}

Padding pads_of(const Model& model, const Node& node, const Shape& input) {
  const char* const name = node.attributes.count("paddings") ? "paddings" : "pads";  // of operator set 1
  const Vector<int64_t> pads = model.integers_or_input(node, name, 1, {});
  Vector<int64_t> axes;
  for (const int axis : input.indices()) axes.push_back(axis);
  if (node.has_input(3)) {
    const Constant* given = model.constant(node.inputs[3]);
    if (!given) model.fail(node, "has axes that are not constant");
    axes = given->as_integers();
  }
  if (pads.size() != 2 * axes.size())
    model.fail(node, "has pads " + to_string(pads) + " for shape " + to_string(input));
  Padding result{Vector<int64_t>(input.size(), 0), Vector<int64_t>(input.size(), 0)};
  for (const int i : axes.indices()) {
    const int axis = model.axis(node, axes[i], input.size());
    result.before[axis] = pads[i];
    result.behind[axis] = pads[i + axes.count()];
  }
  return result;
}

Padding padding_of(const Model& model, const Node& node, const Shape& input, const Vector<int64_t>& kernel) {
  const size_t spatial = input.size() - 2;
  const std::string automatic = model.text(node, "auto_pad", "NOTSET");
  Padding padding{Vector<int64_t>(spatial, 0), Vector<int64_t>(spatial, 0)};
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    const Vector<int64_t> ones(spatial, 1);
    const Vector<int64_t> strides = model.integers(node, "strides", ones),
                          dilations = model.integers(node, "dilations", ones);
    for (size_t i = 0; i < spatial && i < strides.size() && i < dilations.size() && strides[i] > 0; ++i) {
      const int64_t windows = (input[i + 2] + strides[i] - 1) / strides[i];
      const int64_t all =
          std::max<int64_t>(0, (windows - 1) * strides[i] + dilations[i] * (kernel[i] - 1) + 1 - input[i + 2]);
      padding.before[i] = automatic == "SAME_UPPER" ? all / 2 : all - all / 2;
      padding.behind[i] = all - padding.before[i];
    }
    return padding;
  }
  const Vector<int64_t> pads = model.integers(node, "pads", Vector<int64_t>(2 * spatial, 0));
  if (pads.size() != 2 * spatial) model.fail(node, "has pads " + to_string(pads));
  for (const int64_t size : pads)
    if (size < 0 || size > 1 << 16) model.fail(node, "pads by " + std::to_string(size));
  for (size_t i = 0; i < spatial; ++i) {
    padding.before[i] = pads[i];
    padding.behind[i] = pads[i + spatial];
  }
  return padding;
}

namespace {

// Inputs that a node must have.
void expect_required_inputs(const Model& model, const Node& node) {
  static const auto required = operator_table<size_t>({
      {"Add Sub Mul Div Pow Mod Equal Less LessOrEqual Greater GreaterOrEqual And Or Xor MatMul Gemm Conv "
       "ConvTranspose "
       "Gather GatherElements CumSum PRelu SoftmaxCrossEntropyLoss NegativeLogLikelihoodLoss",
       2},
      {"Where LSTM GRU RNN OneHot ScatterND InstanceNormalization GroupNormalization Attention RotaryEmbedding", 3},
  });
  const auto it = required.find(node.op);
  for (size_t i = 0; it != required.end() && i < it->second; ++i)
    if (!node.has_input(i)) model.fail(node, "lacks its input " + std::to_string(i));
}

}  // namespace

std::optional<Vector<Shape>> infer_shapes(const Model& model, const Node& node) {
  const auto rule = rules().find(node.op);
  if (rule == rules().end()) return std::nullopt;
  expect_required_inputs(model, node);
  const auto in = input_shapes(model, node);
  if (!in) return std::nullopt;
  if (in->empty() || node.inputs[0].empty()) model.fail(node, "has no inputs");
  Vector<Shape> shapes = rule->second(model, node, *in);
  for (const Shape& shape : shapes) {
    double elements = 1;
    for (const int64_t size : shape) elements *= static_cast<double>(size);
    if (elements > 0x1p44) model.fail(node, "makes a tensor of shape " + to_string(shape));
  }
  return shapes;
}

void keep_folded(Model& model, const Node& node, Vector<Constant> constants) {
  for (size_t i = 0; i < constants.size() && i < node.outputs.size(); ++i) {
    if (!node.has_output(i)) continue;
    if (constants[i].floats && !constants[i].is_fixed()) {
      model.folded[node.outputs[i]] = node;
      model.shapes[node.outputs[i]] = constants[i].shape;
    }
    model.constants[node.outputs[i]] = std::move(constants[i]);
  }
}

namespace {

// The shapes and types of what a node writes, where they are known.
void infer_outputs(Model& model, const Node& node) {
  const auto shapes = infer_shapes(model, node);
  if (!shapes) return;
  for (const Shape& shape : *shapes)
    if (volume(shape) == 0) model.fail(node, "makes an empty tensor of shape " + to_string(shape));
  const ElementType type = output_type(model, node);
  for (size_t i = 0; i < shapes->size() && i < node.outputs.size(); ++i)
    if (node.has_output(i)) {
      model.shapes[node.outputs[i]] = (*shapes)[i];
      model.types[node.outputs[i]] = type;
    }
}

}  // namespace

void infer_shapes_and_fold(Model& model) {
  Vector<Node> rest;
  std::function<void(Node)> visit;
  ControlFlow control_flow(model, [&](Node node) { visit(std::move(node)); });
  visit = [&](Node node) {
    expect_known_attributes(model, node);
    if (node.op == "CastLike" && node.has_input(1)) {  // a Cast, whose type is that of the second input
      const Constant* like = model.constant(node.inputs[1]);
      const auto known = model.types.find(node.inputs[1]);
      const ElementType type = like ? like->type : known == model.types.end() ? ElementType::f32 : known->second;
      node.op = "Cast";
      node.inputs.resize(1);
      node.attributes = {{"to", int64_t{type == ElementType::f32 ? 1 : type == ElementType::integer ? 7 : 9}}};
    }
    if (control_flow.expand(node)) return;
    if (auto constants = fold(model, node)) return keep_folded(model, node, std::move(*constants));
    infer_outputs(model, node);
    rest.push_back(std::move(node));
  };
  for (Node& node : model.nodes) visit(std::move(node));
  control_flow.expect_tensors(model.outputs);
  model.nodes = std::move(rest);
}

void bind_inputs(Model& model, int64_t batch, const std::map<std::string, int64_t>& sizes) {
  // The batch is the symbol that is called so; else the one that comes first.
  std::string symbol;
  const auto is_batch = [](const std::string& name) {
    return name == "N" || name.find("batch") != std::string::npos || name.find("Batch") != std::string::npos;
  };
  for (const ModelInput& input : model.inputs)
    for (const auto& dimension : input.dimensions)
      if (dimension.size < 0 && !sizes.count(dimension.symbol) && !dimension.symbol.empty() &&
          (symbol.empty() || (is_batch(dimension.symbol) && !is_batch(symbol))))
        symbol = dimension.symbol;
  const ModelInput* fixed = nullptr;  // the first input whose batch the file says
  for (ModelInput& input : model.inputs) {
    if (input.dimensions.empty())
      model.fail("the input \"" + input.name + "\" has no axes, expected a batch of samples");
    for (const int axis : input.dimensions.indices())
      if (input.dimensions[axis].size < 0 && input.dimensions[axis].symbol == symbol && !symbol.empty())
        input.sample_axis = axis;
    if (const int64_t size = input.dimensions[input.sample_axis].size; size > 0) {
      if (fixed && fixed->dimensions[fixed->sample_axis].size != size)
        model.fail("the inputs \"" + fixed->name + "\" and \"" + input.name + "\" have " +
                   std::to_string(fixed->dimensions[fixed->sample_axis].size) + " and " + std::to_string(size) +
                   " samples, expected as many");
      fixed = &input;
    }
    Shape shape;
    for (const int axis : input.dimensions.indices()) {
      const auto& dimension = input.dimensions[axis];
      const auto given = sizes.find(dimension.symbol);
      if (axis == input.sample_axis) shape.push_back(batch);
      else if (dimension.size > 0) shape.push_back(dimension.size);
      else if (given != sizes.end()) shape.push_back(given->second);
      else
        model.fail("the input \"" + input.name + "\" has no size for axis " + std::to_string(axis) +
                   (dimension.symbol.empty() ? "" : ", give --size " + dimension.symbol + "=N"));
    }
    model.shapes[input.name] = shape;
    model.types[input.name] = input.type;
  }
}

}  // namespace ff::importing
