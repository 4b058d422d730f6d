#include "common/operators/elementwise.h"

#include <sstream>

#include "common/operators/operator_list.h"

namespace ff {

Elementwise::Elementwise(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  constexpr std::pair<const char*, Function> functions[] = {
      {"relu", Function::relu},         {"tanh", Function::tanh}, {"sigmoid", Function::sigmoid},
      {"gelu", Function::gelu},         {"silu", Function::silu}, {"elu", Function::elu},
      {"softplus", Function::softplus}, {"mish", Function::mish}, {"log", Function::log},
      {"exp", Function::exp},           {"sin", Function::sin},   {"pow", Function::pow},
      {"add", Function::add},           {"sub", Function::sub},   {"mul", Function::mul},
      {"identity", Function::identity}};
  for (const auto& [name, value] : functions)
    if (type_ == name) function = value;
  if (function == Function::add) request.expect_inputs_between(2, SIZE_MAX);
  else request.expect_inputs(function == Function::sub || function == Function::mul ? 2 : 1);
  if (function == Function::gelu) {
    request.allow_attributes({"approximate"});
    if (request.choice("approximate", "none", {"none", "tanh"}) == "tanh") function = Function::gelu_tanh;
  } else if (function == Function::elu) {
    request.allow_attributes({"alpha"});
    alpha = static_cast<float>(request.number("alpha", 1, 0, 1e30));
  } else if (function == Function::silu || function == Function::mul || function == Function::identity) {
    request.allow_attributes({"sample_axis"});
    of_experts = request.integer("sample_axis", 0, 0, 1) == 1;
    if (of_experts) request.expect_rank(0, 3, 3);
  } else if (function == Function::pow) {
    request.allow_attributes({"exponent"});
    request.required_attribute("exponent");
    alpha = static_cast<float>(request.number("exponent", 1, -1e6, 1e6));
  } else {
    request.allow_attributes({});
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    request.expect_rank(i, 1, 4);
    request.expect_type(i, DataType::f32);
    if (inputs_[i].shape != inputs_[0].shape)
      request.place.at("inputs").items()[i].fail("has shape " + to_string(inputs_[i].shape) + ", the first input of " +
                                                 type_ + " has shape " + to_string(inputs_[0].shape));
  }
  outputs_ = {{"", inputs_[0].shape}};
  dimensions_ = every_axis(inputs_[0].shape);
  if (of_experts)
    dimensions_ = {{"sample", DimensionKind::sample, inputs_[0].shape[1]},
                   {"expert", DimensionKind::attribute, inputs_[0].shape[0]},
                   dimensions_[2]};
}

std::string Elementwise::attribute_text() const {
  if (gate_kernel != GateKernel::none) return gate_kernel == GateKernel::product ? "gate" : "in the gate's kernel";
  if (function == Function::gelu_tanh) return "approximate=tanh";
  if (function != Function::pow) return "";
  std::ostringstream text;
  text << "exponent=" << alpha;
  return text.str();
}

std::unique_ptr<OperatorDefinition> make_elementwise(const OperatorRequest& request) {
  return std::make_unique<Elementwise>(request);
}

}  // namespace ff
