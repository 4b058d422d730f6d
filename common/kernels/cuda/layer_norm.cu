#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"
#include "common/operators/layer_norm.h"

namespace ff::cuda {
namespace {

// What backward needs of the rows.
struct RowStatistics {
  float *mean, *inverse_deviation;  // [rows]
};

// A row's packs, and whether those of its parameters can be loaded likewise. A null parameter is what an operator
// without parameters has.
struct RowAndParameters {
  RowPacks row;
  bool alike;
  const float *weight, *bias;

  template <class... Tensors>
  __device__ RowAndParameters(const float* weight_of_row, const float* bias_of_row, int64_t features,
                              const Tensors*... tensors)
      : row(features, tensors...), alike(row.alike && row.head == 0 && elements_before_pack(weight_of_row) == 0 &&
                                         elements_before_pack(bias_of_row) == 0),
        weight(weight_of_row), bias(bias_of_row) {}

  template <int n>
  __device__ Pack<float, n> weights(int64_t feature) const {
    return of<n>(weight, feature, 1.0f);
  }
  template <int n>
  __device__ Pack<float, n> biases(int64_t feature) const {
    return of<n>(bias, feature, 0.0f);
  }

 private:
  template <int n>
  __device__ Pack<float, n> of(const float* parameter, int64_t feature, float otherwise) const {
    if (parameter && alike) return load<n>(parameter + feature);
    Pack<float, n> values;
#pragma unroll
    for (int j = 0; j < n; ++j) values.of[j] = parameter ? parameter[feature + j] : otherwise;
    return values;
  }
};

// In two passes, as the variance of values far from 0 needs it.
template <class Element>
void normalize(const Context& context, const Element* input, int64_t rows, int64_t features, float epsilon,
               const float* weight, const float* bias, Element* output, RowStatistics statistics) {
  for_each_row_of_packs(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const Element* x = input + row * features;
    Element* y = output + row * features;
    const RowAndParameters places(weight, bias, features, x, y);
    const RowOf<Row, 1, Element> inputs(places.row, {x});
    float sum = 0, squares = 0;
    inputs.each([&](int64_t, const auto& of) {
#pragma unroll
      for (int j = 0; j < of[0].size; ++j) sum += of[0].of[j];
    });
    const float mean = Row::sum(sum) / static_cast<float>(features);
    inputs.each([&](int64_t, const auto& of) {
#pragma unroll
      for (int j = 0; j < of[0].size; ++j) squares += (of[0].of[j] - mean) * (of[0].of[j] - mean);
    });
    const float inverse_deviation = 1.0f / sqrtf(Row::sum(squares) / static_cast<float>(features) + epsilon);
    inputs.each([&](int64_t f, const auto& of) {
      auto results = of[0];
      const auto w = places.weights<results.size>(f), b = places.biases<results.size>(f);
#pragma unroll
      for (int j = 0; j < results.size; ++j)
        results.of[j] = (results.of[j] - mean) * inverse_deviation * w.of[j] + b.of[j];
      places.row.store(y + f, results);
    });
    if (Row::thread() != 0) return;
    statistics.mean[row] = mean;
    statistics.inverse_deviation[row] = inverse_deviation;
  });
}

// With n = (input - mean) / deviation and g = gradient * weight: result = (g - mean(g) - n mean(g n)) / deviation.
template <class Element>
void input_gradients(const Context& context, const Element* input, const Element* gradient, const float* weight,
                     int64_t rows, int64_t features, RowStatistics statistics, Element* result) {
  for_each_row_of_packs(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const Element *x = input + row * features, *g = gradient + row * features;
    Element* of_row = result + row * features;
    const RowAndParameters places(weight, nullptr, features, x, g, of_row);
    const RowOf<Row, 2, Element> both(places.row, {x, g});
    const float mean = statistics.mean[row], inverse_deviation = statistics.inverse_deviation[row];
    float sum = 0, product = 0;
    both.each([&](int64_t f, const auto& of) {
      const auto w = places.weights<of[0].size>(f);
#pragma unroll
      for (int j = 0; j < w.size; ++j) {
        const float scaled = of[1].of[j] * w.of[j];
        sum += scaled;
        product += scaled * (of[0].of[j] - mean) * inverse_deviation;
      }
    });
    sum = Row::sum(sum) / static_cast<float>(features);
    product = Row::sum(product) / static_cast<float>(features);
    both.each([&](int64_t f, const auto& of) {
      auto results = of[1];
      const auto w = places.weights<results.size>(f);
#pragma unroll
      for (int j = 0; j < w.size; ++j)
        results.of[j] =
            (of[1].of[j] * w.of[j] - sum - (of[0].of[j] - mean) * inverse_deviation * product) * inverse_deviation;
      places.row.store(of_row + f, results);
    });
  });
}

