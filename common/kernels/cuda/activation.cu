#include "common/operators/activation.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

using Function = Activation::Function;

void apply(const Context& context, Function function, float first, float second, const float* input, int64_t elements,
           float* output) {
  switch (function) {
    case Function::affine:
      map_elements(context, elements, output, input, [=] __device__(float x) { return first * x + second; });
      break;
    case Function::clip:
      map_elements(context, elements, output, input,
                   [=] __device__(float x) { return fminf(fmaxf(x, first), second); });
      break;
    case Function::leaky_relu:
      map_elements(context, elements, output, input, [=] __device__(float x) { return x > 0 ? x : first * x; });
      break;
    case Function::hard_sigmoid:
      map_elements(context, elements, output, input,
                   [=] __device__(float x) { return fminf(fmaxf(first * x + second, 0.0f), 1.0f); });
      break;
    case Function::hard_swish:
      map_elements(context, elements, output, input,
                   [=] __device__(float x) { return x * fminf(fmaxf(x / 6.0f + 0.5f, 0.0f), 1.0f); });
      break;
  }
}

// Of the gradient of the output. At the ends of a range, where there are two slopes, it is 0, as PyTorch has it.
void apply_gradient(const Context& context, Function function, float first, float second, const float* input,
                    const float* gradient, int64_t elements, float* result) {
  switch (function) {
    case Function::affine:
      map_elements(context, elements, result, gradient, [=] __device__(float g) { return first * g; });
      break;
    case Function::clip:
      map_elements(context, elements, result, std::tuple(input, gradient),
                   [=] __device__(float x, float g) { return x > first && x < second ? g : 0.0f; });
      break;
    case Function::leaky_relu:
      map_elements(context, elements, result, std::tuple(input, gradient),
                   [=] __device__(float x, float g) { return x > 0 ? g : first * g; });
      break;
    case Function::hard_sigmoid:
      map_elements(context, elements, result, std::tuple(input, gradient), [=] __device__(float x, float g) {
        const float value = first * x + second;
        return value > 0 && value < 1 ? first * g : 0.0f;
      });
      break;
    case Function::hard_swish:
      map_elements(context, elements, result, std::tuple(input, gradient), [=] __device__(float x, float g) {
        return x <= -3 ? 0.0f : x >= 3 ? g : g * (x / 3.0f + 0.5f);
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
