#include "common/operators/pool2d.h"

#include "common/operators/operator_list.h"

namespace ff {
namespace {

// The input's shape, once the request is seen to have what pooling needs.
Shape image_shape(const OperatorRequest& request) {
  request.expect_one_input(4, 4);
  request.allow_attributes({"method", "kernel", "stride", "padding", "ceil", "count_padding"});
  return request.inputs[0].shape;
}

Window window(const OperatorRequest& request, size_t axis) {
  request.required_attribute("kernel");
  const auto kernel = request.pair("kernel", {1, 1}, 1, 1 << 16);
  return {request.inputs[0].shape[2 + axis], kernel[axis], request.pair("stride", kernel, 1, 1 << 16)[axis],
          request.pair("padding", {0, 0}, 0, 1 << 16)[axis]};
}

}  // namespace

Pool2d::Pool2d(const OperatorRequest& request)
    : Pool2d{request, image_shape(request), window(request, 0), window(request, 1)} {}

Pool2d::Pool2d(const OperatorRequest& request, const Shape& input, const Window& height_window,
               const Window& width_window)
    : OperatorDefinition(request.type, {{"", input}}), height(height_window), width(width_window) {
  method = request.choice("method", "max", {"max", "average"}) == "max" ? Method::max : Method::average;
  const bool ceil = request.flag("ceil", false);
  count_padding = request.flag("count_padding", false);
  if (ceil && count_padding)
    request.required_attribute("count_padding")
        .fail("cannot be combined with \"ceil\": the last window would count positions beyond the padding");
  for (const Window& window : {height, width}) {
    if (2 * window.padding > window.kernel)
      request.required_attribute("padding").fail("found " + std::to_string(window.padding) +
                                                 ", expected at most half of the kernel " +
                                                 std::to_string(window.kernel));
    if (window.output_size(ceil) < 1)
      request.required_attribute("kernel").fail("the kernel " + std::to_string(window.kernel) +
                                                " exceeds the padded input of shape " +
                                                to_string(request.inputs[0].shape));
  }
  outputs_ = {{"", {input[0], input[1], height.output_size(ceil), width.output_size(ceil)}}};
  dimensions_ = every_axis(outputs_[0].shape);
}

Block Pool2d::input_block(int, const Block& part) const {
  return {part[0], part[1], height.input(part[2]), width.input(part[3])};
}

std::string Pool2d::attribute_text() const {
  std::string text = method == Method::max ? "max" : count_padding ? "average count_padding" : "average";
  text += " kernel=" + std::to_string(height.kernel) + "x" + std::to_string(width.kernel);
  return text + " stride=" + std::to_string(height.stride) + "x" + std::to_string(width.stride);
}

std::string Pool2d::signature(const Block& part) const {
  return OperatorDefinition::signature(part) + " padding=" + std::to_string(height.padding_before(part[2])) + "," +
         std::to_string(height.padding_behind(part[2])) + "," + std::to_string(width.padding_before(part[3])) + "," +
         std::to_string(width.padding_behind(part[3]));
}

Work Pool2d::forward_work(const Block& part) const {
  return {static_cast<double>(part.volume() * height.kernel * width.kernel), touched_bytes(part)};
}

Pool1d::Pool1d(const OperatorRequest& request)
    : OnSequence(request, {"method", "kernel", "stride", "padding", "ceil", "count_padding"}, DefaultStride::kernel) {}

std::unique_ptr<OperatorDefinition> make_pool2d(const OperatorRequest& request) {
  return std::make_unique<Pool2d>(request);
}
std::unique_ptr<OperatorDefinition> make_pool1d(const OperatorRequest& request) {
  return std::make_unique<Pool1d>(request);
}

}  // namespace ff
