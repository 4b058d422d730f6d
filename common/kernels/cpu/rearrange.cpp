#include "common/operators/rearrange.h"

#include <cstring>

#include "common/kernels/cpu/block_copy.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

class ConcatKernel : public Kernel {
 public:
  ConcatKernel(const Concat& concat, const Block& part) : output_(part) {
    for (int input = 0; input < static_cast<int>(concat.inputs().size()); ++input) {
      Block block = concat.input_block(input, part);  // in the output's coordinates:
      block[concat.axis].begin += concat.offsets[input];
      block[concat.axis].end += concat.offsets[input];
      inputs_.push_back(block);
    }
  }

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
  std::vector<Block> inputs_;
};

class FlattenKernel : public Kernel {
 public:
  FlattenKernel(const Flatten& flatten, const Block& part)
      : image_(flatten.inputs()[0].shape.size() == 4), samples_(part[0].size()), channels_(part[1].size()), inner_(flatten.inner) {}

  void forward(const KernelArguments& arguments) override {  // [inner, channel] -> [channel, inner] for each sample
    if (image_) transpose(static_cast<const uint32_t*>(arguments.inputs[0]), samples_, inner_, channels_, reinterpret_cast<uint32_t*>(arguments.outputs[0]));
    else std::memcpy(arguments.outputs[0], arguments.inputs[0], bytes());
  }
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    const float* gradient = arguments.output_gradients[0];
    if (image_) transpose(reinterpret_cast<const uint32_t*>(gradient), samples_, channels_, inner_, reinterpret_cast<uint32_t*>(result));
    else std::memcpy(result, gradient, bytes());
  }

 private:
  size_t bytes() const { return static_cast<size_t>(samples_ * channels_ * inner_) * sizeof(float); }

  bool image_;  // stored channels-last
  int64_t samples_, channels_, inner_;
};

}  // namespace

std::unique_ptr<Kernel> make_concat_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<ConcatKernel>(dynamic_cast<const Concat&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_flatten_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<FlattenKernel>(dynamic_cast<const Flatten&>(request.definition), request.part);
}

}  // namespace ff::cpu
