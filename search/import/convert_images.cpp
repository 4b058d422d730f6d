// Convolutions, pools and normalizations of images [batch, channel, height, width] and sequences, which ONNX has as
// [batch, channel, length] and we as [batch, length, channel].
#include <algorithm>
#include <cmath>

#include "search/import/convert.h"

namespace ff::importing {
namespace {

struct Geometry {
  Vector<int64_t> kernel, stride, dilation;
  Padding padding;
  bool symmetric() const { return padding.before == padding.behind; }
};

Geometry geometry_of(Conversion& c, const Node& node, const Shape& input, const Vector<int64_t>& kernel) {
  const Vector<int64_t> ones(kernel.size(), 1);
  return {kernel, c.model.integers(node, "strides", ones), c.model.integers(node, "dilations", ones),
          padding_of(c.model, node, input, kernel)};
}

void expect_images_or_sequences(Conversion& c, const Node& node, const Value& x) {
  if (x.axes.size() != 3 && x.axes.size() != 4)
    c.fail(node, "has an input of shape " + to_string(x.shape()) + ", expected images or sequences");
}

// As our operators want it: [batch, channel, height, width], or [batch, length, channel].
Value image_or_sequence(Conversion& c, const Node& node, const Value& x) {
  expect_images_or_sequences(c, node, x);
  if (x.axes.size() == 4) return c.arranged(node, x);
  return c.arranged(node, x, {x.axes[0], x.axes[2], x.axes[1]});
}

// What such an operator gives, as ONNX sees it.
Value as_onnx(const Value& x) {
  Value result = Value::plain(x.tensor, x.physical, x.type);
  if (result.axes.size() == 3) result.transpose({0, 2, 1});
  return result;
}

Json sizes(const Vector<int64_t>& values) { return values.size() == 1 ? Json(values[0]) : Json(values); }

// Zeros around an image or a sequence that lies as our operators want it.
Value padded(Conversion& c, const Node& node, const Value& x, const Padding& padding) {
  Json all = Json::array();
  const auto add = [&](size_t i) { all.push_back({padding.before[i], padding.behind[i]}); };
  if (padding.before.size() == 2) {
    all.push_back({0, 0});
    add(0);
    add(1);
  } else {
    add(0);
    all.push_back({0, 0});
  }
  return c.add(node, "pad", {x.tensor}, {{"padding", all}})[0];
}

// Where padding is not alike on both sides or as wide as the kernel, the zeros are added by an operator of their own.
Value pad_first(Conversion& c, const Node& node, const Value& x, Geometry& g) {
  bool fits = g.symmetric();
  for (const int i : g.kernel.indices()) fits = fits && g.padding.before[i] < g.dilation[i] * (g.kernel[i] - 1) + 1;
  if (fits) return x;
  const Value result = padded(c, node, x, g.padding);
  g.padding = {Vector<int64_t>(g.kernel.size(), 0), Vector<int64_t>(g.kernel.size(), 0)};
  return result;
}

bool all_are(const Vector<int64_t>& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t each) { return each == value; });
}

}  // namespace

void convert_conv(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  expect_images_or_sequences(c, node, x);
  const Constant& weight = c.required_constant(node, 1, "the weight");
  const Constant* bias = c.constant(node, 2);
  const size_t spatial = weight.shape.size() - 2;
  Geometry g = geometry_of(c, node, x.shape(), Vector<int64_t>(weight.shape.begin() + 2, weight.shape.end()));
  const int64_t groups = c.model.integer(node, "group", 1);
  if (groups < 1 || weight.shape[1] * groups != x.shape()[1])
    c.fail(node, "has a weight of shape " + to_string(weight.shape) + " and " + std::to_string(groups) +
                     " groups for an input of shape " + to_string(x.shape()));
  Vector<Conversion::NamedConstant> parameters{{"weight", weight}};
  if (bias) parameters.push_back({"bias", *bias});
  // On one position, as after global pooling, it is a linear layer.
  const Shape shape = x.shape();
  if (groups == 1 && !weight.is_fixed() && all_are(g.kernel, 1) && all_are(Shape(shape.begin() + 2, shape.end()), 1) &&
      all_are(g.padding.before, 0) && all_are(g.padding.behind, 0)) {
    parameters[0].constant.shape = {weight.shape[0], weight.shape[1]};
    const Value rows = c.arranged(node, x, {x.axes[0], x.axes[1]});
    Value result = c.add_with_parameters(node, "linear", {rows.tensor},
                                         {{"out_features", weight.shape[0]}, {"bias", bias != nullptr}}, parameters);
    result.axes.resize(shape.size());
    c.set(node, 0, result);
    return;
  }
  // Constants, or trained, both of them.
  const bool trained = !weight.is_fixed() || (bias && !bias->is_fixed());
  for (auto& parameter : parameters) parameter.shared = trained;
  const Value image = pad_first(c, node, image_or_sequence(c, node, x), g);
  Json attributes = {{"out_channels", weight.shape[0]}, {"kernel", sizes(g.kernel)}};
  if (!all_are(g.stride, 1)) attributes["stride"] = sizes(g.stride);
  if (!all_are(g.padding.before, 0)) attributes["padding"] = sizes(g.padding.before);
  if (!all_are(g.dilation, 1)) attributes["dilation"] = sizes(g.dilation);
  if (groups != 1) attributes["groups"] = groups;
  if (!bias) attributes["bias"] = false;
  if (!trained) attributes["trained"] = false;
  c.set(
      node, 0,
      as_onnx(c.add_with_parameters(node, spatial == 2 ? "conv2d" : "conv1d", {image.tensor}, attributes, parameters)));
}

