#include <algorithm>
#include <bit>
#include <cmath>

#include "common/kernels/cpu/kernels.h"
#include "common/operators/batch_norm.h"
#include "common/vector.h"

namespace ff::cpu {
namespace {

// Sums of a few hundred rows in single precision; those are added up in double precision.
constexpr int64_t rows_at_once = 256;

// Four rows at a time, one after the other: the sums are loaded and stored once for them, and are what they are row by
// row.
constexpr int64_t rows_together = 4;

// Of the distances from `pivot`.
FF_VECTORIZED void add_sums(const float* __restrict input, const float* __restrict pivot, int64_t rows,
                            int64_t channels, float* __restrict sums, float* __restrict squares) {
  const auto add = [](float x, float& sum, float& square) {
    sum += x;
    square += x * x;
  };
  for (; rows >= rows_together; rows -= rows_together, input += rows_together * channels)
    for (int64_t c = 0; c < channels; ++c) {
      float sum = sums[c], square = squares[c];
      const float p = pivot[c];
      add(input[c] - p, sum, square);
      add(input[channels + c] - p, sum, square);
      add(input[2 * channels + c] - p, sum, square);
      add(input[3 * channels + c] - p, sum, square);
      sums[c] = sum, squares[c] = square;
    }
  for (; rows > 0; --rows, input += channels)
    for (int64_t c = 0; c < channels; ++c) add(input[c] - pivot[c], sums[c], squares[c]);
}

// The gradient where the relu let its input through, else 0. No branch on the output's sign, which no processor can
// foresee: not in vector instructions, nor in the scalar ones for the channels that are left over.
inline float behind_relu(float output, float gradient) {
  return std::bit_cast<float>(std::bit_cast<int32_t>(gradient) & -static_cast<int32_t>(output > 0));
}

// Of the gradient g, and of g times the input's distance from the mean. `output` null: there is no relu after. The
// gradient is read whether or not the relu lets it through, and no two pointers meet, so that the loops become vector
// instructions: otherwise they took six times longer.
FF_VECTORIZED void add_gradient_sums(const float* __restrict input, const float* __restrict gradient,
                                     const float* __restrict output, const float* __restrict mean, int64_t rows,
                                     int64_t channels, float* __restrict sums, float* __restrict products) {
  if (!output) {
    for (; rows > 0; --rows, input += channels, gradient += channels)
      for (int64_t c = 0; c < channels; ++c) {
        sums[c] += gradient[c];
        products[c] += gradient[c] * (input[c] - mean[c]);
      }
    return;
  }
  const auto add = [&](int64_t i, float average, float& sum, float& product) {
    const float g = behind_relu(output[i], gradient[i]);
    sum += g;
    product += g * (input[i] - average);
  };
  for (; rows >= rows_together; rows -= rows_together) {
    for (int64_t c = 0; c < channels; ++c) {
      float sum = sums[c], product = products[c];
      add(c, mean[c], sum, product);
      add(channels + c, mean[c], sum, product);
      add(2 * channels + c, mean[c], sum, product);
      add(3 * channels + c, mean[c], sum, product);
      sums[c] = sum, products[c] = product;
    }
    input += rows_together * channels, gradient += rows_together * channels, output += rows_together * channels;
  }
  for (; rows > 0; --rows, input += channels, gradient += channels, output += channels)
    for (int64_t c = 0; c < channels; ++c) add(c, mean[c], sums[c], products[c]);
}

FF_VECTORIZED void scale_and_shift(const float* input, int64_t rows, int64_t channels, const float* scale,
                                   const float* shift, bool relu, float* output) {
  for (int64_t row = 0; row < rows; ++row, input += channels, output += channels) {
    if (relu)
      for (int64_t c = 0; c < channels; ++c) output[c] = std::max(0.0f, input[c] * scale[c] + shift[c]);
    else
      for (int64_t c = 0; c < channels; ++c) output[c] = input[c] * scale[c] + shift[c];
  }
}

// result = a g + b input + c, by channel.
FF_VECTORIZED void input_gradient(const float* __restrict input, const float* gradient, const float* __restrict output,
                                  int64_t rows, int64_t channels, const float* __restrict a, const float* __restrict b,
                                  const float* __restrict constant, float* result) {
  for (int64_t row = 0; row < rows; ++row, input += channels, gradient += channels, result += channels) {
    if (output) {
      for (int64_t c = 0; c < channels; ++c)
        result[c] = a[c] * behind_relu(output[c], gradient[c]) + b[c] * input[c] + constant[c];
      output += channels;
    } else {
      for (int64_t c = 0; c < channels; ++c) result[c] = a[c] * gradient[c] + b[c] * input[c] + constant[c];
    }
  }
}

// [rows, channels]: all ranks of the input are stored channels-last.
class BatchNormKernel : public Kernel {
 public:
  BatchNormKernel(const BatchNorm& norm, const Block& part)
      : norm_(norm), channels_(part[norm.channel_axis].size()), rows_(part.volume() / channels_),
        elements_(static_cast<double>(norm.global ? norm.elements_per_channel : rows_)) {
    for (Vector<float>* values : {&mean_, &inverse_deviation_, &a_, &b_})
      values->resize(static_cast<size_t>(channels_));
    own_sums_.resize(2 * channels_);
    pivot_.assign(static_cast<size_t>(channels_), 0.0f);
  }

