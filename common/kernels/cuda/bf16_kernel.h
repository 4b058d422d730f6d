// What kernels share that work on bf16 as it lies (common/kernels/bf16_kernels.h).
#pragma once

#include "common/kernels/bf16.h"
#include "common/kernels/bf16_kernels.h"
#include "common/kernels/cuda/kernels.h"
#include "common/operators/conversion.h"

namespace ff::cuda {

class Bf16Kernel : public Kernel {
 public:
  Bf16Kernel(const Context& context, const KernelRequest& request, void* scratch)
      : context_(context), definition_(request.definition), part_(request.part), scratch_(scratch),
        forward_bytes_(conversion_layout(definition_, part_, false, request.input_gradients).bytes),
        backward_bytes_(conversion_layout(definition_, part_, true, request.input_gradients).bytes) {}

 protected:
  Scratch forward_scratch() const { return {scratch_, forward_bytes_}; }
  Scratch backward_scratch() const { return {scratch_, backward_bytes_}; }

  static const Bf16* as_bf16(const void* values) { return static_cast<const Bf16*>(values); }
  static Bf16* as_bf16(float* values) { return reinterpret_cast<Bf16*>(values); }

  // The graph's own inputs are f32, which are rounded.
  const Bf16* input(const KernelArguments& arguments, int number, Scratch& scratch) const {
    const void* const values = arguments.inputs[number];
    if (definition_.inputs()[number].type == DataType::bf16) return as_bf16(values);
    return rounded(static_cast<const float*>(values), definition_.input_block(number, part_).volume(), scratch);
  }
  // Master weights too.
  const Bf16* parameter(const KernelArguments& arguments, int number, Scratch& scratch) const {
    const float* const values = arguments.parameters[number];
    if (!is_master(arguments, number)) return as_bf16(values);
    return rounded(values, definition_.parameter_block(number, part_).volume(), scratch);
  }
  static bool is_master(const KernelArguments& arguments, int number) {
    return !arguments.masters.empty() && arguments.masters[number];
  }

  const Context& context_;
  const OperatorDefinition& definition_;
  const Block part_;

 private:
  // Half of what the conversion to f32 would take there.
  const Bf16* rounded(const float* values, int64_t elements, Scratch& scratch) const {
    auto* const result = static_cast<Bf16*>(scratch.take(elements * static_cast<int64_t>(sizeof(Bf16))));
    narrow(context_, values, result, elements);
    return result;
  }

  void* const scratch_;
  const int64_t forward_bytes_, backward_bytes_;
};

// A kernel on bf16, with f32 inputs of the graph and master weights rounded before it runs.
class RoundedKernel : public Bf16Kernel {
 public:
  RoundedKernel(const Context& context, const KernelRequest& request, void* scratch, std::unique_ptr<Kernel> kernel)
      : Bf16Kernel(context, request, scratch), kernel_(std::move(kernel)) {}

  void forward(const KernelArguments& arguments) override {
    kernel_->forward(all_in_bf16(arguments, forward_scratch()));
  }
  void backward(const KernelArguments& arguments) override {
    kernel_->backward(all_in_bf16(arguments, backward_scratch()));
  }
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }

 private:
  KernelArguments all_in_bf16(const KernelArguments& arguments, Scratch scratch) const {
    KernelArguments result = arguments;
    for (const int i : arguments.inputs.indices()) result.inputs[i] = input(arguments, i, scratch);
    for (const int p : arguments.parameters.indices())
      result.parameters[p] = reinterpret_cast<const float*>(parameter(arguments, p, scratch));
    return result;
  }

  const std::unique_ptr<Kernel> kernel_;
};

// Null for another operator. Of operators whose inputs are bf16, or labels.
std::unique_ptr<Kernel> make_elementwise_bf16_kernel(const Context& context, const KernelRequest& request);
std::unique_ptr<Kernel> make_dropout_bf16_kernel(const Context& context, const KernelRequest& request);
std::unique_ptr<Kernel> make_layer_norm_bf16_kernel(const Context& context, const KernelRequest& request);
std::unique_ptr<Kernel> make_rms_norm_bf16_kernel(const Context& context, const KernelRequest& request);
std::unique_ptr<Kernel> make_batch_norm_bf16_kernel(const Context& context, const KernelRequest& request);
std::unique_ptr<Kernel> make_softmax_cross_entropy_bf16_kernel(const Context& context, const KernelRequest& request);
std::unique_ptr<Kernel> make_pool_bf16_kernel(const Context& context, const KernelRequest& request);  // 2d, 1d
std::unique_ptr<Kernel> make_mean_bf16_kernel(const Context& context, const KernelRequest& request);
// Operators of common/operators/rearrange.h.
std::unique_ptr<Kernel> make_rearrange_bf16_kernel(const Context& context, const KernelRequest& request);
// Of products of bf16 matrices, which came with those in TF32; inputs of the graph that are f32 are rounded.
std::unique_ptr<Kernel> make_lstm_bf16_kernel(const Context& context, const KernelRequest& request, void* scratch);
// conv2d or conv1d; null too where cuDNN has none in bf16.
std::unique_ptr<Kernel> make_convolution_bf16_kernel(const Context& context, const KernelRequest& request,
                                                     void* scratch);

// Null for another operator, and where heads have more than 128 channels.
std::unique_ptr<Kernel> make_multi_head_attention_bf16_kernel(const Context& context, const KernelRequest& request,
                                                              void* scratch);

// bf16_kernels.cu: every row of [rows, columns], `stride` apart, with zeros behind them.
void fill_rows(const Context& context, const Bf16* row, int64_t rows, int64_t columns, int64_t stride, Bf16* result);

// bf16_kernels.cu: null where there is none for this operator, or for this GPU.
std::unique_ptr<Kernel> make_bf16_kernel(const Context& context, const KernelRequest& request, void* scratch);
std::string native_bf16_operators(const Context& context);

}  // namespace ff::cuda