template <class Element>
void parameter_gradients(const Context& context, const Element* input, const Element* gradient, int64_t rows,
                         int64_t features, RowStatistics statistics, float* weight, bool add_weight, float* bias,
                         bool add_bias) {
  column_sums_by_packs<2>(
      context, columns_by_packs(features, input, gradient), rows, features,
      [=] __device__(int64_t row, int64_t f, auto number) {
        constexpr int n = decltype(number)::value;
        const Pack<float, n> x = load_values<n>(input + row * features + f),
                             g = load_values<n>(gradient + row * features + f);
        const float mean = statistics.mean[row], inverse_deviation = statistics.inverse_deviation[row];
        Sums<2, n> sums;
#pragma unroll
        for (int j = 0; j < n; ++j) {
          sums.of[0][j] = g.of[j] * (x.of[j] - mean) * inverse_deviation;
          sums.of[1][j] = g.of[j];
        }
        return sums;
      },
      [=] __device__(int64_t f, const double* total) {
        weight[f] = static_cast<float>(total[0]) + (add_weight ? weight[f] : 0.0f);
        bias[f] = static_cast<float>(total[1]) + (add_bias ? bias[f] : 0.0f);
      },
      context.scratch());
}

// [rows, features].
template <class Element>
class LayerNormKernel : public Kernel {
 public:
  LayerNormKernel(const Context& context, const LayerNorm& definition, const Block& part)
      : context_(context), rows_(part.volume()), features_(definition.features),
        epsilon_(static_cast<float>(definition.epsilon)), affine_(definition.affine), mean_(context, rows_),
        inverse_deviation_(context, rows_) {
    context.reserve_scratch(column_sums_scratch_bytes<2>(context, rows_, features_));
  }

  void forward(const KernelArguments& arguments) override {
    normalize(context_, static_cast<const Element*>(arguments.inputs[0]), rows_, features_, epsilon_,
              affine_ ? arguments.parameters[0] : nullptr, affine_ ? arguments.parameters[1] : nullptr,
              reinterpret_cast<Element*>(arguments.outputs[0]), statistics());
  }

  void backward(const KernelArguments& arguments) override {
    const auto *input = static_cast<const Element*>(arguments.inputs[0]),
               *gradient = reinterpret_cast<const Element*>(arguments.output_gradients[0]);
    if (affine_)
      parameter_gradients(context_, input, gradient, rows_, features_, statistics(), arguments.parameter_gradients[0],
                          arguments.accumulates(0), arguments.parameter_gradients[1], arguments.accumulates(1));
    if (arguments.input_gradients[0])
      input_gradients(context_, input, gradient, affine_ ? arguments.parameters[0] : nullptr, rows_, features_,
                      statistics(), reinterpret_cast<Element*>(arguments.input_gradients[0]));
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
template <class Element>
void scale_rows(const Context& context, const Element* input, int64_t rows, int64_t features, float epsilon,
                const float* weight, Element* output, float* inverse_root) {
  for_each_row_of_packs(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const Element* x = input + row * features;
    Element* y = output + row * features;
    const RowAndParameters places(weight, nullptr, features, x, y);
    const RowOf<Row, 1, Element> inputs(places.row, {x});
    float squares = 0;
    inputs.each([&](int64_t, const auto& of) {
#pragma unroll
      for (int j = 0; j < of[0].size; ++j) squares += of[0].of[j] * of[0].of[j];
    });
    const float inverse = 1.0f / sqrtf(Row::sum(squares) / static_cast<float>(features) + epsilon);
    inputs.each([&](int64_t f, const auto& of) {
      auto results = of[0];
      const auto w = places.weights<results.size>(f);
#pragma unroll
      for (int j = 0; j < w.size; ++j) results.of[j] = results.of[j] * inverse * w.of[j];
      places.row.store(y + f, results);
    });
    if (Row::thread() == 0) inverse_root[row] = inverse;
  });
}

// With n = input / root and g = gradient * weight: result = (g - n mean(g n)) / root.
template <class Element>
void scaled_input_gradients(const Context& context, const Element* input, const Element* gradient, const float* weight,
                            int64_t rows, int64_t features, const float* inverse_root, Element* result) {
  for_each_row_of_packs(context, rows, features, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const Element *x = input + row * features, *g = gradient + row * features;
    Element* of_row = result + row * features;
    const RowAndParameters places(weight, nullptr, features, x, g, of_row);
    const RowOf<Row, 2, Element> both(places.row, {x, g});
    const float inverse = inverse_root[row];
    float product = 0;
    both.each([&](int64_t f, const auto& of) {
      const auto w = places.weights<of[0].size>(f);
#pragma unroll
      for (int j = 0; j < w.size; ++j) product += of[1].of[j] * w.of[j] * of[0].of[j] * inverse;
    });
    product = Row::sum(product) / static_cast<float>(features);
    both.each([&](int64_t f, const auto& of) {
      auto results = of[1];
      const auto w = places.weights<results.size>(f);
#pragma unroll
      for (int j = 0; j < w.size; ++j)
        results.of[j] = (of[1].of[j] * w.of[j] - of[0].of[j] * inverse * product) * inverse;
      places.row.store(of_row + f, results);
    });
  });
}

