#include "common/operators/mean.h"

#include <algorithm>
#include <cstring>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

FF_VECTORIZED void scale_by(float factor, const float* source, float* destination, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) destination[i] = factor * source[i];
}

// [samples, positions, channels] -> [samples, channels]: sequences and images are both stored so.
class MeanKernel : public Kernel {
 public:
  MeanKernel(const Mean& mean, const Block& part)
      : samples_(part[0].size()), positions_(mean.positions), channels_(part[1].size()) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    for (int64_t s = 0; s < samples_; ++s) {
      float* output = arguments.outputs[0] + s * channels_;
      sum_rows(input + s * positions_ * channels_, positions_, channels_, output);
      scale_by(1.0f / static_cast<float>(positions_), output, output, channels_);
    }
  }

  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    for (int64_t s = 0; s < samples_; ++s)
      for (int64_t position = 0; position < positions_; ++position)
        scale_by(1.0f / static_cast<float>(positions_), arguments.output_gradients[0] + s * channels_,
                 result + (s * positions_ + position) * channels_, channels_);
  }

 private:
  int64_t samples_, positions_, channels_;
};

class MeanLossKernel : public Kernel {
 public:
  MeanLossKernel(const MeanLoss& loss, const Block& part)
      : elements_(part.volume()),
        gradient_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)))) {}

  void forward(const KernelArguments& arguments) override {
    std::memcpy(arguments.outputs[0], arguments.inputs[0], static_cast<size_t>(elements_) * sizeof(float));
  }
  void backward(const KernelArguments& arguments) override {
    if (float* result = arguments.input_gradients[0]) std::fill(result, result + elements_, gradient_);
  }

 private:
  int64_t elements_;
  float gradient_;
};

}  // namespace

std::unique_ptr<Kernel> make_mean_loss_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<MeanLossKernel>(dynamic_cast<const MeanLoss&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_mean_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<MeanKernel>(dynamic_cast<const Mean&>(request.definition), request.part);
}

}  // namespace ff::cpu
