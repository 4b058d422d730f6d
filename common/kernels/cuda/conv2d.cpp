#include "common/operators/conv2d.h"

#include <algorithm>
#include <type_traits>

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/convolution.h"

namespace ff::cuda {
namespace {

// A part of a convolution. Where the part sees different padding before and after, it works on a copy of the input
// with zeros around it. Where it cuts groups it is one convolution a touched group, on channel slices copied out and
// in.
// Element: float or Bf16, the type of activations and weights. With Bf16 a sum is rounded before the bias is added and
// after.
template <class Element>
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
    const Element* const input = pad(typed<Element>(arguments.inputs[0]), pieces);
    Element* const output = typed<Element>(arguments.outputs[0]);
    for (const Slice& slice : slices_) {
      const ConvolutionGeometry& geometry = slice.convolution->geometry();
      const Element* const weight = typed<Element>(arguments.parameters[0]) + slice.first_output * weight_row_;
      if (slices_.size() == 1) {
        slice.convolution->forward(input, weight, output, scratch);
        continue;
      }
      take_channels(input, input_[1], slice.first_input, geometry.in_channels, input_pixels(), pieces.input_slice);
      slice.convolution->forward(pieces.input_slice, weight, pieces.output_slice, scratch);
      put_channels(pieces.output_slice, geometry.out_channels, output, output_[1], slice.first_output, output_pixels());
    }
    add_bias<Element>(context_, bias_ ? typed<Element>(arguments.parameters[1]) : nullptr, conv_.relu, output_pixels(),
                      output_[1], output);
  }

  void backward(const KernelArguments& arguments) override {
    const Element* gradient = typed<Element>(arguments.output_gradients[0]);
    if (conv_.relu) {
      Element* const masked = typed<Element>(masked_.data());
      mask_by_positive<Element>(context_, typed<Element>(arguments.outputs[0]), gradient, masked, volume(output_));
      gradient = masked;
    }
    if (bias_ && conv_.trained)
      sum_rows(context_, gradient, output_pixels(), output_[1], arguments.parameter_gradients[1],
               arguments.accumulates(1), context_.scratch());
    ScratchPieces scratch(context_.scratch());
    const Pieces pieces = take_pieces(scratch);
    const Element* const input = pad(typed<Element>(arguments.inputs[0]), pieces);
    if (conv_.trained)
      for (const Slice& slice : slices_) backward_weight(slice, input, gradient, arguments, pieces, scratch);
    Element* const result = typed<Element>(arguments.input_gradients[0]);
    if (!result) return;
    Element* const padded = is_padded() ? pieces.padded : result;  // the input's copy has been used
    for (const Slice& slice : slices_)
      backward_input(slice, gradient, typed<Element>(arguments.parameters[0]), padded, pieces, scratch);
    if (is_padded()) copy_input(padded, padded_, result, Block(input_));
  }

  int64_t workspace_bytes() const override { return masked_.bytes(); }

  bool can_run() const {
    return std::all_of(slices_.begin(), slices_.end(), [](const Slice& slice) { return slice.convolution->can_run(); });
  }

 private:
  struct Slice {
    std::unique_ptr<Convolution<Element>> convolution;
    int64_t first_input, first_output;  // channels, within the part's blocks
  };
  // Scratch memory of a run, before that of the convolution.
  struct Pieces {
    Element *padded = nullptr, *input_slice = nullptr, *output_slice = nullptr;
  };

  void make_slices(ConvolutionGeometry whole, Interval channels, bool input_gradient) {
    const int64_t out_per_group = conv_.out_channels / conv_.groups, in_per_group = conv_.in_channels / conv_.groups;
    const int64_t first = channels.begin / out_per_group, last = (channels.end - 1) / out_per_group;
    const bool cuts_groups = channels.begin % out_per_group != 0 || channels.end % out_per_group != 0;
    if (first == last || !cuts_groups) {
      whole.groups = last - first + 1;
      slices_.push_back({std::make_unique<Convolution<Element>>(context_, whole, input_gradient), 0, 0});
      return;
    }
    whole.groups = 1;
    whole.in_channels = in_per_group;
    for (int64_t group = first; group <= last; ++group) {
      const Interval own = intersect(channels, Interval{group * out_per_group, (group + 1) * out_per_group});
      whole.out_channels = own.size();
      slices_.push_back({std::make_unique<Convolution<Element>>(context_, whole, input_gradient),
                         (group - first) * in_per_group, own.begin - channels.begin});
    }
  }

