#include "common/operators/rearrange.h"

#include <algorithm>

#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

const float* floats(const void* memory) { return static_cast<const float*>(memory); }

class ConcatKernel : public Kernel {
 public:
  ConcatKernel(const Context& context, const Concat& concat, const Block& part)
      : context_(context), output_(part), inputs_(concat.regions(part)) {}

  void forward(const KernelArguments& arguments) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      copy_block(context_, arguments.inputs[i], inputs_[i], arguments.outputs[0], output_, inputs_[i]);
  }
  void backward(const KernelArguments& arguments) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (arguments.input_gradients[i])
        copy_block(context_, arguments.output_gradients[0], output_, arguments.input_gradients[i], inputs_[i],
                   inputs_[i]);
  }

 private:
  const Context& context_;
  Block output_;
  Vector<Block> inputs_;  // in the output's coordinates
};

class FlattenKernel : public Kernel {
 public:
  FlattenKernel(const Context& context, const Flatten& flatten, const Block& part)
      : context_(context), image_(flatten.inputs()[0].shape.size() == 4), samples_(part[0].size()),
        channels_(part[1].size()), inner_(flatten.inner) {}

  void forward(const KernelArguments& arguments) override {  // [inner, channel] -> [channel, inner] for each sample
    const float* input = floats(arguments.inputs[0]);
    if (image_) transpose(context_, input, samples_, inner_, channels_, arguments.outputs[0]);
    else copy(context_, input, arguments.outputs[0], samples_ * channels_ * inner_);
  }
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    if (image_) transpose(context_, arguments.output_gradients[0], samples_, channels_, inner_, result);
    else copy(context_, arguments.output_gradients[0], result, samples_ * channels_ * inner_);
  }

 private:
  const Context& context_;
  bool image_;  // stored channels-last
  int64_t samples_, channels_, inner_;
};

// [samples, channels] of each input to its position of [samples, length, channels].
class StackKernel : public Kernel {
 public:
  StackKernel(const Context& context, const Block& part)
      : context_(context), first_(part[1].begin), samples_(part[0].size()), length_(part[1].size()),
        channels_(part[2].size()) {}

  void forward(const KernelArguments& arguments) override {
    for (int64_t position = 0; position < length_; ++position)
      copy_columns(context_, floats(arguments.inputs[first_ + position]), channels_,
                   arguments.outputs[0] + position * channels_, length_ * channels_, samples_, channels_);
  }
  void backward(const KernelArguments& arguments) override {
    for (int64_t position = 0; position < length_; ++position)
      if (float* gradient = arguments.input_gradients[first_ + position])
        copy_columns(context_, arguments.output_gradients[0] + position * channels_, length_ * channels_, gradient,
                     channels_, samples_, channels_);
  }

 private:
  const Context& context_;
  int64_t first_, samples_, length_, channels_;
};

class SliceKernel : public Kernel {
 public:
  SliceKernel(const Context& context, const Slice& slice, const Block& part)
      : context_(context), input_(slice.input_block(0, part)), outputs_(slice.regions(part)) {}

  void forward(const KernelArguments& arguments) override {
    for (size_t o = 0; o < outputs_.size(); ++o)
      copy_block(context_, arguments.inputs[0], input_, arguments.outputs[o], outputs_[o], outputs_[o]);
  }
  void backward(const KernelArguments& arguments) override {
    float* gradient = arguments.input_gradients[0];
    if (!gradient) return;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (arguments.output_gradients[o])
        copy_block(context_, arguments.output_gradients[o], outputs_[o], gradient, input_, outputs_[o]);
      else zero_block(context_, gradient, input_, outputs_[o]);  // nobody uses the output
  }

 private:
  const Context& context_;
  Block input_;
  Vector<Block> outputs_;  // in the input's coordinates
};

class PadKernel : public Kernel {
 public:
  PadKernel(const Context& context, const Pad& pad, const Block& part)
      : context_(context), output_(part), input_(pad.region(part)) {}

  void forward(const KernelArguments& arguments) override {
    fill_zero(context_, arguments.outputs[0], output_.volume() * element_bytes);
    if (!input_.empty()) copy_block(context_, arguments.inputs[0], input_, arguments.outputs[0], output_, input_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0] && !input_.empty())
      copy_block(context_, arguments.output_gradients[0], output_, arguments.input_gradients[0], input_, input_);
  }

 private:
  const Context& context_;
  Block output_, input_;
};

// The side that is written is visited in storage order, the other one with strides.
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
    copy_strided(context_, forward_, floats(arguments.inputs[0]), arguments.outputs[0]);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      copy_strided(context_, backward_, arguments.output_gradients[0], arguments.input_gradients[0]);
  }

 private:
  const Context& context_;
  StridedLoops forward_, backward_;
};

// By way of row-major order.
class ReshapeKernel : public Kernel {
 public:
  ReshapeKernel(const Context& context, const Reshape& reshape, const Block& part)
      : context_(context), input_(reshape.input_block(0, part).shape()), output_(reshape.output_block(0, part).shape()),
        row_major_(context, input_.size() == 4 && output_.size() == 4 ? volume(output_) : 0) {}

  void forward(const KernelArguments& arguments) override {
    move(floats(arguments.inputs[0]), input_, arguments.outputs[0], output_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      move(arguments.output_gradients[0], output_, arguments.input_gradients[0], input_);
  }
  int64_t workspace_bytes() const override { return row_major_.bytes(); }

 private:
  void move(const float* source, const Shape& from, float* destination, const Shape& to) {
    if (from.size() == 4) {
      float* rows = to.size() == 4 ? row_major_.data() : destination;
      transpose(context_, source, from[0], from[2] * from[3], from[1], rows);
      source = rows;
    }
    if (to.size() == 4) transpose(context_, source, to[0], to[1], to[2] * to[3], destination);
    else if (from.size() != 4) copy(context_, source, destination, volume(to));
  }

  const Context& context_;
  Shape input_, output_;
  Memory<float> row_major_;
};

}  // namespace

std::unique_ptr<Kernel> make_concat_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ConcatKernel>(context, dynamic_cast<const Concat&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_flatten_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<FlattenKernel>(context, dynamic_cast<const Flatten&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_stack_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<StackKernel>(context, request.part);
}
std::unique_ptr<Kernel> make_slice_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SliceKernel>(context, dynamic_cast<const Slice&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_pad_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<PadKernel>(context, dynamic_cast<const Pad&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_transpose_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<TransposeKernel>(context, dynamic_cast<const Transpose&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_reshape_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ReshapeKernel>(context, dynamic_cast<const Reshape&>(request.definition), request.part);
}

}  // namespace ff::cuda
