#include <cmath>
#include <cstring>

#include "common/kernels/cpu/kernels.h"
#include "common/operators/layer_norm.h"

namespace ff::cpu {
namespace {

// One row: its mean and 1 / standard deviation, in two passes, and the normalized and scaled row.
FF_VECTORIZED void normalize_row(const float* input, int64_t features, float epsilon, const float* weight,
                                 const float* bias, float* output, float& mean, float& inverse_deviation) {
  float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t f = 0; f < features; ++f) sum += input[f];
  mean = sum / static_cast<float>(features);
#pragma omp simd reduction(+ : squares)
  for (int64_t f = 0; f < features; ++f) squares += (input[f] - mean) * (input[f] - mean);
  inverse_deviation = 1.0f / std::sqrt(squares / static_cast<float>(features) + epsilon);
  for (int64_t f = 0; f < features; ++f) output[f] = (input[f] - mean) * inverse_deviation * weight[f] + bias[f];
}

// With n = (input - mean) / deviation and g = gradient * weight: result = (g - mean(g) - n mean(g n)) / deviation. The
// gradients of weight and bias are added to. `result` may be null.
FF_VECTORIZED void normalize_row_backward(const float* input, const float* gradient, const float* weight,
                                          int64_t features, float mean, float inverse_deviation, float* result,
                                          float* weight_gradient, float* bias_gradient) {
  float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
  for (int64_t f = 0; f < features; ++f) {
    const float normalized = (input[f] - mean) * inverse_deviation, scaled = gradient[f] * weight[f];
    sum += scaled;
    product += scaled * normalized;
  }
  for (int64_t f = 0; f < features; ++f) {
    weight_gradient[f] += gradient[f] * (input[f] - mean) * inverse_deviation;
    bias_gradient[f] += gradient[f];
  }
  if (!result) return;
  sum /= static_cast<float>(features);
  product /= static_cast<float>(features);
  for (int64_t f = 0; f < features; ++f) {
    const float normalized = (input[f] - mean) * inverse_deviation;
    result[f] = (gradient[f] * weight[f] - sum - normalized * product) * inverse_deviation;
  }
}

// One row: 1 / root mean square, and the row times that and the weight.
FF_VECTORIZED void scale_row(const float* input, int64_t features, float epsilon, const float* weight, float* output,
                             float& inverse_root) {
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t f = 0; f < features; ++f) squares += input[f] * input[f];
  inverse_root = 1.0f / std::sqrt(squares / static_cast<float>(features) + epsilon);
  for (int64_t f = 0; f < features; ++f) output[f] = input[f] * inverse_root * weight[f];
}

// With n = input / root and g = gradient * weight: result = (g - n mean(g n)) / root. The gradient of the weight is
// added to. `result` may be null.
FF_VECTORIZED void scale_row_backward(const float* input, const float* gradient, const float* weight, int64_t features,
                                      float inverse_root, float* result, float* weight_gradient) {
  for (int64_t f = 0; f < features; ++f) weight_gradient[f] += gradient[f] * input[f] * inverse_root;
  if (!result) return;
  float product = 0;
#pragma omp simd reduction(+ : product)
  for (int64_t f = 0; f < features; ++f) product += gradient[f] * weight[f] * input[f] * inverse_root;
  product /= static_cast<float>(features);
  for (int64_t f = 0; f < features; ++f)
    result[f] = (gradient[f] * weight[f] - input[f] * inverse_root * product) * inverse_root;
}

// What stands for a weight and a bias where there are none: ones, zeros, and places for gradients that nobody reads.
struct UnitParameters {
  UnitParameters(bool affine, int64_t features)
      : one(static_cast<size_t>(affine ? 0 : features), 1.0f), zero(one.size(), 0.0f), gradients(2 * one.size(), 0.0f) {
  }
  bool exist() const { return !one.empty(); }
  Vector<float> one, zero, gradients;
};

