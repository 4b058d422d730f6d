#include "common/operators/activation.h"

#include <algorithm>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

using Function = Activation::Function;

FF_VECTORIZED void affine(const float* x, float factor, float offset, float* y, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) y[i] = factor * x[i] + offset;
}
FF_VECTORIZED void clip(const float* x, float least, float most, float* y, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) y[i] = std::min(std::max(x[i], least), most);
}
FF_VECTORIZED void leaky_relu(const float* x, float slope, float* y, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) y[i] = x[i] > 0 ? x[i] : slope * x[i];
}
FF_VECTORIZED void hard_sigmoid(const float* x, float slope, float offset, float* y, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) y[i] = std::min(std::max(slope * x[i] + offset, 0.0f), 1.0f);
}
FF_VECTORIZED void hard_swish(const float* x, float* y, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) y[i] = x[i] * std::min(std::max(x[i] / 6.0f + 0.5f, 0.0f), 1.0f);
}

// Of the gradient g of the output. At the ends of a range, where there are two slopes, it is 0, as PyTorch has it.
FF_VECTORIZED void clip_gradient(const float* x, const float* g, float least, float most, float* result,
                                 int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = x[i] > least && x[i] < most ? g[i] : 0.0f;
}
FF_VECTORIZED void leaky_relu_gradient(const float* x, const float* g, float slope, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = x[i] > 0 ? g[i] : slope * g[i];
}
FF_VECTORIZED void hard_sigmoid_gradient(const float* x, const float* g, float slope, float offset, float* result,
                                         int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) {
    const float value = slope * x[i] + offset;
    result[i] = value > 0 && value < 1 ? slope * g[i] : 0.0f;
  }
}
FF_VECTORIZED void hard_swish_gradient(const float* x, const float* g, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = x[i] <= -3 ? 0.0f : x[i] >= 3 ? g[i] : g[i] * (x[i] / 3.0f + 0.5f);
}

// The layout of the block does not matter.
class ActivationKernel : public Kernel {
 public:
  ActivationKernel(const Activation& definition, const Block& part)
      : function_(definition.function), first_(static_cast<float>(definition.first)),
        second_(static_cast<float>(definition.second)), elements_(part.volume()) {}

  void forward(const KernelArguments& arguments) override {
    const float* x = static_cast<const float*>(arguments.inputs[0]);
    float* y = arguments.outputs[0];
    switch (function_) {
      case Function::affine: affine(x, first_, second_, y, elements_); break;
      case Function::clip: clip(x, first_, second_, y, elements_); break;
      case Function::leaky_relu: leaky_relu(x, first_, y, elements_); break;
      case Function::hard_sigmoid: hard_sigmoid(x, first_, second_, y, elements_); break;
      case Function::hard_swish: hard_swish(x, y, elements_); break;
    }
  }

  void backward(const KernelArguments& arguments) override {
    const float *x = static_cast<const float*>(arguments.inputs[0]), *g = arguments.output_gradients[0];
    float* result = arguments.input_gradients[0];
    if (!result) return;
    switch (function_) {
      case Function::affine: affine(g, first_, 0, result, elements_); break;
      case Function::clip: clip_gradient(x, g, first_, second_, result, elements_); break;
      case Function::leaky_relu: leaky_relu_gradient(x, g, first_, result, elements_); break;
      case Function::hard_sigmoid: hard_sigmoid_gradient(x, g, first_, second_, result, elements_); break;
      case Function::hard_swish: hard_swish_gradient(x, g, result, elements_); break;
    }
  }

 private:
  Function function_;
  float first_, second_;
  int64_t elements_;
};

}  // namespace

std::unique_ptr<Kernel> make_activation_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<ActivationKernel>(dynamic_cast<const Activation&>(request.definition), request.part);
}

}  // namespace ff::cpu
