#include "common/operators/rearrange.h"

#include <cstring>

#include "common/kernels/cpu/block_copy.h"
#include "common/kernels/cpu/kernels.h"
#include "common/vector.h"

namespace ff::cpu {
namespace {

class ConcatKernel : public Kernel {
 public:
  ConcatKernel(const Concat& concat, const Block& part) : output_(part), inputs_(concat.regions(part)) {}

  void forward(const KernelArguments& arguments) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      copy_block(arguments.inputs[i], inputs_[i], arguments.outputs[0], output_, inputs_[i]);
  }
  void backward(const KernelArguments& arguments) override {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (arguments.input_gradients[i])
        copy_block(arguments.output_gradients[0], output_, arguments.input_gradients[i], inputs_[i], inputs_[i]);
  }

 private:
  Block output_;
  Vector<Block> inputs_;  // in the output's coordinates
};

class FlattenKernel : public Kernel {
 public:
  FlattenKernel(const Flatten& flatten, const Block& part)
      : image_(flatten.inputs()[0].shape.size() == 4), samples_(part[0].size()), channels_(part[1].size()),
        inner_(flatten.inner) {}

  void forward(const KernelArguments& arguments) override {  // [inner, channel] -> [channel, inner] for each sample
    if (image_)
      transpose(static_cast<const uint32_t*>(arguments.inputs[0]), samples_, inner_, channels_,
                reinterpret_cast<uint32_t*>(arguments.outputs[0]));
    else std::memcpy(arguments.outputs[0], arguments.inputs[0], bytes());
  }
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    const float* gradient = arguments.output_gradients[0];
    if (image_)
      transpose(reinterpret_cast<const uint32_t*>(gradient), samples_, channels_, inner_,
                reinterpret_cast<uint32_t*>(result));
    else std::memcpy(result, gradient, bytes());
  }

 private:
  size_t bytes() const { return static_cast<size_t>(samples_ * channels_ * inner_) * sizeof(float); }

  bool image_;  // stored channels-last
  int64_t samples_, channels_, inner_;
};

// [samples, channels] of each input to its position of [samples, length, channels].
class StackKernel : public Kernel {
 public:
  StackKernel(const Stack&, const Block& part)
      : first_(part[1].begin), samples_(part[0].size()), length_(part[1].size()), channels_(part[2].size()) {}

  void forward(const KernelArguments& arguments) override {
    for (int64_t position = 0; position < length_; ++position)
      copy_columns(static_cast<const float*>(arguments.inputs[first_ + position]), channels_,
                   arguments.outputs[0] + position * channels_, length_ * channels_, samples_, channels_);
  }
  void backward(const KernelArguments& arguments) override {
    for (int64_t position = 0; position < length_; ++position)
      if (float* gradient = arguments.input_gradients[first_ + position])
        copy_columns(arguments.output_gradients[0] + position * channels_, length_ * channels_, gradient, channels_,
                     samples_, channels_);
  }

 private:
  int64_t first_, samples_, length_, channels_;
};

class SliceKernel : public Kernel {
 public:
  SliceKernel(const Slice& slice, const Block& part)
      : input_(slice.input_block(0, part)), outputs_(slice.regions(part)) {}

  void forward(const KernelArguments& arguments) override {
    for (size_t o = 0; o < outputs_.size(); ++o)
      copy_block(arguments.inputs[0], input_, arguments.outputs[o], outputs_[o], outputs_[o]);
  }
  void backward(const KernelArguments& arguments) override {
    float* gradient = arguments.input_gradients[0];
    if (!gradient) return;
    for (size_t o = 0; o < outputs_.size(); ++o)
      if (arguments.output_gradients[o])
        copy_block(arguments.output_gradients[o], outputs_[o], gradient, input_, outputs_[o]);
      else zero(gradient, outputs_[o]);
  }

 private:
  // Of an output that nobody uses.
  void zero(float* gradient, const Block& region) {
    zeros_.resize(region.volume(), 0.0f);
    copy_block(zeros_.data(), region, gradient, input_, region);
  }

  Block input_;
  Vector<Block> outputs_;  // in the input's coordinates
  Vector<float> zeros_;
};

