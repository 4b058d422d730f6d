#include "common/operators/rearrange.h"

#include <algorithm>
#include <type_traits>

#include "common/kernels/cuda/bf16_kernel.h"

namespace ff::cuda {
namespace {

// The kernels' Element: float or Bf16, the type of the operator's tensors.
template <class Element>
constexpr auto copy_region = std::is_same_v<Element, Bf16> ? copy_block_bf16 : copy_block;

template <class Element>
constexpr int64_t bytes_of(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(Element));
}

template <class Element>
class ConcatKernel : public Kernel {
 public:
  ConcatKernel(const Context& context, const Concat& concat, const Block& part)
      : context_(context), output_(part), inputs_(concat.regions(part)) {}

  void forward(const KernelArguments& arguments) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      copy_region<Element>(context_, arguments.inputs[i], inputs_[i], arguments.outputs[0], output_, inputs_[i]);
  }
  void backward(const KernelArguments& arguments) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (arguments.input_gradients[i])
        copy_region<Element>(context_, arguments.output_gradients[0], output_, arguments.input_gradients[i], inputs_[i],
                             inputs_[i]);
  }

 private:
  const Context& context_;
  Block output_;
  Vector<Block> inputs_;  // in the output's coordinates
};

template <class Element>
class FlattenKernel : public Kernel {
 public:
  FlattenKernel(const Context& context, const Flatten& flatten, const Block& part)
      : context_(context), image_(flatten.inputs()[0].shape.size() == 4), samples_(part[0].size()),
        channels_(part[1].size()), inner_(flatten.inner) {}

  void forward(const KernelArguments& arguments) override {  // [inner, channel] -> [channel, inner] for each sample
    move(typed<Element>(arguments.inputs[0]), inner_, channels_, typed<Element>(arguments.outputs[0]));
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      move(typed<Element>(arguments.output_gradients[0]), channels_, inner_,
           typed<Element>(arguments.input_gradients[0]));
  }

 private:
  void move(const Element* source, int64_t rows, int64_t columns, Element* destination) const {
    if (image_) transpose<Element, Element>(context_, source, samples_, rows, columns, destination);
    else copy_bytes(context_, source, destination, bytes_of<Element>(samples_ * channels_ * inner_));
  }

  const Context& context_;
  bool image_;  // stored channels-last
  int64_t samples_, channels_, inner_;
};

// [samples, channels] of each input to its position of [samples, length, channels].
template <class Element>
class StackKernel : public Kernel {
 public:
  StackKernel(const Context& context, const Block& part)
      : context_(context), first_(part[1].begin), samples_(part[0].size()), length_(part[1].size()),
        channels_(part[2].size()) {}

  void forward(const KernelArguments& arguments) override {
    for (int64_t position = 0; position < length_; ++position)
      copy_columns(context_, typed<Element>(arguments.inputs[first_ + position]), channels_,
                   typed<Element>(arguments.outputs[0]) + position * channels_, length_ * channels_, samples_,
                   channels_);
  }
  void backward(const KernelArguments& arguments) override {
    for (int64_t position = 0; position < length_; ++position)
      if (Element* const gradient = typed<Element>(arguments.input_gradients[first_ + position]))
        copy_columns<Element>(context_, typed<Element>(arguments.output_gradients[0]) + position * channels_,
                              length_ * channels_, gradient, channels_, samples_, channels_);
  }

 private:
  const Context& context_;
  int64_t first_, samples_, length_, channels_;
};

template <class Element>
class SliceKernel : public Kernel {
 public:
  SliceKernel(const Context& context, const Slice& slice, const Block& part)
      : context_(context), input_(slice.input_block(0, part)), outputs_(slice.regions(part)) {}

  void forward(const KernelArguments& arguments) override {
    for (size_t o = 0; o < outputs_.size(); ++o)
      copy_region<Element>(context_, arguments.inputs[0], input_, arguments.outputs[o], outputs_[o], outputs_[o]);
  }
  void backward(const KernelArguments& arguments) override {
    Element* const gradient = typed<Element>(arguments.input_gradients[0]);
    if (!gradient) return;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (arguments.output_gradients[o])
        copy_region<Element>(context_, arguments.output_gradients[o], outputs_[o], gradient, input_, outputs_[o]);
      else zero_block(context_, gradient, input_, outputs_[o]);  // nobody uses the output
  }

 private:
  const Context& context_;
  Block input_;
  Vector<Block> outputs_;  // in the input's coordinates
};

template <class Element>
class PadKernel : public Kernel {
 public:
  PadKernel(const Context& context, const Pad& pad, const Block& part)
      : context_(context), output_(part), input_(pad.region(part)) {}

  void forward(const KernelArguments& arguments) override {
    fill_zero(context_, arguments.outputs[0], bytes_of<Element>(output_.volume()));
    if (!input_.empty())
      copy_region<Element>(context_, arguments.inputs[0], input_, arguments.outputs[0], output_, input_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0] && !input_.empty())
      copy_region<Element>(context_, arguments.output_gradients[0], output_, arguments.input_gradients[0], input_,
                           input_);
  }

 private:
  const Context& context_;
  Block output_, input_;
};

