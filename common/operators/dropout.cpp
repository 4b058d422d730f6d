#include "common/operators/dropout.h"

#include "common/operators/operator_list.h"

namespace ff {

Dropout::Dropout(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(1, 4);
  request.allow_attributes({"rate"});
  rate = request.number("rate", 0.5, 0, 1);
  if (rate >= 1) request.required_attribute("rate").fail("found 1, expected less: nothing would be kept");
  outputs_ = {{"", inputs_[0].shape}};
  dimensions_ = every_axis(inputs_[0].shape);
}

std::string Dropout::attribute_text() const {
  std::string text = std::to_string(rate);
  return "rate=" + text;
}

std::unique_ptr<OperatorDefinition> make_dropout(const OperatorRequest& request) {
  return std::make_unique<Dropout>(request);
}

}  // namespace ff