void convert_pool(Conversion& c, const Node& node) {
  if (node.has_output(1)) c.fail(node, "gives indices, which are not understood");
  const Value x = c.value(node, 0);
  expect_images_or_sequences(c, node, x);
  const bool average = node.op == "AveragePool";
  bool count_padding = average && c.model.integer(node, "count_include_pad", 0) != 0;
  const bool ceil = c.model.integer(node, "ceil_mode", 0) != 0;
  Geometry g = geometry_of(c, node, x.shape(), c.model.integers(node, "kernel_shape", {}));
  if (!all_are(g.dilation, 1)) c.fail(node, "has dilations, which are not understood");
  const Shape& out = c.model.shapes.at(node.outputs[0]);
  if (out == x.shape() && all_are(g.kernel, 1)) return c.set(node, 0, x);  // adaptive pooling to the same size
  Value image = image_or_sequence(c, node, x);
  bool wide = !g.symmetric();
  for (const int i : g.kernel.indices()) wide = wide || 2 * g.padding.before[i] > g.kernel[i];
  if (wide && average && count_padding && !ceil) {
    image = padded(c, node, image, g.padding);
    g.padding.before.assign(g.kernel.size(), 0);
    count_padding = false;
  } else if (wide) {
    c.fail(node, "has pads that are not alike on both sides or more than half of the kernel");
  }
  Json attributes = {{"method", average ? "average" : "max"}, {"kernel", sizes(g.kernel)}, {"stride", sizes(g.stride)}};
  const bool pads = !all_are(g.padding.before, 0);
  if (pads) attributes["padding"] = sizes(g.padding.before);
  // Rounding up that changes nothing is not said.
  Node down = node;
  down.attributes["ceil_mode"] = int64_t{0};
  if (ceil && infer_shapes(c.model, down) != infer_shapes(c.model, node)) attributes["ceil"] = true;
  if (count_padding && pads) attributes["count_padding"] = true;
  c.set(node, 0, as_onnx(c.add(node, image.axes.size() == 4 ? "pool2d" : "pool1d", {image.tensor}, attributes)[0]));
}

void convert_global_average_pool(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const size_t rank = x.axes.size();
  Value result = c.add(node, "mean", {image_or_sequence(c, node, x).tensor})[0];
  result.axes.resize(rank);  // those of size 1
  c.set(node, 0, result);
}

void convert_batch_normalization(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const char* const names[] = {"weight", "bias", "running_mean", "running_variance"};
  Vector<Conversion::NamedConstant> parameters;
  for (size_t i = 0; i < 4; ++i)
    parameters.push_back({names[i], c.required_constant(node, i + 1, names[i]), /*shared=*/i < 2});
  Json attributes = {{"epsilon", c.model.number(node, "epsilon", 1e-5)},
                     {"momentum", std::round(1e7 * (1 - c.model.number(node, "momentum", 0.9))) / 1e7}};
  if (parameters[0].constant.is_fixed() && parameters[1].constant.is_fixed()) {
    attributes["trained"] = false;
    parameters[0].shared = parameters[1].shared = false;
  }
  const Value lies = x.axes.size() == 2 ? c.arranged(node, x) : image_or_sequence(c, node, x);
  c.set(node, 0, as_onnx(c.add_with_parameters(node, "batch_norm", {lies.tensor}, attributes, parameters)));
}

void convert_lrn(Conversion& c, const Node& node) {
  const Value x = c.arranged(node, c.value(node, 0));
  const Json attributes = {{"size", c.model.integer(node, "size", 0)},
                           {"alpha", c.model.number(node, "alpha", 1e-4)},
                           {"beta", c.model.number(node, "beta", 0.75)},
                           {"bias", c.model.number(node, "bias", 1)}};
  c.set(node, 0, c.add_elementwise(node, "local_response_normalization", x, attributes));
}

void convert_pad(Conversion& c, const Node& node) {
  const Value x = c.value(node, 0);
  const Padding both = pads_of(c.model, node, x.shape());
  Vector<int64_t> pads = both.before;
  pads.insert(pads.end(), both.behind.begin(), both.behind.end());
  if (all_are(pads, 0)) return c.set(node, 0, x);
  if (c.model.text(node, "mode", "constant") != "constant" || c.model.number_or_input(node, "value", 2, 0) != 0)
    c.fail(node, "pads by other numbers than zeros");
  const int rank = x.axes.count();
  Json padding = Json::array();
  for (int axis = 0; axis < rank; ++axis) {
    if (pads[axis] < 0 || pads[axis + rank] < 0) c.fail(node, "cuts by pads below zero");
    if (axis > 0) padding.push_back({pads[axis], pads[axis + rank]});
    else if (pads[axis] + pads[axis + rank] != 0) c.fail(node, "adds samples");
  }
  c.set(node, 0, c.add(node, "pad", {c.arranged(node, x).tensor}, {{"padding", padding}})[0]);
}

}  // namespace ff::importing
