#include "tests/unit/common/kernels/reference/sequence.h"

namespace ff::reference {
namespace {

// [batch, length, channel] as [batch, channel, 1, length], and back.
Values swap_positions(const Values& x, int64_t batch, int64_t rows, int64_t columns) {
  Values y(x.size());
  for (int64_t n = 0; n < batch; ++n)
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) y[(n * columns + c) * rows + r] = x[(n * rows + r) * columns + c];
  return y;
}
Values sequence_to_image(const Values& x, const Shape& sequence) {
  return swap_positions(x, sequence[0], sequence[1], sequence[2]);
}
Values image_to_sequence(const Values& x, const Shape& sequence) {
  return swap_positions(x, sequence[0], sequence[2], sequence[1]);
}

}  // namespace

Reference on_images(const OperatorDefinition& definition, const Reference& image) {
  const Shape &in = definition.inputs()[0].shape, &out = definition.outputs()[0].shape;
  return {[=](const Operands& x) {
            const Values y = image.forward({{sequence_to_image(x.inputs[0], in)}, x.parameters})[0];
            return Vector<Values>{image_to_sequence(y, out)};
          },
          [=](const Operands& x, const Vector<Values>& dy) {
            Gradients gradients =
                image.backward({{sequence_to_image(x.inputs[0], in)}, x.parameters}, {sequence_to_image(dy[0], out)});
            gradients.inputs[0] = image_to_sequence(gradients.inputs[0], in);
            return gradients;
          }};
}

}  // namespace ff::reference
