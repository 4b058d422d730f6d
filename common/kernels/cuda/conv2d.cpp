#include "common/operators/conv2d.h"

#include "common/kernels/cuda/convolution.h"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// A part of a convolution. Where the part sees different padding before and after, it works on a copy of the input
// with zeros around it. Where it cuts groups it is one convolution a touched group, on channel slices copied out and
// in.
class Conv2dKernel : public Kernel {
 public:
  Conv2dKernel(const Context& context, const Conv2d& conv, const Block& part, bool input_gradient)
      : context_(context), conv_(conv), bias_(conv.adds_bias(part)),
        weight_row_(conv.summed_channels(part).size() * conv.height.kernel * conv.width.kernel),
        input_(conv.input_block(0, part).shape()), output_(conv.output_block(0, part).shape()),
        masked_(context, conv.relu ? volume(output_) : 0) {
    ConvolutionGeometry whole{};
    whole.samples = output_[0];
    whole.out_channels = output_[1];
    whole.in_channels = input_[1];
    padded_ = Block(input_);
    for (int axis : {0, 1}) {
      const Window& window = axis == 0 ? conv.height : conv.width;
      const Interval outputs = part[2 + axis];
      const int64_t before = window.padding_before(outputs), behind = window.padding_behind(outputs);
      whole.output[axis] = outputs.size();
      whole.kernel[axis] = window.kernel;
      whole.stride[axis] = window.stride;
      whole.dilation[axis] = window.dilation;
      // cuDNN pads both sides alike. That gives the same windows if less comes after by not so much as a stride.
      if (before >= behind && before - behind < window.stride) whole.padding[axis] = before;
      else padded_[2 + axis] = {-before, input_[2 + axis] + behind};
      whole.input[axis] = padded_[2 + axis].size();
    }
    make_slices(whole, part[1], input_gradient);
    context.reserve_scratch(
        std::max(run_scratch_bytes(), sum_rows_scratch_bytes(context, output_pixels(), output_[1])));
  }

