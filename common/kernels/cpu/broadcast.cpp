#include "common/operators/broadcast.h"

#include <cstring>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// One run of elements that are neighbours in memory; `stride`: of their partners.
FF_VECTORIZED void combine(bool product, const float* x, const float* other, int64_t stride, float* y, int64_t count) {
  if (stride == 0 && product)
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] * other[0];
  else if (stride == 0)
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] + other[0];
  else if (product)
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] * other[i * stride];
  else
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] + other[i * stride];
}

// Adds a run of the output's gradient (times x in a product) to the partners' gradients.
FF_VECTORIZED void gather(const float* x, const float* gradient, int64_t stride, float* result, int64_t count) {
  if (stride == 0) {
    float sum = 0;
    if (x) {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; ++i) sum += x[i] * gradient[i];
    } else {
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < count; ++i) sum += gradient[i];
    }
    *result += sum;
  } else if (x) {
    for (int64_t i = 0; i < count; ++i) result[i * stride] += x[i] * gradient[i];
  } else {
    for (int64_t i = 0; i < count; ++i) result[i * stride] += gradient[i];
  }
}

class BroadcastKernel : public Kernel {
 public:
  BroadcastKernel(const Broadcast& definition, const Block& part)
      : product_(definition.product), parameter_(definition.parameter), layout_(definition.layout(part)) {}

  void forward(const KernelArguments& arguments) override {
    const float *x = input(arguments), *other = second(arguments);
    for_each_run([&](int64_t at, int64_t partner) {
      combine(product_, x + at, other + partner, layout_.strides[3], arguments.outputs[0] + at, layout_.sizes[3]);
    });
  }

  void backward(const KernelArguments& arguments) override {
    const float *x = product_ ? input(arguments) : nullptr, *gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) {
      if (product_)
        for_each_run([&](int64_t at, int64_t partner) {
          combine(true, gradient + at, second(arguments) + partner, layout_.strides[3], result + at, layout_.sizes[3]);
        });
      else std::memcpy(result, gradient, static_cast<size_t>(layout_.elements) * sizeof(float));
    }
    float* const result = parameter_ ? arguments.parameter_gradients[0] : arguments.input_gradients[1];
    if (!result) return;
    if (!parameter_ || !arguments.accumulates(0))
      std::memset(result, 0, static_cast<size_t>(layout_.partners) * sizeof(float));
    for_each_run([&](int64_t at, int64_t partner) {
      gather(x ? x + at : nullptr, gradient + at, layout_.strides[3], result + partner, layout_.sizes[3]);
    });
  }

 private:
  static const float* input(const KernelArguments& arguments) { return static_cast<const float*>(arguments.inputs[0]); }
  const float* second(const KernelArguments& arguments) const {
    return parameter_ ? arguments.parameters[0] : static_cast<const float*>(arguments.inputs[1]);
  }

  template <typename Call>
  void for_each_run(const Call& call) const {
    const auto& [sizes, strides, elements, partners] = layout_;
    int64_t at = 0;
    for (int64_t i = 0; i < sizes[0]; ++i)
      for (int64_t j = 0; j < sizes[1]; ++j)
        for (int64_t k = 0; k < sizes[2]; ++k, at += sizes[3])
          call(at, i * strides[0] + j * strides[1] + k * strides[2]);
  }

  bool product_, parameter_;
  Broadcast::Layout layout_;
};

// [samples, positions, channels]; the part's first positions may be the prefix.
class PrefixKernel : public Kernel {
 public:
  PrefixKernel(const Prefix& definition, const Block& part)
      : samples_(part[0].size()), prefix_(definition.own_rows(part) * part[2].size()),
        row_(part[1].size() * part[2].size()) {}

  void forward(const KernelArguments& arguments) override {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    for (int64_t s = 0; s < samples_; ++s) {
      float* output = arguments.outputs[0] + s * row_;
      copy(arguments.parameters[0], output, prefix_);
      copy(input + s * (row_ - prefix_), output + prefix_, row_ - prefix_);
    }
  }

  void backward(const KernelArguments& arguments) override {
    float *weight = arguments.parameter_gradients[0], *result = arguments.input_gradients[0];
    if (prefix_ > 0 && !arguments.accumulates(0)) std::memset(weight, 0, static_cast<size_t>(prefix_) * sizeof(float));
    for (int64_t s = 0; s < samples_; ++s) {
      const float* gradient = arguments.output_gradients[0] + s * row_;
      if (prefix_ > 0) add_to(gradient, weight, prefix_);
      if (result) copy(gradient + prefix_, result + s * (row_ - prefix_), row_ - prefix_);
    }
  }

 private:
  static void copy(const float* source, float* destination, int64_t elements) {
    if (elements > 0) std::memcpy(destination, source, static_cast<size_t>(elements) * sizeof(float));
  }

  int64_t samples_, prefix_, row_;  // elements of a sample
};

}  // namespace

std::unique_ptr<Kernel> make_broadcast_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<BroadcastKernel>(dynamic_cast<const Broadcast&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_prefix_kernel(const Context&, const KernelRequest& request) {
  return std::make_unique<PrefixKernel>(dynamic_cast<const Prefix&>(request.definition), request.part);
}

}  // namespace ff::cpu