// The side that is written is visited in storage order, the other one with strides.
template <class Element>
class TransposeKernel : public Kernel {
 public:
  TransposeKernel(const Context& context, const Transpose& definition, const Block& part) : context_(context) {
    const Shape output = part.shape(), input = definition.input_block(0, part).shape();
    const Vector<int64_t> output_strides = stored_strides(output), input_strides = stored_strides(input);
    Vector<size_t> axes;  // of the output
    for (size_t axis = 0; axis < output.size(); ++axis) axes.push_back(axis);
    const auto loops = [&](const auto& stride_of, bool to_output) {
      std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return stride_of(a) > stride_of(b); });
      StridedLoops result;
      for (size_t axis : axes) {
        const int64_t of_output = output_strides[axis], of_input = input_strides[definition.axes[axis]];
        result.sizes[result.depth] = output[axis];
        result.from[result.depth] = to_output ? of_input : of_output;
        result.to[result.depth++] = to_output ? of_output : of_input;
      }
      return result;
    };
    forward_ = loops([&](size_t axis) { return output_strides[axis]; }, true);
    backward_ = loops([&](size_t axis) { return input_strides[definition.axes[axis]]; }, false);
  }

  void forward(const KernelArguments& arguments) override {
    copy_strided(context_, forward_, typed<Element>(arguments.inputs[0]), typed<Element>(arguments.outputs[0]));
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      copy_strided<Element>(context_, backward_, typed<Element>(arguments.output_gradients[0]),
                            typed<Element>(arguments.input_gradients[0]));
  }

 private:
  const Context& context_;
  StridedLoops forward_, backward_;
};

// By way of row-major order.
template <class Element>
class ReshapeKernel : public Kernel {
 public:
  ReshapeKernel(const Context& context, const Reshape& reshape, const Block& part)
      : context_(context), input_(reshape.input_block(0, part).shape()), output_(reshape.output_block(0, part).shape()),
        row_major_(context, input_.size() == 4 && output_.size() == 4 ? volume(output_) : 0) {}

  void forward(const KernelArguments& arguments) override {
    move(typed<Element>(arguments.inputs[0]), input_, typed<Element>(arguments.outputs[0]), output_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      move(typed<Element>(arguments.output_gradients[0]), output_, typed<Element>(arguments.input_gradients[0]),
           input_);
  }
  int64_t workspace_bytes() const override { return row_major_.bytes(); }

 private:
  void move(const Element* source, const Shape& from, Element* destination, const Shape& to) {
    if (from.size() == 4) {
      Element* const rows = to.size() == 4 ? typed<Element>(row_major_.data()) : destination;
      transpose(context_, source, from[0], from[2] * from[3], from[1], rows);
      source = rows;
    }
    if (to.size() == 4) transpose(context_, source, to[0], to[1], to[2] * to[3], destination);
    else if (from.size() != 4) copy_bytes(context_, source, destination, bytes_of<Element>(volume(to)));
  }

  const Context& context_;
  Shape input_, output_;
  Memory<float> row_major_;  // in bf16 as large as in f32
};

// Null for another operator.
template <class Element>
std::unique_ptr<Kernel> make_kernel(const Context& context, const KernelRequest& request) {
  const OperatorDefinition& definition = request.definition;
  const Block& part = request.part;
  if (const auto* const concat = dynamic_cast<const Concat*>(&definition))
    return std::make_unique<ConcatKernel<Element>>(context, *concat, part);
  if (const auto* const flatten = dynamic_cast<const Flatten*>(&definition))
    return std::make_unique<FlattenKernel<Element>>(context, *flatten, part);
  if (dynamic_cast<const Stack*>(&definition)) return std::make_unique<StackKernel<Element>>(context, part);
  if (const auto* const slice = dynamic_cast<const Slice*>(&definition))
    return std::make_unique<SliceKernel<Element>>(context, *slice, part);
  if (const auto* const pad = dynamic_cast<const Pad*>(&definition))
    return std::make_unique<PadKernel<Element>>(context, *pad, part);
  if (const auto* const transpose = dynamic_cast<const Transpose*>(&definition))
    return std::make_unique<TransposeKernel<Element>>(context, *transpose, part);
  if (const auto* const reshape = dynamic_cast<const Reshape*>(&definition))
    return std::make_unique<ReshapeKernel<Element>>(context, *reshape, part);
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_concat_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_flatten_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_stack_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_slice_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_pad_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_transpose_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_reshape_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<float>(context, request);
}
std::unique_ptr<Kernel> make_rearrange_bf16_kernel(const Context& context, const KernelRequest& request) {
  return make_kernel<Bf16>(context, request);
}

}  // namespace ff::cuda
