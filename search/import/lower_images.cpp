// Convolutions of other kinds than conv2d and conv1d, pools, resizing and padding, as operators that there are.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "search/import/lowering.h"

namespace ff::importing {
namespace {

bool all_are(const Vector<int64_t>& values, int64_t value) {
  return std::all_of(values.begin(), values.end(), [&](int64_t each) { return each == value; });
}

// Sizes of the spatial axes, from `first` on.
int64_t product_of(const Shape& shape, int first, int last) {
  int64_t product = 1;
  for (int axis = first; axis < last; ++axis) product *= shape[axis];
  return product;
}

struct Window {
  Vector<int64_t> kernel, stride, dilation;
  Padding padding;
  int64_t extent(int axis) const { return dilation[axis] * (kernel[axis] - 1) + 1; }
};

Window window_of(Lowering& l, const Vector<int64_t>& kernel) {
  const Vector<int64_t> ones(kernel.size(), 1);
  return {kernel, l.model.integers(l.node, "strides", ones), l.model.integers(l.node, "dilations", ones),
          padding_of(l.model, l.node, l.shape(l.input(0)), kernel)};
}

Lowering::Attributes with_window(const Lowering& l, const Vector<int64_t>& kernel, const Vector<int64_t>& stride,
                                 const Vector<int64_t>& dilation, const Vector<int64_t>& pads) {
  Lowering::Attributes attributes = l.node.attributes;
  for (const char* gone : {"auto_pad", "kernel_shape", "output_padding", "output_shape"}) attributes.erase(gone);
  attributes["kernel_shape"] = kernel;
  attributes["strides"] = stride;
  attributes["dilations"] = dilation;
  attributes["pads"] = pads;
  return attributes;
}

// A convolution of three spatial axes along the first of them alone: of [height * width] as one axis.
void conv_of_depth(Lowering& l, const Window& w) {
  const Shape x = l.shape(l.input(0)), kernel = l.shape(l.input(1)), out = l.model.shapes.at(l.node.outputs[0]);
  Vector<std::string> inputs{l.reshape(l.input(0), {x[0], x[1], x[2], x[3] * x[4]}),
                             l.reshape(l.input(1), {kernel[0], kernel[1], kernel[2], 1})};
  if (l.node.has_input(2)) inputs.push_back(l.input(2));
  const std::string y = l.emit("Conv", inputs,
                               with_window(l, {w.kernel[0], 1}, {w.stride[0], 1}, {w.dilation[0], 1},
                                           {w.padding.before[0], 0, w.padding.behind[0], 0}));
  l.give(0, l.reshape(y, out));
}

// Images of all depths one below the other, as high as a stride fits in, are one image. What the kernel sees of other
// depths are channels: of each channel as many as the kernel is deep, which is the order of the weight's own axes.
void conv_of_volume(Lowering& l, const Window& w) {
  const Shape kernel = l.shape(l.input(1)), out = l.model.shapes.at(l.node.outputs[0]);
  const Shape before_padding = l.shape(l.input(0));
  const int64_t stride = w.stride[1], rows = w.padding.before[1] + before_padding[3] + w.padding.behind[1];
  const int64_t height = (std::max(rows, (out[3] - 1) * stride + w.extent(1)) + stride - 1) / stride * stride;
  const std::string x = l.pad(l.input(0), {0, 0, w.padding.before[0], w.padding.before[1], 0},
                              {0, 0, w.padding.behind[0], height - w.padding.before[1] - before_padding[3], 0});
  const Shape shape = l.shape(x);
  const int64_t depth = out[2], plane = height * shape[4];
  Vector<std::string> shifted;
  const std::string planes = l.reshape(x, {shape[0], shape[1], shape[2], plane});
  for (int64_t t = 0; t < w.kernel[0]; ++t)
    shifted.push_back(
        l.reshape(l.every(planes, 2, t * w.dilation[0], w.stride[0], depth), {shape[0], shape[1], depth * plane}));
  const std::string image =
      l.reshape(l.concat(shifted, 2), {shape[0], shape[1] * w.kernel[0], depth * height, shape[4]});
  Vector<std::string> inputs{image, l.reshape(l.input(1), {kernel[0], kernel[1] * kernel[2], kernel[3], kernel[4]})};
  if (l.node.has_input(2)) inputs.push_back(l.input(2));
  const std::string y =
      l.emit("Conv", inputs,
             with_window(l, {w.kernel[1], w.kernel[2]}, {w.stride[1], w.stride[2]}, {w.dilation[1], w.dilation[2]},
                         {0, w.padding.before[2], std::max<int64_t>(0, w.extent(1) - stride), w.padding.behind[2]}));
  l.give(0, l.slice(l.reshape(y, {out[0], out[1], depth, height / stride, out[4]}), 3, 0, out[3]));
}

// How many images each sample has, where they are on one axis with the samples: frames of a video, patches, speakers.
int64_t images_of_a_sample(const Lowering& l) {
  if (l.model.inputs.empty() || l.constant(l.input(0))) return 1;
  const ModelInput& first = l.model.inputs[0];
  const int64_t batch = l.model.shapes.at(first.name)[first.sample_axis], rows = l.shape(l.input(0))[0];
  return rows % batch == 0 ? rows / batch : 1;
}

// [samples * images, channels, ...] becomes [samples, channels, images, ...]: one more spatial axis, along which
// windows have size 1.
bool with_axis_of_images(Lowering& l) {
  const Shape x = l.shape(l.input(0)), out = l.model.shapes.at(l.node.outputs[0]);
  const bool normalization = l.node.op == "BatchNormalization";
  if (x.size() < (normalization ? 2 : 3) || x.size() > 4 || l.node.attributes.count("output_shape")) return false;
  const int64_t images = images_of_a_sample(l);
  if (images < 2) return false;
  const auto apart = [&](const Shape& shape) {
    Shape result = shape;
    result[0] /= images;
    result.insert(result.begin() + 1, images);
    return result;
  };
  Vector<int64_t> order{0, 2, 1};
  for (int axis = 3; axis <= x.count(); ++axis) order.push_back(axis);
  Vector<std::string> inputs = l.node.inputs;
  inputs[0] = l.transpose(l.reshape(inputs[0], apart(x)), order);
  Lowering::Attributes attributes = l.node.attributes;
  for (const auto& [name, value] : std::map<std::string, int64_t>{
           {"kernel_shape", 1}, {"strides", 1}, {"dilations", 1}, {"output_padding", 0}, {"pads", 0}}) {
    const auto it = attributes.find(name);
    if (normalization || it == attributes.end()) continue;
    Vector<int64_t> sizes = l.model.integers(l.node, name, {});
    if (name == "pads") sizes.insert(sizes.begin() + sizes.count() / 2, value);
    sizes.insert(sizes.begin(), value);
    it->second = std::move(sizes);
  }
  if (l.node.op.starts_with("Conv")) {
    Shape kernel = l.shape(inputs[1]);
    kernel.insert(kernel.begin() + 2, 1);
    inputs[1] = l.reshape(inputs[1], kernel);
  }
  l.give(0, l.reshape(l.transpose(l.emit(l.node.op, inputs, attributes), order), out));
  return true;
}

}  // namespace

// Of three spatial axes, or of several images of each sample.
bool lower_conv(Lowering& l) {
  if (!l.node.has_input(1) || !l.constant(l.input(1))) return false;
  if (const Constant* bias = l.node.has_input(2) ? l.constant(l.input(2)) : nullptr;
      l.node.has_input(2) && !(bias && (bias->is_fixed() || bias->is_parameter()))) {  // a value: added after it
    const std::string y = l.emit("Conv", {l.input(0), l.input(1)}, l.node.attributes);
    Shape channels(l.shape(y).size() - 1, 1);
    channels[0] = l.shape(y)[1];
    l.give(0, l.emit("Add", {y, l.reshape(l.input(2), channels)}));
    return true;
  }
  if (with_axis_of_images(l)) return true;
  const Shape kernel = l.shape(l.input(1));
  if (kernel.size() != 5 || l.shape(l.input(0)).size() != 5) return false;
  const Window w = window_of(l, Vector<int64_t>(kernel.begin() + 2, kernel.end()));
  const bool depth_alone = w.kernel[1] == 1 && w.kernel[2] == 1 && w.stride[1] == 1 && w.stride[2] == 1 &&
                           w.padding.before[1] + w.padding.before[2] + w.padding.behind[1] + w.padding.behind[2] == 0;
  if (depth_alone) conv_of_depth(l, w);
  else conv_of_volume(l, w);
  return true;
}

namespace {

// [in, out / groups, ...] with each spatial axis reversed as [out, in / groups, ...].
std::string turned_weight(Lowering& l, int64_t groups) {
  const Shape shape = l.shape(l.input(1));
  Shape cut{groups, shape[0] / groups, shape[1]};
  cut.insert(cut.end(), shape.begin() + 2, shape.end());
  Vector<int64_t> order{0, 2, 1}, axes, first, end, steps;
  for (int axis = 3; axis < cut.count(); ++axis) {
    order.push_back(axis);
    axes.push_back(axis);
    first.push_back(-1);
    end.push_back(INT64_MIN / 2);
    steps.push_back(-1);
  }
  const auto list = [&](const Vector<int64_t>& values) {
    return l.add_constant(Constant::of_integers({values.count()}, values));
  };
  const std::string turned = l.emit("Slice", {l.emit("Transpose", {l.reshape(l.input(1), cut)}, {{"perm", order}}),
                                              list(first), list(end), list(axes), list(steps)});
  Shape result{groups * shape[1], shape[0] / groups};
  result.insert(result.end(), shape.begin() + 2, shape.end());
  return l.reshape(turned, result);
}

// Each element followed by stride - 1 zeros, along each spatial axis.
std::string spread(Lowering& l, const Vector<int64_t>& stride) {
  std::string x = l.input(0);
  Shape shape = l.shape(x);
  for (const int i : stride.indices()) {
    if (stride[i] == 1) continue;
    const int axis = i + 2;
    const int64_t before = product_of(shape, 1, axis + 1), after = product_of(shape, axis + 1, shape.count());
    x = l.pad(l.reshape(x, {shape[0], before, 1, after}), {0, 0, 0, 0}, {0, 0, stride[i] - 1, 0});
    shape[axis] *= stride[i];
    x = l.reshape(x, shape);
  }
  return x;
}

// Where no two windows overlap each pixel gives a patch of its own: a convolution of one pixel, and the patches put
// beside one another.
std::string patches(Lowering& l, const Vector<int64_t>& kernel) {
  const Shape x = l.shape(l.input(0)), weight = l.shape(l.input(1));
  const int64_t positions = product_of(x, 2, x.count());
  const int64_t all = product_of(weight, 1, weight.count());
  const std::string rows = l.transpose(l.reshape(l.input(1), {weight[0], all}), {1, 0});
  std::string y =
      l.emit("Conv", {l.reshape(l.input(0), {x[0], x[1], positions, 1}), l.reshape(rows, {all, x[1], 1, 1})},
             {{"kernel_shape", Vector<int64_t>{1, 1}}});
  Shape apart{x[0], weight[1]};
  apart.insert(apart.end(), kernel.begin(), kernel.end());
  apart.insert(apart.end(), x.begin() + 2, x.end());
  Vector<int64_t> order{0, 1};
  Shape result{x[0], weight[1]};
  for (const int i : kernel.indices()) {
    order.push_back(2 + kernel.count() + i);
    order.push_back(2 + i);
    result.push_back(x[2 + i] * kernel[i]);
  }
  return l.reshape(l.transpose(l.reshape(y, apart), order), result);
}

}  // namespace

// The gradient of a convolution: one of the spread elements by the turned kernel.
bool lower_conv_transpose(Lowering& l) {
  const Shape x = l.shape(l.input(0)), weight = l.shape(l.input(1)), out = l.model.shapes.at(l.node.outputs[0]);
  if (!l.constant(l.input(1))) l.fail("has a weight that is no constant");
  if (with_axis_of_images(l)) return true;
  const Vector<int64_t> kernel(weight.begin() + 2, weight.end()), ones(kernel.size(), 1);
  const int spatial = kernel.count();
  const Vector<int64_t> stride = l.model.integers(l.node, "strides", ones),
                        dilation = l.model.integers(l.node, "dilations", ones),
                        pads = l.model.integers(l.node, "pads", Vector<int64_t>(2 * kernel.size(), 0));
  const int64_t groups = l.model.integer(l.node, "group", 1);
  if (groups < 1 || weight[0] != x[1] || weight[0] % groups != 0 || pads.count() != 2 * spatial)
    l.fail("has a weight of shape " + to_string(weight) + " for an input of shape " + to_string(x));
  for (const int i : stride.indices())
    if (stride[i] < 1 || dilation[i] < 1) l.fail("has strides or dilations below 1");
  Shape patched;
  for (int i = 0; i < spatial; ++i) patched.push_back(x[2 + i] * kernel[i]);
  std::string y;
  if (groups == 1 && kernel == stride && all_are(dilation, 1) && all_are(pads, 0) &&
      Shape(out.begin() + 2, out.end()) == patched) {
    y = patches(l, kernel);
    if (l.node.has_input(2)) {
      Shape bias(static_cast<size_t>(spatial) + 1, 1);
      bias[0] = out[1];
      y = l.emit("Add", {y, l.reshape(l.input(2), bias)});
    }
    l.give(0, y);
    return true;
  }
  y = spread(l, stride);
  const Shape spreaded = l.shape(y);
  // Padding of the convolution: what is below zero is cut from the elements.
  Vector<int64_t> before, behind;
  for (int i = 0; i < spatial; ++i) {
    const int64_t reach = dilation[i] * (kernel[i] - 1);
    before.push_back(reach - pads[i]);
    behind.push_back(out[2 + i] + reach - spreaded[2 + i] - before.back());
    const int64_t begin = std::max<int64_t>(0, -before[i]), cut = std::max<int64_t>(0, -behind[i]);
    if (begin + cut >= spreaded[2 + i]) l.fail("has pads that leave nothing");
    y = l.slice(y, 2 + i, begin, spreaded[2 + i] - cut);
    before[i] = std::max<int64_t>(0, before[i]);
    behind[i] = std::max<int64_t>(0, behind[i]);
  }
  Vector<int64_t> all = before;
  all.insert(all.end(), behind.begin(), behind.end());
  Vector<std::string> inputs{y, turned_weight(l, groups)};
  if (l.node.has_input(2)) inputs.push_back(l.input(2));
  l.give(0, l.emit("Conv", inputs, with_window(l, kernel, ones, dilation, all)));
  return true;
}

namespace {

// A pool of three spatial axes is one along the depth and one of each image, for maxima and averages alike.
void pool_of_volume(Lowering& l, const Window& w) {
  const Shape x = l.shape(l.input(0)), out = l.model.shapes.at(l.node.outputs[0]);
  std::string y = l.reshape(l.input(0), {x[0], x[1], x[2], x[3] * x[4]});
  if (w.kernel[0] > 1 || w.stride[0] > 1)
    y = l.emit(l.node.op, {y},
               with_window(l, {w.kernel[0], 1}, {w.stride[0], 1}, {w.dilation[0], 1},
                           {w.padding.before[0], 0, w.padding.behind[0], 0}));
  y = l.emit(l.node.op, {l.reshape(y, {x[0], x[1] * out[2], x[3], x[4]})},
             with_window(l, {w.kernel[1], w.kernel[2]}, {w.stride[1], w.stride[2]}, {w.dilation[1], w.dilation[2]},
                         {w.padding.before[1], w.padding.before[2], w.padding.behind[1], w.padding.behind[2]}));
  l.give(0, l.reshape(y, out));
}

constexpr float very_low = -1e30f;  // what padding is for a maximum

// x with `value` around it: zeros, and a constant that is added there.
std::string padded_by(Lowering& l, const std::string& x, const Vector<int64_t>& before, const Vector<int64_t>& behind,
                      float value) {
  const std::string zeros = l.pad(x, before, behind);
  if (value == 0) return zeros;
  Shape shape = l.shape(zeros);
  for (const int axis : shape.indices())
    if (before[axis] == 0 && behind[axis] == 0) shape[axis] = 1;
  Vector<float> values(volume(shape), value);
  for (int64_t i = 0; i < values.count(); ++i) {
    int64_t rest = i;
    bool inside = true;
    for (int axis = shape.count() - 1; axis >= 0; rest /= shape[axis--])
      inside = inside && rest % shape[axis] >= before[axis] && rest % shape[axis] < shape[axis] - behind[axis];
    if (inside) values[i] = 0;
  }
  return l.emit("Add", {zeros, l.add_constant(Constant::of_floats(shape, std::move(values)))});
}

// The largest of as many shifted inputs as the window is long, one axis after the other.
void dilated_maximum(Lowering& l, const Window& w, std::string x, const Shape& out) {
  constexpr int64_t most = 256;
  for (const int i : w.kernel.indices()) {
    if (w.kernel[i] > most) l.fail("has a window of " + std::to_string(w.kernel[i]) + " elements with dilations");
    Vector<std::string> shifted;
    for (int64_t k = 0; k < w.kernel[i]; ++k)
      shifted.push_back(l.every(x, 2 + i, k * w.dilation[i], w.stride[i], out[2 + i]));
    x = l.largest(shifted);
  }
  l.give(0, x);
}

}  // namespace

bool lower_pool(Lowering& l) {
  const Shape x = l.shape(l.input(0)), out = l.model.shapes.at(l.node.outputs[0]);
  if (l.node.has_output(1)) return false;
  if (with_axis_of_images(l)) return true;
  const Vector<int64_t> kernel = l.model.integers(l.node, "kernel_shape", {});
  if (kernel.size() + 2 != x.size()) return false;
  Window w = window_of(l, kernel);
  if (kernel.size() == 3) {
    pool_of_volume(l, w);
    return true;
  }
  if (l.node.op != "MaxPool") return false;
  const bool ceil = l.model.integer(l.node, "ceil_mode", 0) != 0, dilated = !all_are(w.dilation, 1);
  bool fits = w.padding.before == w.padding.behind && !dilated;
  for (const int i : kernel.indices()) fits = fits && 2 * w.padding.before[i] <= kernel[i];
  if (fits || (ceil && !dilated)) return false;
  Vector<int64_t> before{0, 0}, behind{0, 0};
  for (const int i : kernel.indices()) {
    before.push_back(w.padding.before[i]);
    // With `ceil`, the last window may need more.
    const int64_t needed = (out[2 + i] - 1) * w.stride[i] + w.extent(i) - x[2 + i] - w.padding.before[i];
    behind.push_back(std::max(w.padding.behind[i], needed));
  }
  const std::string padded = padded_by(l, l.input(0), before, behind, very_low);
  if (dilated) {
    dilated_maximum(l, w, padded, out);
    return true;
  }
  l.give(0, l.emit("MaxPool", {padded},
                   with_window(l, kernel, w.stride, w.dilation, Vector<int64_t>(2 * kernel.size(), 0))));
  return true;
}

// Of three spatial axes.
bool lower_batch_normalization(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  if (with_axis_of_images(l)) return true;
  if (x.size() != 5) return false;
  Vector<std::string> inputs = l.node.inputs;
  inputs[0] = l.reshape(inputs[0], {x[0], x[1], x[2], x[3] * x[4]});
  l.give(0, l.reshape(l.emit("BatchNormalization", inputs, l.node.attributes), x));
  return true;
}

bool lower_global_pool(Lowering& l) {
  const Shape x = l.shape(l.input(0)), out = l.model.shapes.at(l.node.outputs[0]);
  const bool largest = l.node.op == "GlobalMaxPool";
  if (x.size() < 3 || (x.size() < 5 && !largest && images_of_a_sample(l) == 1)) return false;
  const std::string flat = l.reshape(l.input(0), {x[0], x[1], product_of(x, 2, x.count())});
  const auto axes = Vector<int64_t>{2};
  l.give(0, l.reshape(l.emit(largest ? "ReduceMax" : "ReduceMean", {flat}, {{"axes", axes}}), out));
  return true;
}

namespace {

bool all_equal(const Constant& constant, double value) {
  if (!constant.is_fixed() || !constant.floats) return false;
  for (int64_t i = 0; i < constant.elements(); ++i)
    if (constant.at(i) != value) return false;
  return true;
}

// x * scale + bias, of shapes that go with x; those that change nothing are left out.
std::string scaled(Lowering& l, std::string x, const std::string& scale, const std::string& bias, const Shape& shape) {
  const auto given = [&](const std::string& name, double nothing) {
    return !name.empty() && !(l.constant(name) && all_equal(*l.constant(name), nothing));
  };
  if (given(scale, 1)) x = l.emit("Mul", {x, l.reshape(scale, shape)});
  if (given(bias, 0)) x = l.emit("Add", {x, l.reshape(bias, shape)});
  return x;
}

// Each row of [batch, rows, features] normalized.
std::string normalized_rows(Lowering& l, const std::string& x, int64_t rows,
                            const std::string& op = "LayerNormalization") {
  const Shape shape = l.shape(x);
  const std::string flat = l.reshape(x, {shape[0], rows, volume(shape) / shape[0] / rows});
  return l.reshape(l.emit(op, {flat}, {{"epsilon", l.model.number(l.node, "epsilon", 1e-5)}}), shape);
}

// [channels, 1, ...] for [batch, channels, ...].
Shape by_channel(const Shape& x) {
  Shape shape(x.size() - 1, 1);
  shape[0] = x[1];
  return shape;
}

}  // namespace

bool lower_instance_normalization(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  if (x.size() < 3 || !l.node.has_input(2)) l.fail("has an input of shape " + to_string(x));
  l.give(0, scaled(l, normalized_rows(l, l.input(0), x[1]), l.input(1), l.input(2), by_channel(x)));
  return true;
}

// Its scales are those of groups (operator set 18) or of channels (21).
bool lower_group_normalization(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const int64_t groups = l.model.integer(l.node, "num_groups", 0);
  if (x.size() < 3 || !l.node.has_input(2) || groups < 1 || x[1] % groups != 0)
    l.fail("has an input of shape " + to_string(x) + " and " + std::to_string(groups) + " groups");
  const std::string rows = normalized_rows(l, l.input(0), groups);
  if (volume(l.shape(l.input(1))) == x[1]) {
    l.give(0, scaled(l, rows, l.input(1), l.input(2), by_channel(x)));
    return true;
  }
  Shape grouped = x, one(x.size(), 1);
  grouped[1] = x[1] / groups;
  grouped.insert(grouped.begin() + 1, groups);
  one[0] = groups;
  l.give(0, l.reshape(scaled(l, l.reshape(rows, grouped), l.input(1), l.input(2), one), x));
  return true;
}

// Over several axes, or with other parameters than those that are trained as they are (constants, 1 + weight): without
// parameters, and those after it.
bool lower_layer_normalization(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const int axis = l.model.axis(l.node, l.model.integer(l.node, "axis", -1), x.size());
  const bool whole = axis + 1 == x.count();
  const auto trained = [&](size_t i) { return l.constant(l.input(i)) && l.constant(l.input(i))->is_parameter(); };
  const bool layer = l.node.op == "LayerNormalization";
  if (whole && (!l.node.has_input(1) || (trained(1) && (!layer || trained(2))))) return false;
  if (axis == 0) l.fail("normalizes across the samples, which is not understood");
  const Shape shape(x.begin() + axis, x.end());
  l.give(0,
         scaled(l, normalized_rows(l, l.input(0), product_of(x, 1, axis), l.node.op), l.input(1), l.input(2), shape));
  return true;
}

namespace {

// What one output position of an axis is made of: factors of input positions.
using Taps = Vector<std::pair<int64_t, double>>;

struct Resizing {
  std::string mode, coordinates, nearest;
  double cubic = -0.75;
  bool exclude_outside = false;
};

double source_of(const Resizing& r, int64_t to, double scale, int64_t in, int64_t out) {
  const double x = static_cast<double>(to);
  if (r.coordinates == "asymmetric") return x / scale;
  if (r.coordinates == "align_corners")
    return out == 1 ? 0 : x * static_cast<double>(in - 1) / static_cast<double>(out - 1);
  if (r.coordinates == "pytorch_half_pixel" && out == 1) return 0;
  return (x + 0.5) / scale - 0.5;
}

int64_t nearest_of(const Resizing& r, double x) {
  if (r.nearest == "floor") return static_cast<int64_t>(std::floor(x + 1e-9));
  if (r.nearest == "ceil") return static_cast<int64_t>(std::ceil(x - 1e-9));
  const double down = std::floor(x);
  if (x - down == 0.5) return static_cast<int64_t>(r.nearest == "round_prefer_ceil" ? down + 1 : down);
  return static_cast<int64_t>(std::floor(x + 0.5));
}

double cubic_weight(double a, double distance) {
  const double d = std::abs(distance);
  if (d <= 1) return ((a + 2) * d - (a + 3)) * d * d + 1;
  return d < 2 ? ((a * d - 5 * a) * d + 8 * a) * d - 4 * a : 0;
}

Taps taps_of(const Resizing& r, double x, int64_t in) {
  const auto inside = [&](int64_t at) { return std::clamp<int64_t>(at, 0, in - 1); };
  if (r.mode == "nearest") return {{inside(nearest_of(r, x)), 1}};
  if (r.mode == "linear") {
    const double at = std::clamp(x, 0.0, static_cast<double>(in - 1));
    const int64_t low = static_cast<int64_t>(std::floor(at));
    return {{low, 1 - (at - static_cast<double>(low))}, {inside(low + 1), at - static_cast<double>(low)}};
  }
  Taps taps;
  const int64_t first = static_cast<int64_t>(std::floor(x)) - 1;
  double sum = 0;
  for (int64_t at = first; at < first + 4; ++at) {
    const bool outside = r.exclude_outside && inside(at) != at;
    taps.emplace_back(inside(at), outside ? 0 : cubic_weight(r.cubic, x - static_cast<double>(at)));
    sum += taps.back().second;
  }
  for (auto& [at, weight] : taps) weight /= r.exclude_outside ? sum : 1;
  return taps;
}

std::string resized(Lowering& l, const Resizing& r, const std::string& x, int axis, int64_t out, double scale) {
  const Shape shape = l.shape(x);
  const int64_t in = shape[axis];
  if (in == out && std::abs(scale - 1) < 1e-6) return x;
  Vector<float> matrix(out * in, 0.0f);
  Vector<int64_t> chosen;
  for (int64_t to = 0; to < out; ++to)
    for (const auto& [from, weight] : taps_of(r, source_of(r, to, scale, in, out), in)) {
      matrix[to * in + from] += static_cast<float>(weight);
      chosen.push_back(from);
    }
  if (r.mode != "nearest") return l.product(x, axis, Constant::of_floats({out, in}, std::move(matrix)));
  // Each element as often: copies side by side.
  const int64_t times = out / in;
  bool regular = out % in == 0;
  for (int64_t to = 0; regular && to < out; ++to) regular = chosen[to] == to / times;
  if (!regular) return l.take(x, axis, chosen);
  const int64_t before = product_of(shape, 1, axis + 1), after = product_of(shape, axis + 1, shape.count());
  const std::string one = l.reshape(x, {shape[0], before, 1, after});
  Shape result = shape;
  result[axis] = out;
  return l.reshape(l.concat(Vector<std::string>(static_cast<size_t>(times), one), 2), result);
}

}  // namespace

bool lower_resize(Lowering& l) {
  const Shape x = l.shape(l.input(0)), out = l.model.shapes.at(l.node.outputs[0]);
  const bool upsample = l.node.op == "Upsample", old = upsample || l.model.opset < 11;
  Resizing r{l.model.text(l.node, "mode", "nearest"),
             l.model.text(l.node, "coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"),
             l.model.text(l.node, "nearest_mode", old ? "floor" : "round_prefer_floor"),
             l.model.number(l.node, "cubic_coeff_a", -0.75), l.model.integer(l.node, "exclude_outside", 0) != 0};
  if (r.mode == "bilinear" || r.mode == "trilinear") r.mode = "linear";
  // Before operator set 11 ONNX had no name for the coordinates that PyTorch has.
  if (old && r.mode == "linear" && l.model.producer == "pytorch") r.coordinates = "half_pixel";
  if ((r.mode != "nearest" && r.mode != "linear" && r.mode != "cubic") ||
      l.model.integer(l.node, "antialias", 0) != 0 ||
      (r.coordinates != "half_pixel" && r.coordinates != "pytorch_half_pixel" && r.coordinates != "asymmetric" &&
       r.coordinates != "align_corners"))
    l.fail("has mode \"" + r.mode + "\" with coordinates \"" + r.coordinates + "\", which is not understood");
  if (l.model.text(l.node, "keep_aspect_ratio_policy", "stretch") != "stretch")
    l.fail("keeps the ratio of its sizes (keep_aspect_ratio_policy), which is not understood");
  const Vector<double> scales = resize_scales(l.model, l.node, x, out);
  std::string y = l.input(0);
  for (const int axis : x.indices()) {
    if (axis < 1 && x[axis] != out[axis]) l.fail("resizes along the samples");
    if (axis > 0) y = resized(l, r, y, axis, out[axis], scales[axis]);
  }
  l.give(0, y);
  return true;
}

// Numbers other than zeros, copies of the border or of what is within, and cuts.
bool lower_pad(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const Vector<Padding> both = {pads_of(l.model, l.node, x)};
  const Padding& pads = both[0];
  const std::string mode = l.model.text(l.node, "mode", "constant");
  const double value = l.model.number_or_input(l.node, "value", 2, 0);
  const auto below = [](int64_t size) { return size < 0; };
  const bool cuts = std::any_of(pads.before.begin(), pads.before.end(), below) ||
                    std::any_of(pads.behind.begin(), pads.behind.end(), below);
  if (mode == "constant" && value == 0 && !cuts && x.size() <= 4 && !l.node.has_input(3)) return false;
  std::string y = l.input(0);
  if (mode == "constant") {
    Vector<int64_t> before, behind;
    for (const int axis : x.indices()) {
      y = l.slice(y, axis, std::max<int64_t>(0, -pads.before[axis]), x[axis] + std::min<int64_t>(0, pads.behind[axis]));
      before.push_back(std::max<int64_t>(0, pads.before[axis]));
      behind.push_back(std::max<int64_t>(0, pads.behind[axis]));
    }
    if (value != 0) {
      l.give(0, padded_by(l, y, before, behind, static_cast<float>(value)));
      return true;
    }
    // One axis at a time, of a tensor of four.
    for (const int axis : x.indices()) {
      if (before[axis] == 0 && behind[axis] == 0) continue;
      Shape shape = l.shape(y);
      if (axis == 0) l.fail("adds samples");
      const int64_t first = product_of(shape, 1, axis), last = product_of(shape, axis + 1, shape.count());
      y = l.pad(l.reshape(y, {shape[0], first, shape[axis], last}), {0, 0, before[axis], 0}, {0, 0, behind[axis], 0});
      shape[axis] += before[axis] + behind[axis];
      y = l.reshape(y, shape);
    }
    l.give(0, y);
    return true;
  }
  for (const int axis : x.indices()) {
    if (pads.before[axis] == 0 && pads.behind[axis] == 0) continue;
    const int64_t size = x[axis];
    Vector<int64_t> indices;
    for (int64_t at = -pads.before[axis]; at < size + pads.behind[axis]; ++at) {
      int64_t from = at;
      if (mode == "edge") from = std::clamp<int64_t>(at, 0, size - 1);
      else if (mode == "wrap") from = ((at % size) + size) % size;
      else if (mode == "reflect") from = at < 0 ? -at : at >= size ? 2 * (size - 1) - at : at;
      else l.fail("has mode \"" + mode + "\", which is not understood");
      if (from < 0 || from >= size) l.fail("reflects more than there is");
      indices.push_back(from);
    }
    y = l.take(y, axis, indices);
  }
  l.give(0, y);
  return true;
}

bool lower_depth_to_space(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const int64_t b = l.model.integer(l.node, "blocksize", 1);
  if (x.size() != 4 || b < 1 || x[1] % (b * b) != 0) l.fail("has an input of shape " + to_string(x));
  const int64_t c = x[1] / (b * b);
  const bool channels_first = l.model.text(l.node, "mode", "DCR") == "CRD";
  const std::string apart =
      l.reshape(l.input(0), channels_first ? Shape{x[0], c, b, b, x[2], x[3]} : Shape{x[0], b, b, c, x[2], x[3]});
  l.give(0, l.reshape(l.transpose(apart, channels_first ? Vector<int64_t>{0, 1, 4, 2, 5, 3}
                                                        : Vector<int64_t>{0, 3, 4, 1, 5, 2}),
                      {x[0], c, x[2] * b, x[3] * b}));
  return true;
}

bool lower_space_to_depth(Lowering& l) {
  const Shape x = l.shape(l.input(0));
  const int64_t b = l.model.integer(l.node, "blocksize", 1);
  if (x.size() != 4 || b < 1 || x[2] % b != 0 || x[3] % b != 0) l.fail("has an input of shape " + to_string(x));
  l.give(0, l.reshape(l.transpose(l.reshape(l.input(0), {x[0], x[1], x[2] / b, b, x[3] / b, b}), {0, 3, 5, 1, 2, 4}),
                      {x[0], x[1] * b * b, x[2] / b, x[3] / b}));
  return true;
}

}  // namespace ff::importing
