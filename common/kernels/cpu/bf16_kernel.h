// What kernels share that work on bf16 as it lies.
#pragma once

#include <algorithm>

#include "common/kernels/cpu/bf16_conversion.h"
#include "common/kernels/cpu/bf16_products.h"
#include "common/operators/attention.h"
#include "common/operators/conversion.h"

namespace ff::cpu {

// Which products there are, and operands that are not bf16.
class Bf16Kernel : public Kernel {
 public:
  // `has_workspace`: it has what the kernel in f32 keeps, if only so that memory does not depend on the processor.
  Bf16Kernel(const Context& context, const KernelRequest& request, void* scratch, bool has_workspace = true)
      : context_(context), definition_(request.definition), part_(request.part), scratch_(scratch),
        forward_bytes_(conversion_layout(definition_, part_, false, request.input_gradients).bytes),
        backward_bytes_(conversion_layout(definition_, part_, true, request.input_gradients).bytes),
        workspace_(has_workspace ? static_cast<size_t>(definition_.workspace_bytes(part_)) : 0) {}

  bool is_fast() const {
    return std::all_of(products_.begin(), products_.end(), [](const Bf16Product& one) { return one.is_fast(); });
  }
  int64_t workspace_bytes() const override { return workspace_.count(); }

 protected:
  Scratch forward_scratch() const { return {scratch_, forward_bytes_}; }
  Scratch backward_scratch() const { return {scratch_, backward_bytes_}; }
  int product(const Bf16ProductShape& shape) {
    products_.emplace_back(context_, shape);
    return products_.count() - 1;
  }
  void run(int product, const void* left, const void* right, void* result, const Scratch& scratch,
           const void* bias = nullptr) {
    products_[product].run(context_, left, right, bias, result, scratch);
  }
  // The graph's own inputs are f32, which are rounded.
  const void* input(const KernelArguments& arguments, int number, Scratch& scratch) const {
    const void* const values = arguments.inputs[number];
    if (definition_.inputs()[number].type == DataType::bf16) return values;
    return rounded(static_cast<const float*>(values), definition_.input_block(number, part_).volume(), scratch);
  }
  // Master weights too.
  const void* parameter(const KernelArguments& arguments, int number, Scratch& scratch) const {
    const float* const values = arguments.parameters[number];
    if (arguments.masters.empty() || !arguments.masters[number]) return values;
    return rounded(values, definition_.parameter_block(number, part_).volume(), scratch);
  }

  const Context& context_;
  const OperatorDefinition& definition_;
  const Block part_;

 private:
  // Half of what the conversion to f32 would take there.
  static const void* rounded(const float* values, int64_t elements, Scratch& scratch) {
    auto* const result = static_cast<Bf16*>(scratch.take(elements * static_cast<int64_t>(sizeof(Bf16))));
    narrow(values, result, elements);
    return result;
  }

  void* const scratch_;
  const int64_t forward_bytes_, backward_bytes_;
  Vector<Bf16Product> products_;

 protected:
  Vector<char> workspace_;
};

std::unique_ptr<Bf16Kernel> make_multi_head_attention_bf16(const Context& context, const KernelRequest& request,
                                                           const MultiHeadAttention& attention, void* scratch);

}  // namespace ff::cpu
