#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/operators/layer_norm.h"

namespace ff::cuda {
namespace {

// What backward needs of the rows.
struct RowStatistics {
  float *mean, *inverse_deviation;  // [rows]
};

// Of a parameter; a null one is what an operator without parameters has.
__device__ inline float value(const float* parameter, int64_t feature, float otherwise) {
  return parameter ? parameter[feature] : otherwise;
}

// In two passes, as the variance of values far from 0 needs it.
void normalize(const Context& context, const float* input, int64_t rows, int64_t features, float epsilon,
               const float* weight, const float* bias, float* output, RowStatistics statistics) {
  for_each_row(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float* x = input + row * features;
    float sum = 0, squares = 0;
    for (int64_t f = Row::thread(); f < features; f += Row::threads) sum += x[f];
    const float mean = Row::sum(sum) / static_cast<float>(features);
    for (int64_t f = Row::thread(); f < features; f += Row::threads) squares += (x[f] - mean) * (x[f] - mean);
    const float inverse_deviation = 1.0f / sqrtf(Row::sum(squares) / static_cast<float>(features) + epsilon);
    for (int64_t f = Row::thread(); f < features; f += Row::threads)
      output[row * features + f] = (x[f] - mean) * inverse_deviation * value(weight, f, 1.0f) + value(bias, f, 0.0f);
    if (Row::thread() != 0) return;
    statistics.mean[row] = mean;
    statistics.inverse_deviation[row] = inverse_deviation;
  });
}

// With n = (input - mean) / deviation and g = gradient * weight: result = (g - mean(g) - n mean(g n)) / deviation.
void input_gradients(const Context& context, const float* input, const float* gradient, const float* weight,
                     int64_t rows, int64_t features, RowStatistics statistics, float* result) {
  for_each_row(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const int64_t at = row * features;
    const float mean = statistics.mean[row], inverse_deviation = statistics.inverse_deviation[row];
    float sum = 0, product = 0;
    for (int64_t f = Row::thread(); f < features; f += Row::threads) {
      const float scaled = gradient[at + f] * value(weight, f, 1.0f);
      sum += scaled;
      product += scaled * (input[at + f] - mean) * inverse_deviation;
    }
    sum = Row::sum(sum) / static_cast<float>(features);
    product = Row::sum(product) / static_cast<float>(features);
    for (int64_t f = Row::thread(); f < features; f += Row::threads)
      result[at + f] =
          (gradient[at + f] * value(weight, f, 1.0f) - sum - (input[at + f] - mean) * inverse_deviation * product) *
          inverse_deviation;
  });
}

void parameter_gradients(const Context& context, const float* input, const float* gradient, int64_t rows,
                         int64_t features, RowStatistics statistics, float* weight, bool add_weight, float* bias,
                         bool add_bias) {
  column_sums<2>(
      context, rows, features,
      [=] __device__(int64_t row, int64_t f) {
        const float g = gradient[row * features + f];
        return Sums<2>{{g * (input[row * features + f] - statistics.mean[row]) * statistics.inverse_deviation[row], g}};
      },
      [=] __device__(int64_t f, const double* total) {
        weight[f] = static_cast<float>(total[0]) + (add_weight ? weight[f] : 0.0f);
        bias[f] = static_cast<float>(total[1]) + (add_bias ? bias[f] : 0.0f);
      },
      context.scratch());
}

// [rows, features].
class LayerNormKernel : public Kernel {
 public:
  LayerNormKernel(const Context& context, const LayerNorm& definition, const Block& part)
      : context_(context), rows_(part.volume()), features_(definition.features),
        epsilon_(static_cast<float>(definition.epsilon)), affine_(definition.affine), mean_(context, rows_),
        inverse_deviation_(context, rows_) {
    context.reserve_scratch(column_sums_scratch_bytes<2>(context, rows_, features_));
  }

  void forward(const KernelArguments& arguments) override {
    normalize(context_, static_cast<const float*>(arguments.inputs[0]), rows_, features_, epsilon_,
              affine_ ? arguments.parameters[0] : nullptr, affine_ ? arguments.parameters[1] : nullptr,
              arguments.outputs[0], statistics());
  }

  void backward(const KernelArguments& arguments) override {
    const float *input = static_cast<const float*>(arguments.inputs[0]), *gradient = arguments.output_gradients[0];
    if (affine_)
      parameter_gradients(context_, input, gradient, rows_, features_, statistics(), arguments.parameter_gradients[0],
                          arguments.accumulates(0), arguments.parameter_gradients[1], arguments.accumulates(1));
    if (arguments.input_gradients[0])
      input_gradients(context_, input, gradient, affine_ ? arguments.parameters[0] : nullptr, rows_, features_,
                      statistics(), arguments.input_gradients[0]);
  }

