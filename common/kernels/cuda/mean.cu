#include "common/operators/mean.h"

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

// [samples, positions, channels] -> [samples, channels]: sequences and images are both stored so. As the sums down the
// columns of a matrix [positions, samples x channels]. Element: float or Bf16.
template <class Element>
void mean_forward(const Context& context, const Element* input, int64_t samples, int64_t positions, int64_t channels,
                  Element* output) {
  const double factor = 1.0 / static_cast<double>(positions);
  column_sums<1>(
      context, positions, samples * channels,
      [=] __device__(int64_t position, int64_t i) {  // (sample positions + position) channels + channel
        const int64_t sample = i / channels;
        return Sums<1>{{value_of(input[(sample * (positions - 1) + position) * channels + i])}};
      },
      [=] __device__(int64_t i, const double* total) { set(output[i], static_cast<float>(total[0] * factor)); },
      context.scratch());
}

template <class Element>
void mean_backward(const Context& context, const Element* gradient, int64_t samples, int64_t positions,
                   int64_t channels, Element* result) {
  const float factor = 1.0f / static_cast<float>(positions);
  for_each_index(context, samples * positions * channels, [=] __device__(int64_t i) {
    const int64_t row = i / channels, channel = i - row * channels;
    set(result[i], value_of(gradient[row / positions * channels + channel]) * factor);
  });
}

template <class Element>
class MeanKernel : public Kernel {
 public:
  MeanKernel(const Context& context, const Mean& mean, const Block& part)
      : context_(context), samples_(part[0].size()), positions_(mean.positions), channels_(part[1].size()) {
    context.reserve_scratch(column_sums_scratch_bytes<1>(context, positions_, samples_ * channels_));
  }

  void forward(const KernelArguments& arguments) override {
    mean_forward(context_, typed<Element>(arguments.inputs[0]), samples_, positions_, channels_,
                 typed<Element>(arguments.outputs[0]));
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      mean_backward(context_, typed<Element>(arguments.output_gradients[0]), samples_, positions_, channels_,
                    typed<Element>(arguments.input_gradients[0]));
  }

 private:
  const Context& context_;
  int64_t samples_, positions_, channels_;
};

class MeanLossKernel : public Kernel {
 public:
  MeanLossKernel(const Context& context, const MeanLoss& loss, const Block& part)
      : context_(context), elements_(part.volume()),
        gradient_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)))) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    float* output = arguments.outputs[0];
    for_each_index(context_, elements_, [=] __device__(int64_t i) { output[i] = input[i]; });
  }
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    const float gradient = gradient_;
    if (result) for_each_index(context_, elements_, [=] __device__(int64_t i) { result[i] = gradient; });
  }

 private:
  const Context& context_;
  int64_t elements_;
  float gradient_;
};

}  // namespace

std::unique_ptr<Kernel> make_mean_loss_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<MeanLossKernel>(context, dynamic_cast<const MeanLoss&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_mean_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<MeanKernel<float>>(context, dynamic_cast<const Mean&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_mean_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const mean = dynamic_cast<const Mean*>(&request.definition);
  return mean ? std::make_unique<MeanKernel<Bf16>>(context, *mean, request.part) : nullptr;
}

}  // namespace ff::cuda