template <class Element>
void scaled_weight_gradient(const Context& context, const Element* input, const Element* gradient, int64_t rows,
                            int64_t features, const float* inverse_root, float* weight, bool add) {
  column_sums_by_packs<1>(
      context, columns_by_packs(features, input, gradient), rows, features,
      [=] __device__(int64_t row, int64_t f, auto number) {
        constexpr int n = decltype(number)::value;
        const Pack<float, n> x = load_values<n>(input + row * features + f),
                             g = load_values<n>(gradient + row * features + f);
        const float inverse = inverse_root[row];
        Sums<1, n> sums;
#pragma unroll
        for (int j = 0; j < n; ++j) sums.of[0][j] = g.of[j] * x.of[j] * inverse;
        return sums;
      },
      [=] __device__(int64_t f, const double* total) {
        weight[f] = static_cast<float>(total[0]) + (add ? weight[f] : 0.0f);
      },
      context.scratch());
}

// [rows, features].
template <class Element>
class RmsNormKernel : public Kernel {
 public:
  RmsNormKernel(const Context& context, const RmsNorm& definition, const Block& part)
      : context_(context), rows_(part.volume()), features_(definition.features),
        epsilon_(static_cast<float>(definition.epsilon)), affine_(definition.affine), inverse_root_(context, rows_) {
    context.reserve_scratch(column_sums_scratch_bytes<1>(context, rows_, features_));
  }

  void forward(const KernelArguments& arguments) override {
    scale_rows(context_, static_cast<const Element*>(arguments.inputs[0]), rows_, features_, epsilon_,
               affine_ ? arguments.parameters[0] : nullptr, reinterpret_cast<Element*>(arguments.outputs[0]),
               inverse_root_.data());
  }

  void backward(const KernelArguments& arguments) override {
    const auto *input = static_cast<const Element*>(arguments.inputs[0]),
               *gradient = reinterpret_cast<const Element*>(arguments.output_gradients[0]);
    if (affine_)
      scaled_weight_gradient(context_, input, gradient, rows_, features_, inverse_root_.data(),
                             arguments.parameter_gradients[0], arguments.accumulates(0));
    if (arguments.input_gradients[0])
      scaled_input_gradients(context_, input, gradient, affine_ ? arguments.parameters[0] : nullptr, rows_, features_,
                             inverse_root_.data(), reinterpret_cast<Element*>(arguments.input_gradients[0]));
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
  return std::make_unique<LayerNormKernel<float>>(context, dynamic_cast<const LayerNorm&>(request.definition),
                                                  request.part);
}
std::unique_ptr<Kernel> make_rms_norm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<RmsNormKernel<float>>(context, dynamic_cast<const RmsNorm&>(request.definition),
                                                request.part);
}

std::unique_ptr<Kernel> make_layer_norm_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const definition = dynamic_cast<const LayerNorm*>(&request.definition);
  return definition ? std::make_unique<LayerNormKernel<Bf16>>(context, *definition, request.part) : nullptr;
}
std::unique_ptr<Kernel> make_rms_norm_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const definition = dynamic_cast<const RmsNorm*>(&request.definition);
  return definition ? std::make_unique<RmsNormKernel<Bf16>>(context, *definition, request.part) : nullptr;
}

}  // namespace ff::cuda