  int64_t workspace_bytes() const override { return mean_.bytes() + inverse_deviation_.bytes(); }

 private:
  RowStatistics statistics() const { return {mean_.data(), inverse_deviation_.data()}; }

  const Context& context_;
  int64_t rows_, features_;
  float epsilon_;
  bool affine_;
  Memory<float> mean_, inverse_deviation_;  // [rows]
};

// inverse_root [rows]: 1 / root mean square of each row, which backward needs.
void scale_rows(const Context& context, const float* input, int64_t rows, int64_t features, float epsilon,
                const float* weight, float* output, float* inverse_root) {
  for_each_row(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float* x = input + row * features;
    float squares = 0;
    for (int64_t f = Row::thread(); f < features; f += Row::threads) squares += x[f] * x[f];
    const float inverse = 1.0f / sqrtf(Row::sum(squares) / static_cast<float>(features) + epsilon);
    for (int64_t f = Row::thread(); f < features; f += Row::threads)
      output[row * features + f] = x[f] * inverse * value(weight, f, 1.0f);
    if (Row::thread() == 0) inverse_root[row] = inverse;
  });
}

// With n = input / root and g = gradient * weight: result = (g - n mean(g n)) / root.
void scaled_input_gradients(const Context& context, const float* input, const float* gradient, const float* weight,
                            int64_t rows, int64_t features, const float* inverse_root, float* result) {
  for_each_row(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const int64_t at = row * features;
    const float inverse = inverse_root[row];
    float product = 0;
    for (int64_t f = Row::thread(); f < features; f += Row::threads)
      product += gradient[at + f] * value(weight, f, 1.0f) * input[at + f] * inverse;
    product = Row::sum(product) / static_cast<float>(features);
    for (int64_t f = Row::thread(); f < features; f += Row::threads)
      result[at + f] = (gradient[at + f] * value(weight, f, 1.0f) - input[at + f] * inverse * product) * inverse;
  });
}

void scaled_weight_gradient(const Context& context, const float* input, const float* gradient, int64_t rows,
                            int64_t features, const float* inverse_root, float* weight, bool add) {
  column_sums<1>(
      context, rows, features,
      [=] __device__(int64_t row, int64_t f) {
        return Sums<1>{{gradient[row * features + f] * input[row * features + f] * inverse_root[row]}};
      },
      [=] __device__(int64_t f, const double* total) {
        weight[f] = static_cast<float>(total[0]) + (add ? weight[f] : 0.0f);
      },
      context.scratch());
}

// [rows, features].
class RmsNormKernel : public Kernel {
 public:
  RmsNormKernel(const Context& context, const RmsNorm& definition, const Block& part)
      : context_(context), rows_(part.volume()), features_(definition.features),
        epsilon_(static_cast<float>(definition.epsilon)), affine_(definition.affine), inverse_root_(context, rows_) {
    context.reserve_scratch(column_sums_scratch_bytes<1>(context, rows_, features_));
  }

  void forward(const KernelArguments& arguments) override {
    scale_rows(context_, static_cast<const float*>(arguments.inputs[0]), rows_, features_, epsilon_,
               affine_ ? arguments.parameters[0] : nullptr, arguments.outputs[0], inverse_root_.data());
  }

  void backward(const KernelArguments& arguments) override {
    const float *input = static_cast<const float*>(arguments.inputs[0]), *gradient = arguments.output_gradients[0];
    if (affine_)
      scaled_weight_gradient(context_, input, gradient, rows_, features_, inverse_root_.data(),
                             arguments.parameter_gradients[0], arguments.accumulates(0));
    if (arguments.input_gradients[0])
      scaled_input_gradients(context_, input, gradient, affine_ ? arguments.parameters[0] : nullptr, rows_, features_,
                             inverse_root_.data(), arguments.input_gradients[0]);
  }

  int64_t workspace_bytes() const override { return inverse_root_.bytes(); }

 private:
  const Context& context_;
  int64_t rows_, features_;
  float epsilon_;
  bool affine_;
  Memory<float> inverse_root_;  // [rows]
};

}  // namespace

std::unique_ptr<Kernel> make_layer_norm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LayerNormKernel>(context, dynamic_cast<const LayerNorm&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_rms_norm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<RmsNormKernel>(context, dynamic_cast<const RmsNorm&>(request.definition), request.part);
}

}  // namespace ff::cuda