// [rows, features]. oneDNN's layer normalization refuses to run with a separate scale and shift (version 2.6).
class LayerNormKernel : public Kernel {
 public:
  LayerNormKernel(const LayerNorm& definition, const Block& part)
      : rows_(part.volume()), features_(definition.features), epsilon_(static_cast<float>(definition.epsilon)),
        mean_(static_cast<size_t>(rows_)), inverse_deviation_(static_cast<size_t>(rows_)),
        units_(definition.affine, features_) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    const float *weight = units_.exist() ? units_.one.data() : arguments.parameters[0],
                *bias = units_.exist() ? units_.zero.data() : arguments.parameters[1];
    for (int64_t row = 0; row < rows_; ++row)
      normalize_row(input + row * features_, features_, epsilon_, weight, bias, arguments.outputs[0] + row * features_,
                    mean_[row], inverse_deviation_[row]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    float* gradients[2];
    for (size_t p : {0u, 1u}) {
      gradients[p] = units_.exist() ? units_.gradients.data() + static_cast<int64_t>(p) * features_
                                    : arguments.parameter_gradients[p];
      if (units_.exist() || !arguments.accumulates(p))
        std::memset(gradients[p], 0, static_cast<size_t>(features_) * sizeof(float));
    }
    float* result = arguments.input_gradients[0];
    for (int64_t row = 0; row < rows_; ++row)
      normalize_row_backward(input + row * features_, arguments.output_gradients[0] + row * features_,
                             units_.exist() ? units_.one.data() : arguments.parameters[0], features_, mean_[row],
                             inverse_deviation_[row], result ? result + row * features_ : nullptr, gradients[0],
                             gradients[1]);
  }

  int64_t workspace_bytes() const override {
    return (2 * rows_ + static_cast<int64_t>(4 * units_.one.size())) * static_cast<int64_t>(sizeof(float));
  }

 private:
  int64_t rows_, features_;
  float epsilon_;
  Vector<float> mean_, inverse_deviation_;  // by row
  UnitParameters units_;
};

// [rows, features].
class RmsNormKernel : public Kernel {
 public:
  RmsNormKernel(const RmsNorm& definition, const Block& part)
      : rows_(part.volume()), features_(definition.features), epsilon_(static_cast<float>(definition.epsilon)),
        inverse_root_(static_cast<size_t>(rows_)), units_(definition.affine, features_) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    for (int64_t row = 0; row < rows_; ++row)
      scale_row(input + row * features_, features_, epsilon_,
                units_.exist() ? units_.one.data() : arguments.parameters[0], arguments.outputs[0] + row * features_,
                inverse_root_[row]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    float *weight_gradient = units_.exist() ? units_.gradients.data() : arguments.parameter_gradients[0],
          *result = arguments.input_gradients[0];
    if (units_.exist() || !arguments.accumulates(0))
      std::memset(weight_gradient, 0, static_cast<size_t>(features_) * sizeof(float));
    for (int64_t row = 0; row < rows_; ++row)
      scale_row_backward(input + row * features_, arguments.output_gradients[0] + row * features_,
                         units_.exist() ? units_.one.data() : arguments.parameters[0], features_, inverse_root_[row],
                         result ? result + row * features_ : nullptr, weight_gradient);
  }

  int64_t workspace_bytes() const override {
    return (rows_ + static_cast<int64_t>(4 * units_.one.size())) * static_cast<int64_t>(sizeof(float));
  }

 private:
  int64_t rows_, features_;
  float epsilon_;
  Vector<float> inverse_root_;  // by row
  UnitParameters units_;
};

}  // namespace

std::unique_ptr<Kernel> make_layer_norm_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<LayerNormKernel>(dynamic_cast<const LayerNorm&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_rms_norm_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<RmsNormKernel>(dynamic_cast<const RmsNorm&>(request.definition), request.part);
}

}  // namespace ff::cpu
