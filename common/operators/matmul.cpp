#include "common/operators/matmul.h"

#include <sstream>

#include "common/operators/operator_list.h"

namespace ff {

Matmul::Matmul(const OperatorRequest& request) : OperatorDefinition(request.type, request.inputs) {
  request.expect_inputs(2);
  for (size_t i : {0u, 1u}) {
    request.expect_rank(i, 3, 3);
    request.expect_type(i, DataType::f32);
  }
  request.allow_attributes({"transpose", "scale"});
  transposed = request.flag("transpose", false);
  scale = request.number("scale", 1, -1e6, 1e6);
  const Shape &a = inputs_[0].shape, &b = inputs_[1].shape;
  inner = a[2];
  const int64_t columns = transposed ? b[1] : b[2];
  const Shape expected = transposed ? Shape{a[0], columns, inner} : Shape{a[0], inner, columns};
  if (b != expected)
    request.place.at("inputs").items()[1].fail("has shape " + to_string(b) + ", expected " + to_string(expected) +
                                               " after a first input of shape " + to_string(a));
  outputs_ = {{"", {a[0], a[1], columns}}};
  dimensions_ = every_axis(outputs_[0].shape);
  dimensions_.push_back({"inner", DimensionKind::reduction, inner});
}

Block Matmul::input_block(int input, const Block& part) const {
  if (input == 0) return {part[0], part[1], part[3]};
  return transposed ? Block{part[0], part[2], part[3]} : Block{part[0], part[3], part[2]};
}

std::string Matmul::attribute_text() const {
  std::ostringstream text;
  text << (transposed ? "transpose " : "") << "scale=" << scale;
  return text.str();
}

Work Matmul::forward_work(const Block& part) const {
  return {2.0 * static_cast<double>(part.volume()), touched_bytes(part)};
}

Work Matmul::backward_work(const Block& part, bool) const {
  const Work forward = forward_work(part);
  return {2 * forward.flops, 2 * forward.bytes};
}

std::unique_ptr<OperatorDefinition> make_matmul(const OperatorRequest& request) {
  return std::make_unique<Matmul>(request);
}

}  // namespace ff
