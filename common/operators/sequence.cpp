#include "common/operators/sequence.h"

namespace ff {

Shape sequence_as_image(const OperatorRequest& request, const Vector<std::string>& attributes) {
  request.expect_one_input(3, 3);
  request.allow_attributes(attributes);
  const Shape& sequence = request.inputs[0].shape;
  return {sequence[0], sequence[2], 1, sequence[1]};
}

Window sequence_window(const OperatorRequest& request, DefaultStride default_stride) {
  constexpr int64_t most = 1 << 16;
  const int64_t kernel = request.required_attribute("kernel").as_integer(1, most);
  const int64_t stride = request.integer("stride", default_stride == DefaultStride::kernel ? kernel : 1, 1, most);
  return {request.inputs[0].shape[1], kernel, stride, request.integer("padding", 0, 0, most),
          request.integer("dilation", 1, 1, most)};
}

}  // namespace ff
