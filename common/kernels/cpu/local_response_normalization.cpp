#include "common/operators/local_response_normalization.h"

#include <algorithm>
#include <cmath>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// sums[c] = sum of values[c .. c + size), for c < channels: a window around each channel when `values` has size / 2
// zeros on both sides.
FF_VECTORIZED void sum_windows(const float* values, int64_t channels, int64_t size, float* sums) {
  std::copy(values, values + channels, sums);
  for (int64_t offset = 1; offset < size; ++offset)
    for (int64_t c = 0; c < channels; ++c) sums[c] += values[c + offset];
}

FF_VECTORIZED void squares(const float* input, int64_t channels, float* result) {
  for (int64_t c = 0; c < channels; ++c) result[c] = input[c] * input[c];
}

// scale = bias + factor * scale; power = scale^-0.75 by two square roots, which vectorize where pow does not.
FF_VECTORIZED void scale_and_power(float bias, float factor, int64_t channels, float* scale, float* power) {
  for (int64_t c = 0; c < channels; ++c) {
    scale[c] = bias + factor * scale[c];
    const float root = std::sqrt(scale[c]);
    power[c] = 1.0f / (root * std::sqrt(root));
  }
}

FF_VECTORIZED void combine(const float* gradient, const float* power, const float* input, const float* sums,
                           float factor, int64_t channels, float* result) {
  for (int64_t c = 0; c < channels; ++c) result[c] = gradient[c] * power[c] - factor * input[c] * sums[c];
}

// term = d output * input * scale^-beta / scale
FF_VECTORIZED void terms(const float* gradient, const float* input, const float* power, const float* scale,
                         int64_t channels, float* result) {
  for (int64_t c = 0; c < channels; ++c) result[c] = gradient[c] * input[c] * power[c] / scale[c];
}

// Own loops: oneDNN 2.6.3 crashes when it makes this backward primitive for few channels. Channels are innermost in
// storage, so a pixel's channels are one short vector.
class LocalResponseNormalizationKernel : public Kernel {
 public:
  LocalResponseNormalizationKernel(const LocalResponseNormalization& lrn, const Block& part)
      : lrn_(lrn), pixels_(part.volume()), channels_(lrn.channels), scale_(static_cast<size_t>(pixels_ * channels_)),
        power_(scale_.size()), padded_(static_cast<size_t>(channels_ + lrn.size), 0.0f),
        sums_(static_cast<size_t>(channels_)) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    const float bias = static_cast<float>(lrn_.bias),
                factor = static_cast<float>(lrn_.alpha / static_cast<double>(lrn_.size));
    for (int64_t pixel = 0; pixel < pixels_; ++pixel) {
      const int64_t at = pixel * channels_;
      float* scale = scale_.data() + at;
      float* power = power_.data() + at;
      squares(input + at, channels_, padded_.data() + lrn_.size / 2);
      sum_windows(padded_.data(), channels_, lrn_.size, scale);
      if (lrn_.beta == 0.75) {
        scale_and_power(bias, factor, channels_, scale, power);
      } else {
        for (int64_t c = 0; c < channels_; ++c) {
          scale[c] = bias + factor * scale[c];
          power[c] = std::pow(scale[c], static_cast<float>(-lrn_.beta));
        }
      }
      multiply(input + at, power, arguments.outputs[0] + at, channels_);
    }
  }

  // d input_c = d output_c scale_c^-beta - 2 alpha beta / size input_c * sum over the window around c of d output input
  // scale^(-beta - 1)
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    const float* gradient = arguments.output_gradients[0];
    const float factor = static_cast<float>(2 * lrn_.alpha * lrn_.beta / static_cast<double>(lrn_.size));
    for (int64_t pixel = 0; pixel < pixels_; ++pixel) {
      const int64_t at = pixel * channels_;
      terms(gradient + at, input + at, power_.data() + at, scale_.data() + at, channels_,
            padded_.data() + lrn_.size / 2);
      sum_windows(padded_.data(), channels_, lrn_.size, sums_.data());
      combine(gradient + at, power_.data() + at, input + at, sums_.data(), factor, channels_, result + at);
    }
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((scale_.size() + power_.size()) * sizeof(float));
  }

 private:
  const LocalResponseNormalization& lrn_;
  int64_t pixels_, channels_;
  // [pixel, channel]: the denominator's base, and its power -beta; kept for backward
  Vector<float> scale_, power_;
  Vector<float> padded_, sums_;  // of one pixel
};

}  // namespace

std::unique_ptr<Kernel> make_local_response_normalization_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<LocalResponseNormalizationKernel>(
      dynamic_cast<const LocalResponseNormalization&>(request.definition), request.part);
}

}  // namespace ff::cpu
