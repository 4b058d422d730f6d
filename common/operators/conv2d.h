#pragma once

#include "common/operators/sequence.h"

namespace ff {

// input [batch, in_channels, height, width] -> [batch, out_channels, out_height, out_width].
// weight [out_channels, in_channels / groups, kernel_height, kernel_width], bias [out_channels].
// With `trained` false the parameters are constants that the model gives; backward then has the input's gradient alone.
// Without groups and without a fused activation, which needs the whole sum, in_channel is an R dimension after those
// of the output. Of the parts that share a sum the first adds the bias.
class Conv2d : public OperatorDefinition {
 public:
  explicit Conv2d(const OperatorRequest& request);
  // The same on an input of shape `image` and with these windows; the other attributes are the request's.
  Conv2d(const OperatorRequest& request, const Shape& image, const Window& height, const Window& width);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  bool position_matters(int dimension) const override {
    const DimensionKind kind = dimensions_[dimension].kind;
    return kind == DimensionKind::attribute || (kind == DimensionKind::parameter && groups > 1) ||
           (kind == DimensionKind::reduction && bias);
  }
  bool reads_every_element(int input) const override {
    return height.leaves_no_gap() && width.leaves_no_gap() && OperatorDefinition::reads_every_element(input);
  }
  std::string attribute_text() const override;
  std::string signature(const Block& part) const override;
  bool backward_reads_output() const override { return relu; }
  int64_t workspace_bytes(const Block& part) const override {
    return relu ? output_block(0, part).volume() * element_bytes : 0;
  }
  int64_t shared_workspace_bytes(const Block& part) const override { return scratch(part).bytes; }
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  // Of one group's input channels, those that the part multiplies; does it add the bias?
  Interval summed_channels(const Block& part) const {
    return part.rank() > 4 ? part[4] : Interval{0, in_channels / groups};
  }
  bool adds_bias(const Block& part) const { return bias && summed_channels(part).begin == 0; }

  // How processors compute a part. One of one pixel with strides is a convolution without strides of the pixels that it
  // reads, once they are dense.
  bool takes_pixels() const {
    return height.kernel == 1 && width.kernel == 1 && (height.stride != 1 || width.stride != 1);
  }
  Shape dense_input(const Block& part) const;
  // The output channels of each convolution that it is: one, or where the part cuts groups one a group.
  Vector<Interval> slices(const Block& part) const;
  // Copies of input and output in blocks of 16 channels, oneDNN's own layout on processors with AVX-512, make backward
  // faster where the channels are whole vectors; an image's few are another kernel's.
  static bool has_whole_vectors(int64_t in, int64_t out) { return (in % 16 == 0 || in == 3) && out % 16 == 0; }
  // Where in scratch memory, in bytes: dense pixels at 0; of a slice the input, its gradient and the output; blocks of
  // channels of the input, and after these, aligned, of the output.
  struct Scratch {
    int64_t input_slice = 0, gradient_slice = 0, output_slice = 0, blocks = 0, bytes = 0;
    static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
  };
  Scratch scratch(const Block& part) const;

  int64_t in_channels, out_channels, groups;
  Window height, width;
  bool bias;
  bool relu;  // fused: output = max(0, convolution)
  bool trained;
};

// input [batch, length, in_channels] -> [batch, out_length, out_channels]. weight [out_channels, in_channels / groups,
// kernel], bias [out_channels].
class Conv1d : public OnSequence<Conv2d> {
 public:
  explicit Conv1d(const OperatorRequest& request);

  Block parameter_block(int parameter, const Block& part) const override;
};

}  // namespace ff
