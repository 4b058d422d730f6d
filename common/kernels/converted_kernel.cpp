#include "common/kernels/converted_kernel.h"

#include "common/kernels/bf16_kernels.h"

namespace ff {
namespace {

class ConvertedKernel : public Kernel {
 public:
  ConvertedKernel(Backend& backend, const KernelRequest& request, void* scratch)
      : backend_(backend), kernel_(backend.make_kernel(request)), definition_(request.definition),
        scratch_(static_cast<char*>(scratch)),
        forward_(conversion_layout(definition_, request.part, false, request.input_gradients)),
        backward_(conversion_layout(definition_, request.part, true, request.input_gradients)) {
    for (const int i : definition_.inputs().indices())
      inputs_.push_back(definition_.input_block(i, request.part).volume());
    for (const int p : definition_.parameters().indices())
      parameters_.push_back(definition_.parameter_block(p, request.part).volume());
    for (const int o : definition_.outputs().indices())
      outputs_.push_back(definition_.output_block(o, request.part).volume());
  }

  void forward_statistics(const KernelArguments& arguments) override {
    kernel_->forward_statistics(operands(arguments, forward_));
  }
  void forward(const KernelArguments& arguments) override {
    last_forward_ = operands(arguments, forward_);
    kernel_->forward(last_forward_);
    round(last_forward_.outputs, arguments.outputs, forward_.outputs, outputs_);
  }
  // Right after forward: its operands are still there.
  void update_state(const KernelArguments&) override { kernel_->update_state(last_forward_); }
  void backward_statistics(const KernelArguments& arguments) override {
    kernel_->backward_statistics(operands(arguments, backward_));
  }
  void backward(const KernelArguments& arguments) override {
    const KernelArguments converted = operands(arguments, backward_);
    kernel_->backward(converted);
    round(converted.input_gradients, arguments.input_gradients, backward_.input_gradients, inputs_);
  }
  int64_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  void set_part(const Block& part, const std::string& operator_name) override {
    kernel_->set_part(part, operator_name);
  }

 private:
  float* at(int64_t offset) const { return reinterpret_cast<float*>(scratch_ + offset); }

  // The arguments with the scratch memory in place of what is converted, filled with what the kernel reads.
  KernelArguments operands(const KernelArguments& arguments, const ConversionLayout& layout) const {
    KernelArguments result = arguments;
    for (const int i : arguments.inputs.indices()) {
      const void* const source = arguments.inputs[i];
      if (layout.inputs[i] < 0 || !source) continue;
      float* const target = at(layout.inputs[i]);
      if (definition_.inputs()[i].type == DataType::bf16)
        backend_.convert(source, DataType::bf16, target, DataType::f32, inputs_[i]);
      else backend_.round_to_bf16(static_cast<const float*>(source), target, inputs_[i]);
      result.inputs[i] = target;
    }
    widen(arguments.parameters, result.parameters, layout.parameters, parameters_, arguments.masters);
    const bool backward = &layout == &backward_;
    if (backward) {
      widen(arguments.outputs, result.outputs, layout.outputs, outputs_);
      widen(arguments.output_gradients, result.output_gradients, layout.output_gradients, outputs_);
      redirect(result.input_gradients, layout.input_gradients);
    } else {
      redirect(result.outputs, layout.outputs);
    }
    return result;
  }

  template <class Pointer>
  void widen(const Vector<Pointer>& sources, Vector<Pointer>& targets, const Vector<int64_t>& offsets,
             const Vector<int64_t>& elements, const Vector<uint8_t>& masters = {}) const {
    for (const int i : sources.indices()) {
      if (offsets[i] < 0 || !sources[i]) continue;
      if (!masters.empty() && masters[i]) backend_.round_to_bf16(sources[i], at(offsets[i]), elements[i]);
      else backend_.convert(sources[i], DataType::bf16, at(offsets[i]), DataType::f32, elements[i]);
      targets[i] = at(offsets[i]);
    }
  }
  void redirect(Vector<float*>& targets, const Vector<int64_t>& offsets) const {
    for (const int i : targets.indices())
      if (offsets[i] >= 0 && targets[i]) targets[i] = at(offsets[i]);
  }
  void round(const Vector<float*>& sources, const Vector<float*>& targets, const Vector<int64_t>& offsets,
             const Vector<int64_t>& elements) const {
    for (const int i : targets.indices())
      if (offsets[i] >= 0 && targets[i])
        backend_.convert(sources[i], DataType::f32, targets[i], DataType::bf16, elements[i]);
  }

  Backend& backend_;
  std::unique_ptr<Kernel> kernel_;
  const OperatorDefinition& definition_;
  char* const scratch_;
  const ConversionLayout forward_, backward_;
  Vector<int64_t> inputs_, parameters_, outputs_;  // elements
  KernelArguments last_forward_;
};

}  // namespace

std::unique_ptr<Kernel> make_typed_kernel(Backend& backend, const KernelRequest& request, void* scratch) {
  if (request.definition.activation_type() == DataType::f32) return backend.make_kernel(request);
  if (auto* const native = dynamic_cast<Bf16Kernels*>(&backend))
    if (auto kernel = native->make_bf16_kernel(request, scratch)) return kernel;
  return std::make_unique<ConvertedKernel>(backend, request, scratch);
}

}  // namespace ff