  void forward_statistics(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    // A part that is all that is normalized by knows its variance from distances to its first row, and so without the
    // digits that squares lose where the mean is many times the deviation. Parts in common have no such row.
    const bool alone = elements_ == static_cast<double>(rows_);
    if (alone) std::copy(input, input + channels_, pivot_.begin());
    sum_up(arguments.statistics, [&](int64_t row, int64_t count, float* sums) {
      add_sums(input + row * channels_, pivot_.data(), count, channels_, sums, sums + channels_);
    });
    if (!alone) return;
    own_mean_.resize(pivot_.size());
    own_variance_.resize(pivot_.size());
    for (int64_t c = 0; c < channels_; ++c) {
      const double distance = totals_[c] / elements_;
      own_mean_[c] = pivot_[c] + distance;
      own_variance_[c] = std::max(0.0, totals_[channels_ + c] / elements_ - distance * distance);
      arguments.statistics[c] = static_cast<float>(own_mean_[c] * elements_);
      arguments.statistics[channels_ + c] =
          static_cast<float>((own_variance_[c] + own_mean_[c] * own_mean_[c]) * elements_);
    }
  }

  void forward(const KernelArguments& arguments) override {
    const float *weight = arguments.parameters[0], *bias = arguments.parameters[1];
    KernelArguments local = arguments;
    if (!norm_.global && arguments.training) {
      local.statistics = own_sums_.data();
      forward_statistics(local);
    }
    for (int64_t i = 0; i < channels_; ++i) {
      const size_t c = static_cast<size_t>(i);
      double mean = 0, variance = 0;
      if (arguments.training) {
        mean = own_mean_.empty() ? local.statistics[c] / elements_ : own_mean_[c];
        variance = variance_of(local.statistics, c);
      } else {
        mean = arguments.parameters[2][c];
        variance = arguments.parameters[3][c];
      }
      mean_[c] = static_cast<float>(mean);
      inverse_deviation_[c] = static_cast<float>(1 / std::sqrt(variance + norm_.epsilon));
      a_[c] = weight[c] * inverse_deviation_[c];
      b_[c] = bias[c] - a_[c] * mean_[c];
    }
    scale_and_shift(static_cast<const float*>(arguments.inputs[0]), rows_, channels_, a_.data(), b_.data(), norm_.relu,
                    arguments.outputs[0]);
  }

  void update_state(const KernelArguments& arguments) override {
    const float* sums = norm_.global ? arguments.statistics : own_sums_.data();
    const double momentum = norm_.momentum, unbiased = elements_ > 1 ? elements_ / (elements_ - 1) : 1;
    for (int64_t i = 0; i < channels_; ++i) {
      const size_t c = static_cast<size_t>(i);
      float &mean = arguments.states[2][c], &variance = arguments.states[3][c];
      mean = static_cast<float>((1 - momentum) * mean + momentum * sums[c] / elements_);
      variance = static_cast<float>((1 - momentum) * variance + momentum * unbiased * variance_of(sums, c));
    }
  }

