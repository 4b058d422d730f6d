#include "common/operators/local_response_normalization.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Where a thread's channel of a pixel begins and ends to read its neighbours: `half` on both sides.
struct ChannelWindow {
  int64_t first, last;
};
__device__ ChannelWindow window_of(int64_t channel, int64_t channels, int64_t half) {
  return {channel > half ? channel - half : 0, channel + half < channels - 1 ? channel + half : channels - 1};
}

// base^-beta. For the beta of AlexNet and all that followed it without powf, which outlasts the access to memory.
__device__ float inverse_power(float base, float beta) {
  return beta == 0.75f ? 1.0f / sqrtf(base * sqrtf(base)) : powf(base, -beta);
}

// scale [pixels, channels] is kept for backward: bias + alpha / size * sum of squares around each channel.
void normalize_across(const Context& context, const float* input, int64_t elements, int64_t channels, int64_t size,
                      float bias, float factor, float beta, float* scale, float* output) {
  for_each_index(context, elements, [=] __device__(int64_t i) {
    const int64_t channel = i % channels;
    const float* pixel = input + (i - channel);
    const ChannelWindow window = window_of(channel, channels, size / 2);
    float squares = 0;
    for (int64_t c = window.first; c <= window.last; ++c) squares += pixel[c] * pixel[c];
    const float base = bias + factor * squares;
    scale[i] = base;
    output[i] = pixel[channel] * inverse_power(base, beta);
  });
}

// d input_c = d output_c scale_c^-beta - 2 alpha beta / size input_c * sum over the window around c of terms; term = d
// output input scale^(-beta - 1)
void gradient_terms(const Context& context, const float* input, const float* gradient, const float* scale,
                    int64_t elements, float beta, float* terms) {
  for_each_index(context, elements, [=] __device__(int64_t i) {
    terms[i] = gradient[i] * input[i] * inverse_power(scale[i], beta) / scale[i];
  });
}

void gradient_across(const Context& context, const float* input, const float* gradient, const float* scale,
                     const float* terms, int64_t elements, int64_t channels, int64_t size, float factor, float beta,
                     float* result) {
  for_each_index(context, elements, [=] __device__(int64_t i) {
    const int64_t channel = i % channels;
    const float* pixel = terms + (i - channel);
    const ChannelWindow window = window_of(channel, channels, size / 2);
    float sum = 0;
    for (int64_t c = window.first; c <= window.last; ++c) sum += pixel[c];
    result[i] = gradient[i] * inverse_power(scale[i], beta) - factor * input[i] * sum;
  });
}

class LocalResponseNormalizationKernel : public Kernel {
 public:
  LocalResponseNormalizationKernel(const Context& context, const LocalResponseNormalization& lrn, const Block& part)
      : context_(context), lrn_(lrn), elements_(lrn.output_block(0, part).volume()), scale_(context, elements_),
        terms_(context, elements_) {}

  void forward(const KernelArguments& arguments) override {
    normalize_across(context_, static_cast<const float*>(arguments.inputs[0]), elements_, lrn_.channels, lrn_.size,
                     static_cast<float>(lrn_.bias), static_cast<float>(lrn_.alpha / static_cast<double>(lrn_.size)),
                     beta(), scale_.data(), arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    if (!arguments.input_gradients[0]) return;
    const float *input = static_cast<const float*>(arguments.inputs[0]), *gradient = arguments.output_gradients[0];
    gradient_terms(context_, input, gradient, scale_.data(), elements_, beta(), terms_.data());
    gradient_across(context_, input, gradient, scale_.data(), terms_.data(), elements_, lrn_.channels, lrn_.size,
                    static_cast<float>(2 * lrn_.alpha * lrn_.beta / static_cast<double>(lrn_.size)), beta(),
                    arguments.input_gradients[0]);
  }

  int64_t workspace_bytes() const override { return scale_.bytes() + terms_.bytes(); }

 private:
  float beta() const { return static_cast<float>(lrn_.beta); }

  const Context& context_;
  const LocalResponseNormalization& lrn_;
  int64_t elements_;
  Memory<float> scale_, terms_;  // [pixels, channels]
};

}  // namespace

std::unique_ptr<Kernel> make_local_response_normalization_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LocalResponseNormalizationKernel>(
      context, dynamic_cast<const LocalResponseNormalization&>(request.definition), request.part);
}

}  // namespace ff::cuda