class PadKernel : public Kernel {
 public:
  PadKernel(const Pad& pad, const Block& part) : output_(part), input_(pad.region(part)) {}

  void forward(const KernelArguments& arguments) override {
    std::memset(arguments.outputs[0], 0, static_cast<size_t>(output_.volume()) * sizeof(float));
    if (!input_.empty()) copy_block(arguments.inputs[0], input_, arguments.outputs[0], output_, input_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0] && !input_.empty())
      copy_block(arguments.output_gradients[0], output_, arguments.input_gradients[0], input_, input_);
  }

 private:
  Block output_, input_;
};

// Elements of a block that is stored as `shape` are visited in storage order, those of the other side with strides.
class TransposeKernel : public Kernel {
 public:
  TransposeKernel(const Transpose& transpose, const Block& part) {
    const Shape output = part.shape(), input = transpose.input_block(0, part).shape();
    const Vector<int64_t> output_strides = stored_strides(output), input_strides = stored_strides(input);
    for (size_t axis = 0; axis < 4; ++axis) {
      sizes_[axis] = axis < output.size() ? output[axis] : 1;
      output_strides_[axis] = axis < output.size() ? output_strides[axis] : 0;
      input_strides_[axis] = axis < output.size() ? input_strides[transpose.axes[axis]] : 0;
    }
  }

  void forward(const KernelArguments& arguments) override {
    move(static_cast<const float*>(arguments.inputs[0]), input_strides_, arguments.outputs[0], output_strides_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      move(arguments.output_gradients[0], output_strides_, arguments.input_gradients[0], input_strides_);
  }

 private:
  using Strides = Array<int64_t, 4>;

  void move(const float* source, const Strides& from, float* destination, const Strides& to) const {
    for (int64_t a = 0; a < sizes_[0]; ++a)
      for (int64_t b = 0; b < sizes_[1]; ++b)
        for (int64_t c = 0; c < sizes_[2]; ++c) {
          const float* row = source + a * from[0] + b * from[1] + c * from[2];
          float* result = destination + a * to[0] + b * to[1] + c * to[2];
          for (int64_t d = 0; d < sizes_[3]; ++d) result[d * to[3]] = row[d * from[3]];
        }
  }

  Strides sizes_, output_strides_, input_strides_;  // by output axis
};

class ReshapeKernel : public Kernel {
 public:
  ReshapeKernel(const Reshape& reshape, const Block& part)
      : input_(reshape.input_block(0, part).shape()), output_(reshape.output_block(0, part).shape()),
        row_major_(static_cast<size_t>(volume(output_))) {}

  void forward(const KernelArguments& arguments) override {
    move(static_cast<const float*>(arguments.inputs[0]), input_, arguments.outputs[0], output_);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      move(arguments.output_gradients[0], output_, arguments.input_gradients[0], input_);
  }
  int64_t workspace_bytes() const override { return static_cast<int64_t>(row_major_.size() * sizeof(float)); }

 private:
  void move(const float* source, const Shape& from, float* destination, const Shape& to) {
    uint32_t* rows = reinterpret_cast<uint32_t*>(row_major_.data());
    if (from.size() == 4)
      transpose(reinterpret_cast<const uint32_t*>(source), from[0], from[2] * from[3], from[1], rows);
    else std::memcpy(rows, source, row_major_.size() * sizeof(float));
    if (to.size() == 4) transpose(rows, to[0], to[1], to[2] * to[3], reinterpret_cast<uint32_t*>(destination));
    else std::memcpy(destination, rows, row_major_.size() * sizeof(float));
  }

  Shape input_, output_;
  Vector<float> row_major_;
};

}  // namespace

std::unique_ptr<Kernel> make_concat_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<ConcatKernel>(dynamic_cast<const Concat&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_flatten_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<FlattenKernel>(dynamic_cast<const Flatten&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_stack_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<StackKernel>(dynamic_cast<const Stack&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_slice_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<SliceKernel>(dynamic_cast<const Slice&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_pad_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<PadKernel>(dynamic_cast<const Pad&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_transpose_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<TransposeKernel>(dynamic_cast<const Transpose&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_reshape_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<ReshapeKernel>(dynamic_cast<const Reshape&>(request.definition), request.part);
}

}  // namespace ff::cpu
