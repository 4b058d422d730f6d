#include "common/operators/activation.h"

#include "common/operators/operator_list.h"

namespace ff {

Activation::Activation(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(1, 4);
  constexpr double largest = 3.4028235e38;  // of a float
  const auto number = [&](const char* name, double otherwise) {
    return request.number(name, otherwise, -largest, largest);
  };
  if (type_ == "affine") {
    function = Function::affine;
    request.allow_attributes({"factor", "offset"});
    first = number("factor", 1);
    second = number("offset", 0);
  } else if (type_ == "clip") {
    function = Function::clip;
    request.allow_attributes({"least", "most"});
    first = number("least", -largest);
    second = number("most", largest);
    if (!(first < second))
      (request.attribute("most") ? *request.attribute("most") : request.place)
          .fail("found " + std::to_string(second) + ", expected more than \"least\", " + std::to_string(first));
  } else if (type_ == "leaky_relu") {
    function = Function::leaky_relu;
    request.allow_attributes({"slope"});
    first = number("slope", 0.01);
  } else if (type_ == "hard_sigmoid") {
    function = Function::hard_sigmoid;
    request.allow_attributes({"slope", "offset"});
    first = number("slope", 1.0 / 6);
    second = number("offset", 0.5);
  } else {
    function = Function::hard_swish;
    request.allow_attributes({});
    first = 1.0 / 6;
    second = 0.5;
  }
  outputs_ = {{"", inputs_[0].shape}};
  dimensions_ = every_axis(inputs_[0].shape);
}

std::unique_ptr<OperatorDefinition> make_activation(const OperatorRequest& request) {
  return std::make_unique<Activation>(request);
}

}  // namespace ff
