#include "common/operators/elementwise.h"

#include "common/operators/families.h"

namespace ff {
namespace {

Vector<ParallelDimension> all_axes(const Shape& shape) {
  Vector<ParallelDimension> dimensions;
  const Vector<std::string> names = axis_names(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis)
    dimensions.push_back({names[axis], axis == 0 ? DimensionKind::sample : DimensionKind::attribute, shape[axis]});
  return dimensions;
}

}  // namespace

Elementwise::Elementwise(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  constexpr std::pair<const char*, Function> functions[] = {
      {"relu", Function::relu}, {"tanh", Function::tanh}, {"sigmoid", Function::sigmoid}, {"gelu", Function::gelu},
      {"add", Function::add},   {"sub", Function::sub},   {"mul", Function::mul}};
  for (const auto& [name, value] : functions)
    if (type_ == name) function = value;
  if (function == Function::add) request.expect_inputs_between(2, SIZE_MAX);
  else request.expect_inputs(function == Function::sub || function == Function::mul ? 2 : 1);
  request.allow_attributes({});
  for (size_t i = 0; i < inputs_.size(); ++i) {
    request.expect_rank(i, 1, 4);
    request.expect_type(i, DataType::f32);
    if (inputs_[i].shape != inputs_[0].shape)
      request.place.at("inputs").items()[i].fail("has shape " + to_string(inputs_[i].shape) + ", the first input of " +
                                                 type_ + " has shape " + to_string(inputs_[0].shape));
  }
  outputs_ = {{"", inputs_[0].shape}};
  dimensions_ = all_axes(inputs_[0].shape);
}

Dropout::Dropout(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(1);
  request.expect_rank(0, 1, 4);
  request.expect_type(0, DataType::f32);
  request.allow_attributes({"rate"});
  rate = request.number("rate", 0.5, 0, 1);
  if (rate >= 1) request.required_attribute("rate").fail("found 1, expected less: nothing would be kept");
  outputs_ = {{"", inputs_[0].shape}};
  dimensions_ = all_axes(inputs_[0].shape);
}

std::string Dropout::attribute_text() const {
  std::string text = std::to_string(rate);
  return "rate=" + text;
}

std::unique_ptr<OperatorDefinition> make_elementwise(const OperatorRequest& request) {
  return std::make_unique<Elementwise>(request);
}
std::unique_ptr<OperatorDefinition> make_dropout(const OperatorRequest& request) {
  return std::make_unique<Dropout>(request);
}

}  // namespace ff