  void forward(const KernelArguments& arguments) override {
    ScratchPieces scratch(context_.scratch());
    const Pieces pieces = take_pieces(scratch);
    const float* input = pad(static_cast<const float*>(arguments.inputs[0]), pieces);
    for (const Slice& slice : slices_) {
      const ConvolutionGeometry& geometry = slice.convolution->geometry();
      const float* weight = arguments.parameters[0] + slice.first_output * weight_row_;
      if (slices_.size() == 1) {
        slice.convolution->forward(input, weight, arguments.outputs[0], scratch);
        continue;
      }
      take_channels(input, input_[1], slice.first_input, geometry.in_channels, input_pixels(), pieces.input_slice);
      slice.convolution->forward(pieces.input_slice, weight, pieces.output_slice, scratch);
      put_channels(pieces.output_slice, geometry.out_channels, arguments.outputs[0], output_[1], slice.first_output,
                   output_pixels());
    }
    add_bias(context_, bias_ ? arguments.parameters[1] : nullptr, conv_.relu, output_pixels(), output_[1],
             arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (conv_.relu) {
      mask_by_positive(context_, arguments.outputs[0], gradient, masked_.data(), volume(output_));
      gradient = masked_.data();
    }
    if (bias_ && conv_.trained)
      sum_rows(context_, gradient, output_pixels(), output_[1], arguments.parameter_gradients[1],
               arguments.accumulates(1), context_.scratch());
    ScratchPieces scratch(context_.scratch());
    const Pieces pieces = take_pieces(scratch);
    const float* input = pad(static_cast<const float*>(arguments.inputs[0]), pieces);
    if (conv_.trained)
      for (const Slice& slice : slices_) backward_weight(slice, input, gradient, arguments, pieces, scratch);
    float* result = arguments.input_gradients[0];
    if (!result) return;
    float* padded = is_padded() ? pieces.padded : result;  // the input's copy has been used
    for (const Slice& slice : slices_)
      backward_input(slice, gradient, arguments.parameters[0], padded, pieces, scratch);
    if (is_padded()) copy_block(context_, padded, padded_, result, Block(input_), Block(input_));
  }

  int64_t workspace_bytes() const override { return masked_.bytes(); }

 private:
  struct Slice {
    std::unique_ptr<Convolution> convolution;
    int64_t first_input, first_output;  // channels, within the part's blocks
  };
  // Scratch memory of a run, before that of the convolution.
  struct Pieces {
    float *padded = nullptr, *input_slice = nullptr, *output_slice = nullptr;
  };

  void make_slices(ConvolutionGeometry whole, Interval channels, bool input_gradient) {
    const int64_t out_per_group = conv_.out_channels / conv_.groups, in_per_group = conv_.in_channels / conv_.groups;
    const int64_t first = channels.begin / out_per_group, last = (channels.end - 1) / out_per_group;
    const bool cuts_groups = channels.begin % out_per_group != 0 || channels.end % out_per_group != 0;
    if (first == last || !cuts_groups) {
      whole.groups = last - first + 1;
      slices_.push_back({std::make_unique<Convolution>(context_, whole, input_gradient), 0, 0});
      return;
    }
    whole.groups = 1;
    whole.in_channels = in_per_group;
    for (int64_t group = first; group <= last; ++group) {
      const Interval own = intersect(channels, Interval{group * out_per_group, (group + 1) * out_per_group});
      whole.out_channels = own.size();
      slices_.push_back({std::make_unique<Convolution>(context_, whole, input_gradient), (group - first) * in_per_group,
                         own.begin - channels.begin});
    }
  }

  void backward_weight(const Slice& slice, const float* input, const float* gradient, const KernelArguments& arguments,
                       const Pieces& pieces, const ScratchPieces& scratch) const {
    const ConvolutionGeometry& geometry = slice.convolution->geometry();
    if (slices_.size() > 1) {
      take_channels(input, input_[1], slice.first_input, geometry.in_channels, input_pixels(), pieces.input_slice);
      take_channels(gradient, output_[1], slice.first_output, geometry.out_channels, output_pixels(),
                    pieces.output_slice);
      input = pieces.input_slice;
      gradient = pieces.output_slice;
    }
    slice.convolution->backward_weight(input, gradient,
                                       arguments.parameter_gradients[0] + slice.first_output * weight_row_,
                                       arguments.accumulates(0), scratch);
  }

  void backward_input(const Slice& slice, const float* gradient, const float* weight, float* result,
                      const Pieces& pieces, const ScratchPieces& scratch) const {
    const ConvolutionGeometry& geometry = slice.convolution->geometry();
    weight += slice.first_output * weight_row_;
    if (slices_.size() == 1) {
      slice.convolution->backward_input(weight, gradient, result, scratch);
      return;
    }
    take_channels(gradient, output_[1], slice.first_output, geometry.out_channels, output_pixels(),
                  pieces.output_slice);
    slice.convolution->backward_input(weight, pieces.output_slice, pieces.input_slice, scratch);
    put_channels(pieces.input_slice, geometry.in_channels, result, input_[1], slice.first_input, input_pixels());
  }

  Pieces take_pieces(ScratchPieces& scratch) const {
    Pieces pieces;
    if (is_padded()) pieces.padded = scratch.take(padded_.volume());
    if (slices_.size() == 1) return pieces;
    int64_t most_out = 0;
    for (const Slice& slice : slices_) most_out = std::max(most_out, slice.convolution->geometry().out_channels);
    pieces.input_slice = scratch.take(input_pixels() * slices_[0].convolution->geometry().in_channels);
    pieces.output_slice = scratch.take(output_pixels() * most_out);
    return pieces;
  }
  int64_t run_scratch_bytes() const {
    ScratchPieces pieces;
    take_pieces(pieces);
    int64_t most = 0;
    for (const Slice& slice : slices_) most = std::max(most, slice.convolution->scratch_bytes());
    return pieces.taken() + most;
  }

  const float* pad(const float* input, const Pieces& pieces) const {
    if (!is_padded()) return input;
    fill_zero(context_, pieces.padded, padded_.volume() * element_bytes);
    copy_block(context_, input, Block(input_), pieces.padded, padded_, Block(input_));
    return pieces.padded;
  }
  void take_channels(const float* source, int64_t channels, int64_t first, int64_t count, int64_t pixels,
                     float* slice) const {
    copy_columns(context_, source + first, channels, slice, count, pixels, count);
  }
  void put_channels(const float* slice, int64_t count, float* destination, int64_t channels, int64_t first,
                    int64_t pixels) const {
    copy_columns(context_, slice, count, destination + first, channels, pixels, count);
  }

  bool is_padded() const { return !(padded_ == Block(input_)); }
  int64_t input_pixels() const { return padded_.volume() / padded_[1].size(); }
  int64_t output_pixels() const { return volume(output_) / output_[1]; }

  const Context& context_;
  const Conv2d& conv_;
  bool bias_;
  int64_t weight_row_;  // weights of one output channel
  Shape input_, output_;
  Block padded_;  // the input with the padding that cuDNN cannot add, in the coordinates of the input block
  Vector<Slice> slices_;
  Memory<float> masked_;  // gradient after the relu
};

}  // namespace

std::unique_ptr<Kernel> make_conv2d_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<Conv2dKernel>(context, dynamic_cast<const Conv2d&>(request.definition), request.part,
                                        request.input_gradients[0]);
}

std::unique_ptr<Kernel> make_conv1d_kernel(const Context& context, const KernelRequest& request) {
  const Conv1d& sequence = dynamic_cast<const Conv1d&>(request.definition);
  return std::make_unique<Conv2dKernel>(context, sequence.image, to_image(request.part), request.input_gradients[0]);
}

}  // namespace ff::cuda
