#include "common/operators/local_response_normalization.h"

#include <sstream>

#include "common/operators/operator_list.h"

namespace ff {

LocalResponseNormalization::LocalResponseNormalization(const OperatorRequest& request)
    : OperatorDefinition(request.type, request.inputs) {
  request.expect_one_input(4, 4);
  request.allow_attributes({"size", "alpha", "beta", "bias"});
  const Shape& shape = inputs_[0].shape;
  channels = shape[1];
  size = request.integer("size", 5, 1, 1 << 16);
  if (size % 2 == 0)
    request.required_attribute("size").fail("found " + std::to_string(size) + ", expected an odd number of channels");
  alpha = request.number("alpha", 1e-4, 0, 1e6);
  beta = request.number("beta", 0.75, 0, 100);
  bias = request.number("bias", 2, 1e-6, 1e6);
  outputs_ = {{"", shape}};
  dimensions_ = every_axis(shape, /*but=*/1);
}

Block LocalResponseNormalization::output_block(int, const Block& part) const {
  return {part[0], {0, channels}, part[1], part[2]};
}

Block LocalResponseNormalization::input_block(int, const Block& part) const { return output_block(0, part); }

std::string LocalResponseNormalization::attribute_text() const {
  std::ostringstream text;
  text << "size=" << size << " alpha=" << alpha << " beta=" << beta << " bias=" << bias;
  return text.str();
}

Work LocalResponseNormalization::forward_work(const Block& part) const {
  return {static_cast<double>(output_block(0, part).volume() * (2 * size + 20)), touched_bytes(part)};
}

Work LocalResponseNormalization::backward_work(const Block& part, bool) const {
  return {static_cast<double>(output_block(0, part).volume() * (4 * size + 40)), 2 * touched_bytes(part)};
}

std::unique_ptr<OperatorDefinition> make_local_response_normalization(const OperatorRequest& request) {
  return std::make_unique<LocalResponseNormalization>(request);
}

}  // namespace ff
