#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/packs.cuh"
#include "common/operators/batch_norm.h"

namespace ff::cuda {
namespace {

// By channel. The normalized input is (x - mean) * inverse_deviation; forward computes a x + b, backward a g + b x +
// constant.
struct ChannelValues {
  float *mean, *inverse_deviation, *a, *b, *constant;
};

__device__ double variance_of(const float* sums, int64_t channels, int64_t channel, double elements) {
  const double mean = sums[channel] / elements, variance = sums[channels + channel] / elements - mean * mean;
  return variance > 0 ? variance : 0;
}

// sums [2, channels] of x and x^2 over the rows of input [rows, channels]. Element, here and below: float or Bf16, the
// type of the operator's tensors; sums and parameters are f32.
template <class Element>
void sum_inputs(const Context& context, const Element* input, int64_t rows, int64_t channels, float* sums) {
  column_sums_by_packs<2>(
      context, columns_by_packs(channels, input), rows, channels,
      [=] __device__(int64_t row, int64_t c, auto number) {
        constexpr int n = decltype(number)::value;
        const Pack<float, n> x = load_values<n>(input + row * channels + c);
        Sums<2, n> sums;
#pragma unroll
        for (int j = 0; j < n; ++j) {
          sums.of[0][j] = x.of[j];
          sums.of[1][j] = x.of[j] * x.of[j];
        }
        return sums;
      },
      [=] __device__(int64_t c, const double* total) {
        sums[c] = static_cast<float>(total[0]);
        sums[channels + c] = static_cast<float>(total[1]);
      },
      context.scratch());
}

// Of the gradient g, and of g times the normalized input; twice, since one of them is added up with other parts'.
// `output` null: no relu after.
template <class Element>
void sum_gradients(const Context& context, const Element* input, const Element* gradient, const Element* output,
                   int64_t rows, int64_t channels, ChannelValues values, float* sums, float* own_sums) {
  column_sums_by_packs<2>(
      context, columns_by_packs(channels, input, gradient, output), rows, channels,
      [=] __device__(int64_t row, int64_t c, auto number) {
        constexpr int n = decltype(number)::value;
        const int64_t i = row * channels + c;
        const Pack<float, n> x = load_values<n>(input + i), slope = load_values<n>(gradient + i),
                             mean = load<n>(values.mean + c), inverse_deviation = load<n>(values.inverse_deviation + c);
        Pack<float, n> gate{};
        if (output) gate = load_values<n>(output + i);
        Sums<2, n> sums;
#pragma unroll
        for (int j = 0; j < n; ++j) {
          const float g = !output || gate.of[j] > 0 ? slope.of[j] : 0.0f;
          sums.of[0][j] = g;
          sums.of[1][j] = g * (x.of[j] - mean.of[j]) * inverse_deviation.of[j];
        }
        return sums;
      },
      [=] __device__(int64_t c, const double* total) {
        sums[c] = own_sums[c] = static_cast<float>(total[0]);
        sums[channels + c] = own_sums[channels + c] = static_cast<float>(total[1]);
      },
      context.scratch());
}

// `sums` null: by the running statistics.
void prepare_forward(const Context& context, const float* sums, const float* running_mean,
                     const float* running_variance, const float* weight, const float* bias, int64_t channels,
                     double elements, double epsilon, ChannelValues values) {
  for_each_index(context, channels, [=] __device__(int64_t c) {
    const double mean = sums ? sums[c] / elements : running_mean[c];
    const double variance = sums ? variance_of(sums, channels, c, elements) : running_variance[c];
    const float inverse_deviation = static_cast<float>(1 / sqrt(variance + epsilon));
    values.mean[c] = static_cast<float>(mean);
    values.inverse_deviation[c] = inverse_deviation;
    values.a[c] = weight[c] * inverse_deviation;
    values.b[c] = bias[c] - values.a[c] * values.mean[c];
  });
}

template <class Element>
void scale_and_shift(const Context& context, const Element* input, int64_t rows, int64_t channels, ChannelValues values,
                     bool relu, Element* output) {
  map_columns<1, 2>(context, rows, channels, output, {{input}}, Pointers<2>{{values.a, values.b}},
                    [=] __device__(const float(&x)[1], const float(&of_channel)[2]) {
                      const float y = x[0] * of_channel[0] + of_channel[1];
                      return relu && !(y > 0) ? 0.0f : y;
                    });
}

void move_running_statistics(const Context& context, const float* sums, int64_t channels, double elements, double share,
                             float* running_mean, float* running_variance) {
  const double unbiased = elements > 1 ? elements / (elements - 1) : 1;
  for_each_index(context, channels, [=] __device__(int64_t c) {
    running_mean[c] = static_cast<float>((1 - share) * running_mean[c] + share * sums[c] / elements);
    running_variance[c] = static_cast<float>((1 - share) * running_variance[c] +
                                             share * unbiased * variance_of(sums, channels, c, elements));
  });
}

// This part's share of the parameters' gradients; and of the input's, scale (g - mean(g) - n mean(g n)) with n = (input
// - mean) / deviation, the factors of the form a g + b input + constant, from the whole batch's sums.
void prepare_backward(const Context& context, const float* sums, const float* own_sums, const float* weight,
                      int64_t channels, double elements, ChannelValues values, float* weight_gradient, bool add_weight,
                      float* bias_gradient, bool add_bias) {
  for_each_index(context, channels, [=] __device__(int64_t c) {
    if (weight_gradient) weight_gradient[c] = own_sums[channels + c] + (add_weight ? weight_gradient[c] : 0.0f);
    if (bias_gradient) bias_gradient[c] = own_sums[c] + (add_bias ? bias_gradient[c] : 0.0f);
    const double scale = static_cast<double>(weight[c]) * values.inverse_deviation[c];
    const double slope = -scale * (sums[channels + c] / elements) * values.inverse_deviation[c];
    values.a[c] = static_cast<float>(scale);
    values.b[c] = static_cast<float>(slope);
    values.constant[c] = static_cast<float>(-scale * (sums[c] / elements) - slope * values.mean[c]);
  });
}

template <class Element>
void input_gradients(const Context& context, const Element* input, const Element* gradient, const Element* output,
                     int64_t rows, int64_t channels, ChannelValues values, Element* result) {
  const Pointers<3> of_channel{{values.a, values.b, values.constant}};
  if (output)
    map_columns<3, 3>(context, rows, channels, result, {{gradient, input, output}}, of_channel,
                      [=] __device__(const float(&x)[3], const float(&of)[3]) {
                        return of[0] * (x[2] > 0 ? x[0] : 0.0f) + of[1] * x[1] + of[2];
                      });
  else
    map_columns<2, 3>(
        context, rows, channels, result, {{gradient, input}}, of_channel,
        [=] __device__(const float(&x)[2], const float(&of)[3]) { return of[0] * x[0] + of[1] * x[1] + of[2]; });
}

// [rows, channels]: all ranks of the input are stored channels-last.
template <class Element>
class BatchNormKernel : public Kernel {
 public:
  BatchNormKernel(const Context& context, const BatchNorm& norm, const Block& part)
      : context_(context), norm_(norm), channels_(part[norm.channel_axis].size()), rows_(part.volume() / channels_),
        elements_(static_cast<double>(norm.global ? norm.elements_per_channel : rows_)),
        values_(context, 5 * channels_), own_sums_(context, 2 * channels_),
        own_gradient_sums_(context, norm.global ? 0 : 2 * channels_) {
    context.reserve_scratch(column_sums_scratch_bytes<2>(context, rows_, channels_));
  }

