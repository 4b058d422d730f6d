#include "common/operators/conv2d.h"

#include <algorithm>
#include <cmath>

#include "common/operators/operator_list.h"

namespace ff {

namespace {

// The input's shape, once the request is seen to have what a convolution needs.
Shape image_shape(const OperatorRequest& request) {
  request.expect_one_input(4, 4);
  request.allow_attributes(
      {"out_channels", "kernel", "stride", "padding", "dilation", "groups", "bias", "activation", "trained"});
  return request.inputs[0].shape;
}

Window window(const OperatorRequest& request, size_t axis) {
  request.required_attribute("kernel");
  return {request.inputs[0].shape[2 + axis], request.pair("kernel", {1, 1}, 1, 1 << 16)[axis],
          request.pair("stride", {1, 1}, 1, 1 << 16)[axis], request.pair("padding", {0, 0}, 0, 1 << 16)[axis],
          request.pair("dilation", {1, 1}, 1, 1 << 16)[axis]};
}

}  // namespace

Conv2d::Conv2d(const OperatorRequest& request)
    : Conv2d{request, image_shape(request), window(request, 0), window(request, 1)} {}

Conv2d::Conv2d(const OperatorRequest& request, const Shape& image, const Window& height_window,
               const Window& width_window)
    : OperatorDefinition(request.type, {{"", image}}), in_channels(image[1]), height(height_window),
      width(width_window) {
  out_channels = request.required_attribute("out_channels").as_integer(1, int64_t{1} << 24);
  groups = request.integer("groups", 1, 1, in_channels);
  if (in_channels % groups != 0 || out_channels % groups != 0)
    request.required_attribute("groups").fail("found " + std::to_string(groups) + ", expected a divisor of " +
                                              std::to_string(in_channels) + " input channels and " +
                                              std::to_string(out_channels) + " output channels");
  for (const Window& window : {height, width}) {
    if (window.padding >= window.extent())
      request.required_attribute("padding").fail("found " + std::to_string(window.padding) +
                                                 ", expected less than the kernel's extent " +
                                                 std::to_string(window.extent()));
    if (window.output_size() < 1)
      request.required_attribute("kernel").fail("the kernel's extent " + std::to_string(window.extent()) +
                                                " exceeds the padded input of shape " +
                                                to_string(request.inputs[0].shape));
  }
  bias = request.flag("bias", true);
  relu = request.choice("activation", "none", {"none", "relu"}) == "relu";

  outputs_ = {{"", {image[0], out_channels, height.output_size(), width.output_size()}}};
  const int64_t fan_in = in_channels / groups * height.kernel * width.kernel;
  // Uniform with variance 2 / fan_in in front of a relu (He et al. 2015, arXiv 1502.01852), else 1 / fan_in (LeCun et
  // al. 1998).
  parameters_ = {{"weight",
                  {out_channels, in_channels / groups, height.kernel, width.kernel},
                  std::sqrt((relu ? 6.0 : 3.0) / static_cast<double>(fan_in))}};
  if (bias) parameters_.push_back({"bias", {out_channels}});
  trained = request.flag("trained", true);
  for (ParameterSpec& parameter : parameters_) {
    parameter.trained = trained;
    parameter.given = !trained;
  }
  dimensions_ = every_axis(outputs_[0].shape);
  dimensions_[1].kind = DimensionKind::parameter;
  if (groups == 1 && !relu) dimensions_.push_back({"in_channel", DimensionKind::reduction, in_channels});
}

Block Conv2d::output_block(int, const Block& part) const { return {part[0], part[1], part[2], part[3]}; }

Block Conv2d::input_block(int, const Block& part) const {
  if (groups == 1) return {part[0], summed_channels(part), height.input(part[2]), width.input(part[3])};
  const int64_t out_per_group = out_channels / groups, in_per_group = in_channels / groups;
  const Interval channels = {part[1].begin / out_per_group * in_per_group,
                             ((part[1].end - 1) / out_per_group + 1) * in_per_group};
  return {part[0], channels, height.input(part[2]), width.input(part[3])};
}

Block Conv2d::parameter_block(int parameter, const Block& part) const {
  if (parameter == 1) return {adds_bias(part) ? part[1] : Interval{part[1].begin, part[1].begin}};
  return {part[1], summed_channels(part), {0, height.kernel}, {0, width.kernel}};
}

Shape Conv2d::dense_input(const Block& part) const {
  Shape input = input_block(0, part).shape();
  if (!takes_pixels()) return input;
  input[2] = (input[2] - 1) / height.stride + 1;
  input[3] = (input[3] - 1) / width.stride + 1;
  return input;
}

Vector<Interval> Conv2d::slices(const Block& part) const {
  const int64_t per_group = out_channels / groups;
  const int64_t first = part[1].begin / per_group, last = (part[1].end - 1) / per_group;
  if (first == last || (part[1].begin % per_group == 0 && part[1].end % per_group == 0)) return {part[1]};
  Vector<Interval> result;
  for (int64_t group = first; group <= last; ++group)
    result.push_back(intersect(part[1], Interval{group * per_group, (group + 1) * per_group}));
  return result;
}

// Blocks are reserved on all processors, so that predictions need not know which of them have AVX-512. Convolutions of
// several whole groups, and those of one pixel, use none.
Conv2d::Scratch Conv2d::scratch(const Block& part) const {
  const Shape input = dense_input(part), output = output_block(0, part).shape();
  const int64_t in_pixels = volume(input) / input[1], out_pixels = volume(output) / output[1];
  const Vector<Interval> outputs = slices(part);
  const bool cut = outputs.size() > 1;
  const int64_t in = cut ? in_channels / groups : input[1];
  Scratch result;
  if (takes_pixels()) result.bytes = Scratch::aligned(volume(input) * element_bytes);
  if (cut) {
    result.input_slice = result.bytes;
    result.gradient_slice = result.input_slice + Scratch::aligned(in_pixels * in * element_bytes);
    result.output_slice = result.gradient_slice + Scratch::aligned(in_pixels * in * element_bytes);
    result.bytes = result.output_slice + Scratch::aligned(out_pixels * (out_channels / groups) * element_bytes);
  }
  result.blocks = result.bytes;
  const bool one_group = in == summed_channels(part).size(), one_pixel = height.kernel == 1 && width.kernel == 1;
  if (!one_group || one_pixel) return result;
  for (const Interval channels : outputs) {
    if (!has_whole_vectors(in, channels.size())) continue;
    const int64_t blocks =
        Scratch::aligned(in_pixels * in * element_bytes) + out_pixels * channels.size() * element_bytes;
    result.bytes = std::max(result.bytes, result.blocks + blocks);
  }
  return result;
}

std::string Conv2d::attribute_text() const {
  const auto pair = [](int64_t a, int64_t b) { return std::to_string(a) + "x" + std::to_string(b); };
  std::string text = "kernel=" + pair(height.kernel, width.kernel) + " stride=" + pair(height.stride, width.stride);
  if (height.dilation != 1 || width.dilation != 1) text += " dilation=" + pair(height.dilation, width.dilation);
  if (groups != 1) text += " groups=" + std::to_string(groups);
  if (bias) text += " bias";
  if (relu) text += " relu";
  if (!trained) text += " constant";
  return text;
}

std::string Conv2d::signature(const Block& part) const {
  std::string text = OperatorDefinition::signature(part);
  text += " padding=" + std::to_string(height.padding_before(part[2])) + "," +
          std::to_string(height.padding_behind(part[2])) + "," + std::to_string(width.padding_before(part[3])) + "," +
          std::to_string(width.padding_behind(part[3]));
  if (groups != 1) {  // how the part cuts the groups
    const int64_t per_group = out_channels / groups;
    text += " from=" + std::to_string(part[1].begin % per_group);
  }
  if (bias && !adds_bias(part)) text += " without bias";
  return text;
}

Work Conv2d::forward_work(const Block& part) const {
  const double multiplied = static_cast<double>(output_block(0, part).volume()) *
                            static_cast<double>(summed_channels(part).size() * height.kernel * width.kernel);
  return {2 * multiplied, touched_bytes(part)};
}

Work Conv2d::backward_work(const Block& part, bool input_gradients) const {
  const Work forward = forward_work(part);
  const double products = (trained ? 1 : 0) + (input_gradients ? 1 : 0);
  return {forward.flops * products, forward.bytes * products};
}

Conv1d::Conv1d(const OperatorRequest& request)
    : OnSequence(request,
                 {"out_channels", "kernel", "stride", "padding", "dilation", "groups", "bias", "activation", "trained"},
                 DefaultStride::one) {
  parameters_ = image.parameters();
  const Shape& weight = parameters_[0].shape;
  parameters_[0].shape = {weight[0], weight[1], weight[3]};
}

Block Conv1d::parameter_block(int parameter, const Block& part) const {
  const Block block = image.parameter_block(parameter, to_image(part));
  return parameter == 1 ? block : Block{block[0], block[1], block[3]};
}

std::unique_ptr<OperatorDefinition> make_conv2d(const OperatorRequest& request) {
  return std::make_unique<Conv2d>(request);
}
std::unique_ptr<OperatorDefinition> make_conv1d(const OperatorRequest& request) {
  return std::make_unique<Conv1d>(request);
}

}  // namespace ff
