// Windows over sequences [batch, length, channels]: the same as over images of height 1, whose storage they share.
#pragma once

#include "common/operators/operator.h"
#include "common/operators/window.h"

namespace ff {

// Blocks and parts of sequences, [sample, length, channel], as those of images of height 1, [sample, channel, height,
// width], and back. Parts may have a dimension more after these.
inline Block to_image(const Block& block) {
  Block image = {block[0], block[2], {0, 1}, block[1]};
  if (block.rank() > 3) image.append(block[3]);
  return image;
}
inline Block to_sequence(const Block& block) { return {block[0], block[3], block[1]}; }

// The request's input as an image, once the request is seen to have what a window over a sequence needs.
Shape sequence_as_image(const OperatorRequest& request, const Vector<std::string>& attributes);
// The request's window over the length; by default windows do not overlap, or are one position apart.
enum class DefaultStride { kernel, one };
Window sequence_window(const OperatorRequest& request, DefaultStride default_stride);

// [batch, length, channels] -> [batch, out_length, out_channels], as Image does it.
template <class Image>
class OnSequence : public OperatorDefinition {
 public:
  OnSequence(const OperatorRequest& request, const Vector<std::string>& attributes, DefaultStride default_stride)
      : OperatorDefinition(request.type, request.inputs), image{request, sequence_as_image(request, attributes),
                                                                Window{}, sequence_window(request, default_stride)} {
    const Shape& output = image.outputs()[0].shape;
    outputs_ = {{"", {output[0], output[3], output[1]}}};
    dimensions_ = {image.dimensions()[0], {"length", DimensionKind::attribute, output[3]}, image.dimensions()[1]};
    dimensions_.insert(dimensions_.end(), image.dimensions().begin() + 4, image.dimensions().end());
  }

  Block output_block(int, const Block& part) const override { return {part[0], part[1], part[2]}; }
  Block input_block(int, const Block& part) const override { return to_sequence(image.input_block(0, to_image(part))); }
  bool reads_every_element(int input) const override { return image.reads_every_element(input); }
  std::string signature(const Block& part) const override { return type_ + " as " + image.signature(to_image(part)); }
  bool backward_reads_input(int input) const override { return image.backward_reads_input(input); }
  bool backward_reads_output() const override { return image.backward_reads_output(); }
  void set_types(const Vector<DataType>& inputs, DataType activations) override {
    OperatorDefinition::set_types(inputs, activations);
    image.set_types(inputs, activations);
  }
  int64_t workspace_bytes(const Block& part) const override { return image.workspace_bytes(to_image(part)); }
  int64_t shared_workspace_bytes(const Block& part) const override {
    return image.shared_workspace_bytes(to_image(part));
  }
  Work forward_work(const Block& part) const override { return image.forward_work(to_image(part)); }
  Work backward_work(const Block& part, bool input_gradients) const override {
    return image.backward_work(to_image(part), input_gradients);
  }

  Image image;
};

}  // namespace ff