  void forward_statistics(const KernelArguments& arguments) override {
    sum_inputs(context_, input(arguments), rows_, channels_, arguments.statistics);
  }

  void forward(const KernelArguments& arguments) override {
    if (!norm_.global && arguments.training) sum_inputs(context_, input(arguments), rows_, channels_, own_sums_.data());
    const float* sums = !arguments.training ? nullptr : norm_.global ? arguments.statistics : own_sums_.data();
    prepare_forward(context_, sums, arguments.parameters[2], arguments.parameters[3], arguments.parameters[0],
                    arguments.parameters[1], channels_, elements_, norm_.epsilon, values());
    scale_and_shift(context_, input(arguments), rows_, channels_, values(), norm_.relu,
                    typed<Element>(arguments.outputs[0]));
  }

  void update_state(const KernelArguments& arguments) override {
    move_running_statistics(context_, norm_.global ? arguments.statistics : own_sums_.data(), channels_, elements_,
                            norm_.momentum, arguments.states[2], arguments.states[3]);
  }

  void backward_statistics(const KernelArguments& arguments) override {
    sum_gradients_to(arguments, arguments.statistics);
  }

  void backward(const KernelArguments& arguments) override {
    const float* sums = arguments.statistics;
    if (!norm_.global) {
      sum_gradients_to(arguments, own_gradient_sums_.data());
      sums = own_gradient_sums_.data();
    }
    prepare_backward(context_, sums, own_sums_.data(), arguments.parameters[0], channels_, elements_, values(),
                     arguments.parameter_gradients[0], arguments.accumulates(0), arguments.parameter_gradients[1],
                     arguments.accumulates(1));
    if (arguments.input_gradients[0])
      input_gradients<Element>(context_, input(arguments), typed<Element>(arguments.output_gradients[0]),
                               relu_output(arguments), rows_, channels_, values(),
                               typed<Element>(arguments.input_gradients[0]));
  }

  int64_t workspace_bytes() const override { return values_.bytes() + own_sums_.bytes() + own_gradient_sums_.bytes(); }

 private:
  static const Element* input(const KernelArguments& arguments) { return typed<Element>(arguments.inputs[0]); }
  const Element* relu_output(const KernelArguments& arguments) const {
    return norm_.relu ? typed<Element>(arguments.outputs[0]) : nullptr;
  }

  void sum_gradients_to(const KernelArguments& arguments, float* sums) {
    sum_gradients<Element>(context_, input(arguments), typed<Element>(arguments.output_gradients[0]),
                           relu_output(arguments), rows_, channels_, values(), sums, own_sums_.data());
  }
  ChannelValues values() const {
    float* first = values_.data();
    return {first, first + channels_, first + 2 * channels_, first + 3 * channels_, first + 4 * channels_};
  }

  const Context& context_;
  const BatchNorm& norm_;
  int64_t channels_, rows_;
  double elements_;  // a channel's, over all that it is normalized by
  Memory<float> values_;
  Memory<float> own_sums_;           // forward the input's (local statistics), backward the gradient's, of this part
  Memory<float> own_gradient_sums_;  // local statistics
};

}  // namespace

std::unique_ptr<Kernel> make_batch_norm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<BatchNormKernel<float>>(context, dynamic_cast<const BatchNorm&>(request.definition),
                                                  request.part);
}
std::unique_ptr<Kernel> make_batch_norm_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const norm = dynamic_cast<const BatchNorm*>(&request.definition);
  return norm ? std::make_unique<BatchNormKernel<Bf16>>(context, *norm, request.part) : nullptr;
}

}  // namespace ff::cuda
