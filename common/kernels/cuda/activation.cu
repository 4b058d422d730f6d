#include "common/operators/activation.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

using Function = Activation::Function;

void apply(const Context& context, Function function, float first, float second, const float* x, int64_t elements,
           float* y) {
  switch (function) {
    case Function::affine:
      for_each_index(context, elements, [=] __device__(int64_t i) { y[i] = first * x[i] + second; });
      break;
    case Function::clip:
      for_each_index(context, elements, [=] __device__(int64_t i) { y[i] = fminf(fmaxf(x[i], first), second); });
      break;
    case Function::leaky_relu:
      for_each_index(context, elements, [=] __device__(int64_t i) { y[i] = x[i] > 0 ? x[i] : first * x[i]; });
      break;
    case Function::hard_sigmoid:
      for_each_index(context, elements,
                     [=] __device__(int64_t i) { y[i] = fminf(fmaxf(first * x[i] + second, 0.0f), 1.0f); });
      break;
    case Function::hard_swish:
      for_each_index(context, elements,
                     [=] __device__(int64_t i) { y[i] = x[i] * fminf(fmaxf(x[i] / 6.0f + 0.5f, 0.0f), 1.0f); });
      break;
  }
}

// Of the gradient g of the output. At the ends of a range, where there are two slopes, it is 0, as PyTorch has it.
void apply_gradient(const Context& context, Function function, float first, float second, const float* x,
                    const float* g, int64_t elements, float* result) {
  switch (function) {
    case Function::affine:
      for_each_index(context, elements, [=] __device__(int64_t i) { result[i] = first * g[i]; });
      break;
    case Function::clip:
      for_each_index(context, elements,
                     [=] __device__(int64_t i) { result[i] = x[i] > first && x[i] < second ? g[i] : 0.0f; });
      break;
    case Function::leaky_relu:
      for_each_index(context, elements, [=] __device__(int64_t i) { result[i] = x[i] > 0 ? g[i] : first * g[i]; });
      break;
    case Function::hard_sigmoid:
      for_each_index(context, elements, [=] __device__(int64_t i) {
        const float value = first * x[i] + second;
        result[i] = value > 0 && value < 1 ? first * g[i] : 0.0f;
      });
      break;
    case Function::hard_swish:
      for_each_index(context, elements, [=] __device__(int64_t i) {
        result[i] = x[i] <= -3 ? 0.0f : x[i] >= 3 ? g[i] : g[i] * (x[i] / 3.0f + 0.5f);
      });
      break;
  }
}

// The layout of the block does not matter.
class ActivationKernel : public Kernel {
 public:
  ActivationKernel(const Context& context, const Activation& definition, const Block& part)
      : context_(context), function_(definition.function), first_(static_cast<float>(definition.first)),
        second_(static_cast<float>(definition.second)), elements_(part.volume()) {}

  void forward(const KernelArguments& arguments) override {
    apply(context_, function_, first_, second_, static_cast<const float*>(arguments.inputs[0]), elements_,
          arguments.outputs[0]);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      apply_gradient(context_, function_, first_, second_, static_cast<const float*>(arguments.inputs[0]),
                     arguments.output_gradients[0], elements_, arguments.input_gradients[0]);
  }

 private:
  const Context& context_;
  Function function_;
  float first_, second_;
  int64_t elements_;
};

}  // namespace

std::unique_ptr<Kernel> make_activation_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ActivationKernel>(context, dynamic_cast<const Activation&>(request.definition), request.part);
}

}  // namespace ff::cuda