  void backward_weight(const Slice& slice, const Element* input, const Element* gradient,
                       const KernelArguments& arguments, const Pieces& pieces, const ScratchPieces& scratch) const {
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

  void backward_input(const Slice& slice, const Element* gradient, const Element* weight, Element* result,
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
    if (is_padded()) pieces.padded = scratch.template take<Element>(padded_.volume());
    if (slices_.size() == 1) return pieces;
    int64_t most_out = 0;
    for (const Slice& slice : slices_) most_out = std::max(most_out, slice.convolution->geometry().out_channels);
    pieces.input_slice =
        scratch.template take<Element>(input_pixels() * slices_[0].convolution->geometry().in_channels);
    pieces.output_slice = scratch.template take<Element>(output_pixels() * most_out);
    return pieces;
  }
  int64_t run_scratch_bytes() const {
    ScratchPieces pieces;
    take_pieces(pieces);
    int64_t most = 0;
    for (const Slice& slice : slices_) most = std::max(most, slice.convolution->scratch_bytes());
    return pieces.taken() + most;
  }

  const Element* pad(const Element* input, const Pieces& pieces) const {
    if (!is_padded()) return input;
    fill_zero(context_, pieces.padded, padded_.volume() * static_cast<int64_t>(sizeof(Element)));
    copy_input(input, Block(input_), pieces.padded, padded_);
    return pieces.padded;
  }
  // The input's block, between buffers of more.
  void copy_input(const Element* source, const Block& source_block, Element* destination,
                  const Block& destination_block) const {
    constexpr auto copy = std::is_same_v<Element, Bf16> ? copy_block_bf16 : copy_block;
    copy(context_, source, source_block, destination, destination_block, Block(input_));
  }
  void take_channels(const Element* source, int64_t channels, int64_t first, int64_t count, int64_t pixels,
                     Element* slice) const {
    copy_columns(context_, source + first, channels, slice, count, pixels, count);
  }
  void put_channels(const Element* slice, int64_t count, Element* destination, int64_t channels, int64_t first,
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
  Memory<float> masked_;  // gradient after the relu; in bf16 as large as in f32
};

// With the definition of a convolution of images, and a part of it.
template <class Make>
std::unique_ptr<Kernel> of_images(const KernelRequest& request, const Make& make) {
  if (const auto* const conv = dynamic_cast<const Conv2d*>(&request.definition)) return make(*conv, request.part);
  const auto* const sequence = dynamic_cast<const Conv1d*>(&request.definition);
  return sequence ? make(sequence->image, to_image(request.part)) : nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Context& context, const KernelRequest& request) {
  return of_images(request, [&](const Conv2d& conv, const Block& part) {
    return std::make_unique<Conv2dKernel<float>>(context, conv, part, request.input_gradients[0]);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_conv2d_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel(context, request);
}
std::unique_ptr<Kernel> make_conv1d_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel(context, request);
}
std::unique_ptr<Kernel> make_convolution_bf16_kernel(const Context& context, const KernelRequest& request,
                                                     void* scratch) {
  return of_images(request, [&](const Conv2d& conv, const Block& part) -> std::unique_ptr<Kernel> {
    auto kernel = std::make_unique<Conv2dKernel<Bf16>>(context, conv, part, request.input_gradients[0]);
    if (!kernel->can_run()) return nullptr;
    return std::make_unique<RoundedKernel>(context, request, scratch, std::move(kernel));
  });
}

}  // namespace ff::cuda
