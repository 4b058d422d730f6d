#include "common/operators/sequence.h"

#include "common/operators/families.h"

namespace ff {
namespace {

constexpr int64_t most = 1 << 16;

Shape image_shape(const OperatorRequest& request, const Vector<std::string>& attributes) {
  request.expect_inputs(1);
  request.expect_rank(0, 3, 3);
  request.expect_type(0, DataType::f32);
  request.allow_attributes(attributes);
  const Shape& sequence = request.inputs[0].shape;
  return {sequence[0], sequence[2], 1, sequence[1]};
}

int64_t kernel(const OperatorRequest& request) { return request.required_attribute("kernel").as_integer(1, most); }

Window convolution_window(const OperatorRequest& request) {
  return {request.inputs[0].shape[1], kernel(request), request.integer("stride", 1, 1, most),
          request.integer("padding", 0, 0, most), request.integer("dilation", 1, 1, most)};
}

Window pooling_window(const OperatorRequest& request) {
  return {request.inputs[0].shape[1], kernel(request), request.integer("stride", kernel(request), 1, most),
          request.integer("padding", 0, 0, most)};
}

}  // namespace

Conv1d::Conv1d(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs), image{request,
                                                              image_shape(request, {"out_channels", "kernel", "stride",
                                                                                    "padding", "dilation", "groups",
                                                                                    "bias", "activation"}),
                                                              Window{}, convolution_window(request)} {
  const Shape& output = image.outputs()[0].shape;
  outputs_ = {{"", {output[0], output[3], output[1]}}};
  parameters_ = image.parameters();
  const Shape& weight = parameters_[0].shape;
  parameters_[0].shape = {weight[0], weight[1], weight[3]};
  dimensions_ = {{"sample", DimensionKind::sample, output[0]},
                 {"length", DimensionKind::attribute, output[3]},
                 {"channel", DimensionKind::parameter, output[1]}};
}

Block Conv1d::parameter_block(int parameter, const Block& part) const {
  Block block(parameters_[parameter].shape);
  block[0] = part[2];
  return block;
}

Pool1d::Pool1d(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs),
      image{request, image_shape(request, {"method", "kernel", "stride", "padding", "ceil", "count_padding"}), Window{},
            pooling_window(request)} {
  const Shape& output = image.outputs()[0].shape;
  outputs_ = {{"", {output[0], output[3], output[1]}}};
  dimensions_ = {{"sample", DimensionKind::sample, output[0]},
                 {"length", DimensionKind::attribute, output[3]},
                 {"channel", DimensionKind::attribute, output[1]}};
}

std::unique_ptr<OperatorDefinition> make_conv1d(const OperatorRequest& request) {
  return std::make_unique<Conv1d>(request);
}
std::unique_ptr<OperatorDefinition> make_pool1d(const OperatorRequest& request) {
  return std::make_unique<Pool1d>(request);
}

}  // namespace ff
