#include "common/operators/experts.h"

#include <cstring>

#include "common/errors.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

FF_VECTORIZED void add_scaled(const float* source, float factor, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] += factor * source[i];
}

FF_VECTORIZED void scale(const float* source, float factor, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = factor * source[i];
}

FF_VECTORIZED float product(const float* a, const float* b, int64_t elements) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < elements; ++i) sum += a[i] * b[i];
  return sum;
}

// What dispatch and combine share: visiting the slots of a part's tokens.
class RoutedKernel : public Kernel {
 public:
  RoutedKernel(const Routed& routed, const KernelRequest& request)
      : name_(request.operator_name), rows_(routed.rows(request.part)), tokens_(routed.tokens(request.part)),
        top_k_(routed.top_k), slots_(routed.routing.slots()),
        channels_(request.part[1].size()), here_{routed.experts(request.part).begin * rows_.capacity,
                                                 routed.experts(request.part).end * rows_.capacity},
        expert_elements_(here_.size() * rows_.groups * channels_) {}

 protected:
  // visit(token, number of the choice, where its row begins) for every choice that has a slot of the part's experts.
  template <class Visit>
  void for_each_row(const void* slots, const Visit& visit) const {
    const int32_t* slot = static_cast<const int32_t*>(slots);
    for (int64_t token = 0; token < tokens_; ++token)
      for (int64_t choice = token * top_k_; choice < (token + 1) * top_k_; ++choice)
        if (slot[choice] != -1 && is_here(checked(slot[choice])))
          visit(token, choice, rows_.row(token, slot[choice] - here_.begin) * channels_);
  }

  static void clear(float* values, int64_t elements) {
    std::memset(values, 0, static_cast<size_t>(elements) * sizeof(float));
  }

  int64_t checked(int32_t slot) const {
    if (slot < 0 || slot >= slots_)
      throw InputError(name_ + ": found the slot " + std::to_string(slot) + ", expected one from -1 to " +
                       std::to_string(slots_ - 1));
    return slot;
  }
  bool is_here(int64_t slot) const { return slot >= here_.begin && slot < here_.end; }

  std::string name_;
  ExpertRows rows_;
  int64_t tokens_, top_k_, slots_, channels_;
  Interval here_;            // slots of the part's experts
  int64_t expert_elements_;  // of [part's experts, groups * capacity, channels]
};

class DispatchKernel : public RoutedKernel {
 public:
  using RoutedKernel::RoutedKernel;

  void forward(const KernelArguments& arguments) override {
    const float* x = static_cast<const float*>(arguments.inputs[0]);
    clear(arguments.outputs[0], expert_elements_);
    for_each_row(arguments.inputs[1], [&](int64_t token, int64_t, int64_t row) {
      std::memcpy(arguments.outputs[0] + row, x + token * channels_, static_cast<size_t>(channels_) * sizeof(float));
    });
  }

  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    clear(result, tokens_ * channels_);
    for_each_row(arguments.inputs[1], [&](int64_t token, int64_t, int64_t row) {
      add_to(arguments.output_gradients[0] + row, result + token * channels_, channels_);
    });
  }
};

class CombineKernel : public RoutedKernel {
 public:
  using RoutedKernel::RoutedKernel;

  void forward(const KernelArguments& arguments) override {
    const float *rows = static_cast<const float*>(arguments.inputs[0]),
                *weights = static_cast<const float*>(arguments.inputs[2]);
    clear(arguments.outputs[0], tokens_ * channels_);
    for_each_row(arguments.inputs[1], [&](int64_t token, int64_t choice, int64_t row) {
      add_scaled(rows + row, weights[choice], arguments.outputs[0] + token * channels_, channels_);
    });
  }

  void backward(const KernelArguments& arguments) override {
    const float *rows = static_cast<const float*>(arguments.inputs[0]),
                *weights = static_cast<const float*>(arguments.inputs[2]), *gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) {
      clear(result, expert_elements_);
      for_each_row(arguments.inputs[1], [&](int64_t token, int64_t choice, int64_t row) {
        scale(gradient + token * channels_, weights[choice], result + row, channels_);
      });
    }
    if (float* result = arguments.input_gradients[2]) {
      clear(result, tokens_ * top_k_);
      for_each_row(arguments.inputs[1], [&](int64_t token, int64_t choice, int64_t row) {
        result[choice] = product(gradient + token * channels_, rows + row, channels_);
      });
    }
  }
};

// Of each expert: input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class ExpertLinearKernel : public Kernel {
 public:
  ExpertLinearKernel(const Context& context, const ExpertLinear& linear, const Block& part)
      : context_(context), bias_(linear.adds_bias(part)), relu_(linear.relu), rows_(part[0].size()),
        experts_(part[1].size()), in_(linear.in_channels(part).size()), out_(part[2].size()),
        forward_(make_linear(context, rows_, in_, out_, bias_, relu_)) {
    if (relu_) masked_.resize(experts_ * rows_ * out_);
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    for (int64_t e = 0; e < experts_; ++e)
      run_linear(context_, forward_, input + e * rows_ * in_, arguments.parameters[0] + e * out_ * in_,
                 bias_ ? arguments.parameters[1] + e * out_ : nullptr, arguments.outputs[0] + e * rows_ * out_);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* gradients = arguments.output_gradients[0];
    if (relu_) {
      mask_by_positive(arguments.outputs[0], gradients, masked_.data(), experts_ * rows_ * out_);
      gradients = masked_.data();
    }
    const float* inputs = static_cast<const float*>(arguments.inputs[0]);
    for (int64_t e = 0; e < experts_; ++e) {
      const float* gradient = gradients + e * rows_ * out_;
      multiply_matrices('T', 'N', out_, in_, rows_, gradient, out_, inputs + e * rows_ * in_, in_,
                        arguments.accumulates(0) ? 1 : 0, arguments.parameter_gradients[0] + e * out_ * in_, in_);
      if (bias_) sum_rows(gradient, rows_, out_, arguments.parameter_gradients[1] + e * out_, arguments.accumulates(1));
      if (arguments.input_gradients[0])
        multiply_matrices('N', 'N', rows_, in_, out_, gradient, out_, arguments.parameters[0] + e * out_ * in_, in_, 0,
                          arguments.input_gradients[0] + e * rows_ * in_, in_);
    }
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(masked_.size() * sizeof(float)); }

 private:
  const Context& context_;
  bool bias_, relu_;
  int64_t rows_, experts_, in_, out_;
  Primitive forward_;     // of one expert
  Vector<float> masked_;  // gradient after the relu
};

}  // namespace

std::unique_ptr<Kernel> make_dispatch_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<DispatchKernel>(dynamic_cast<const Dispatch&>(request.definition), request);
}
std::unique_ptr<Kernel> make_combine_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<CombineKernel>(dynamic_cast<const Combine&>(request.definition), request);
}
std::unique_ptr<Kernel> make_expert_linear_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ExpertLinearKernel>(context, dynamic_cast<const ExpertLinear&>(request.definition),
                                              request.part);
}

}  // namespace ff::cpu