  void backward_statistics(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    const float* output = norm_.relu ? arguments.outputs[0] : nullptr;
    sum_up(arguments.statistics, [&](int64_t row, int64_t count, float* sums) {
      add_gradient_sums(input + row * channels_, arguments.output_gradients[0] + row * channels_,
                        output ? output + row * channels_ : nullptr, mean_.data(), count, channels_, sums,
                        sums + channels_);
    });
    for (int64_t c = 0; c < channels_; ++c) arguments.statistics[channels_ + c] *= inverse_deviation_[c];
    std::copy(arguments.statistics, arguments.statistics + 2 * channels_, own_sums_.begin());
  }

  void backward(const KernelArguments& arguments) override {
    const float* sums = arguments.statistics;
    if (!norm_.global) {
      KernelArguments local = arguments;
      own_gradient_sums_.resize(own_sums_.size());
      local.statistics = own_gradient_sums_.data();
      backward_statistics(local);
      sums = own_gradient_sums_.data();
    }
    // This part's contribution to the parameters' gradients, and the whole batch's of the input's.
    const float *own_bias = own_sums_.data(), *own_weight = own_bias + channels_;
    float *weight_gradient = arguments.parameter_gradients[0], *bias_gradient = arguments.parameter_gradients[1];
    for (int64_t c = 0; norm_.trained && c < channels_; ++c) {
      weight_gradient[c] = own_weight[c] + (arguments.accumulates(0) ? weight_gradient[c] : 0.0f);
      bias_gradient[c] = own_bias[c] + (arguments.accumulates(1) ? bias_gradient[c] : 0.0f);
    }
    if (!arguments.input_gradients[0]) return;
    // scale (g - mean(g) - n mean(g n)), n = (input - mean) / deviation, in the form a g + b input + c.
    Vector<float>& constant = constant_;
    constant.resize(channels_);
    for (int64_t i = 0; i < channels_; ++i) {
      const size_t c = static_cast<size_t>(i);
      const double scale = static_cast<double>(arguments.parameters[0][c]) * inverse_deviation_[c];
      const double mean_gradient = sums[c] / elements_,
                   mean_product = sums[c + static_cast<size_t>(channels_)] / elements_;
      const double slope = -scale * mean_product * inverse_deviation_[c];
      a_[c] = static_cast<float>(scale);
      b_[c] = static_cast<float>(slope);
      constant[c] = static_cast<float>(-scale * mean_gradient - slope * mean_[c]);
    }
    input_gradient(static_cast<const float*>(arguments.inputs[0]), arguments.output_gradients[0],
                   norm_.relu ? arguments.outputs[0] : nullptr, rows_, channels_, a_.data(), b_.data(), constant.data(),
                   arguments.input_gradients[0]);
  }

  int64_t workspace_bytes() const override { return 6 * channels_ * static_cast<int64_t>(sizeof(float)); }

 private:
  double variance_of(const float* sums, size_t channel) const {
    if (!own_variance_.empty()) return own_variance_[channel];
    const double mean = sums[channel] / elements_;
    return std::max(0.0, sums[channel + static_cast<size_t>(channels_)] / elements_ - mean * mean);
  }

  // Calls add(first row, rows, sums [2, channels]) for a few rows at a time and adds the sums up.
  template <class Add>
  void sum_up(float* result, const Add& add) {
    const size_t width = static_cast<size_t>(2 * channels_);
    totals_.assign(width, 0.0);
    partial_.resize(width);
    for (int64_t row = 0; row < rows_; row += rows_at_once) {
      std::fill(partial_.begin(), partial_.end(), 0.0f);
      add(row, std::min(rows_at_once, rows_ - row), partial_.data());
      for (size_t i = 0; i < width; ++i) totals_[i] += partial_[i];
    }
    for (size_t i = 0; i < width; ++i) result[i] = static_cast<float>(totals_[i]);
  }

  const BatchNorm& norm_;
  int64_t channels_, rows_;
  double elements_;  // a channel's, over all that it is normalized by
  Vector<float> mean_, inverse_deviation_, a_, b_, constant_;
  Vector<float> own_sums_, own_gradient_sums_, partial_;
  Vector<float> pivot_;                     // by channel
  Vector<double> own_mean_, own_variance_;  // of a part that is all, once it has summed up
  Vector<double> totals_;
};

}  // namespace

std::unique_ptr<Kernel> make_batch_norm_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<BatchNormKernel>(dynamic_cast<const BatchNorm&>(request.definition), request.part);
}

}  // namespace ff::cpu
