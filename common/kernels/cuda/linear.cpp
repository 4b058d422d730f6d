#include "common/operators/linear.h"

#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class LinearKernel : public Kernel {
 public:
  LinearKernel(const Context& context, const Linear& linear, const Block& part)
      : context_(context), bias_(linear.adds_bias(part)), relu_(linear.relu), in_(linear.in_channels(part).size()),
        out_(linear.parameter_block(0, part)[0].size()), rows_(linear.output_block(0, part).volume() / out_),
        masked_(context, linear.relu ? rows_ * out_ : 0) {
    if (bias_) context.reserve_scratch(sum_rows_scratch_bytes(context, rows_, out_));
  }

  void forward(const KernelArguments& arguments) override {
    multiply_matrices(context_, 'N', 'T', rows_, out_, in_, static_cast<const float*>(arguments.inputs[0]), in_,
                      arguments.parameters[0], in_, 0, arguments.outputs[0], out_);
    add_bias(context_, bias_ ? arguments.parameters[1] : nullptr, relu_, rows_, out_, arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (relu_) {
      mask_by_positive(context_, arguments.outputs[0], gradient, masked_.data(), rows_ * out_);
      gradient = masked_.data();
    }
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    multiply_matrices(context_, 'T', 'N', out_, in_, rows_, gradient, out_, input, in_,
                      arguments.accumulates(0) ? 1 : 0, arguments.parameter_gradients[0], in_);
    if (bias_)
      sum_rows(context_, gradient, rows_, out_, arguments.parameter_gradients[1], arguments.accumulates(1),
               context_.scratch());
    if (arguments.input_gradients[0])
      multiply_matrices(context_, 'N', 'N', rows_, in_, out_, gradient, out_, arguments.parameters[0], in_, 0,
                        arguments.input_gradients[0], in_);
  }

  int64_t workspace_bytes() const override { return masked_.bytes(); }

 private:
  const Context& context_;
  bool bias_, relu_;
  int64_t in_, out_, rows_;
  Memory<float> masked_;  // gradient after the relu
};

}  // namespace

std::unique_ptr<Kernel> make_linear_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LinearKernel>(context, dynamic_cast<const Linear&>(request.definition), request.part);
}

}  // namespace ff::cuda
