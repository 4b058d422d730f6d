#include "common/operators/broadcast.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Broadcast::Layout as plain arrays, for the device.
struct Layout {
  int64_t sizes[4], strides[4];
  int64_t elements, partners;

  explicit Layout(const Broadcast::Layout& layout) : elements(layout.elements), partners(layout.partners) {
    for (int d = 0; d < 4; ++d) {
      sizes[d] = layout.sizes[d];
      strides[d] = layout.strides[d];
    }
  }

  // Where the partner of an element lies.
  __device__ int64_t partner(int64_t element) const {
    int64_t at = 0;
    for (int d = 3; d >= 0; --d) {
      at += element % sizes[d] * strides[d];
      element /= sizes[d];
    }
    return at;
  }

  // Element number `i` of those with this partner.
  __device__ int64_t element(int64_t partner, int64_t i) const {
    int64_t at = 0, distance = 1;
    for (int d = 3; d >= 0; --d) {
      int64_t index;
      if (strides[d] > 0) {
        index = partner / strides[d] % sizes[d];
      } else {
        index = i % sizes[d];
        i /= sizes[d];
      }
      at += index * distance;
      distance *= sizes[d];
    }
    return at;
  }
};

void multiply_or_add(const Context& context, const Layout& layout, bool product, const float* x, const float* other,
                     float* y) {
  if (product)
    for_each_index(context, layout.elements, [=] __device__(int64_t i) { y[i] = x[i] * other[layout.partner(i)]; });
  else for_each_index(context, layout.elements, [=] __device__(int64_t i) { y[i] = x[i] + other[layout.partner(i)]; });
}

// result [partners]: sums of gradient * x, or of the gradient where x is null. A warp or a block a partner.
void gather(const Context& context, const Layout& layout, const float* x, const float* gradient, bool add,
            float* result) {
  const int64_t each = layout.elements / layout.partners;
  for_each_row(context, layout.partners, each, [=] __device__(auto row_threads, int64_t partner) {
    using Row = decltype(row_threads);
    float sum = 0;
    for (int64_t i = Row::thread(); i < each; i += Row::threads) {
      const int64_t at = layout.element(partner, i);
      sum += x ? gradient[at] * x[at] : gradient[at];
    }
    sum = Row::sum(sum);
    if (Row::thread() == 0) result[partner] = add ? result[partner] + sum : sum;
  });
}

class BroadcastKernel : public Kernel {
 public:
  BroadcastKernel(const Context& context, const Broadcast& definition, const Block& part)
      : context_(context), product_(definition.product), parameter_(definition.parameter),
        layout_(definition.layout(part)) {}

  void forward(const KernelArguments& arguments) override {
    multiply_or_add(context_, layout_, product_, static_cast<const float*>(arguments.inputs[0]), second(arguments),
                    arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float *x = product_ ? static_cast<const float*>(arguments.inputs[0]) : nullptr,
                *gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) {
      if (product_) multiply_or_add(context_, layout_, true, gradient, second(arguments), result);
      else copy(context_, gradient, result, layout_.elements);
    }
    float* const result = parameter_ ? arguments.parameter_gradients[0] : arguments.input_gradients[1];
    if (result) gather(context_, layout_, x, gradient, parameter_ && arguments.accumulates(0), result);
  }

 private:
  const float* second(const KernelArguments& arguments) const {
    return parameter_ ? arguments.parameters[0] : static_cast<const float*>(arguments.inputs[1]);
  }

  const Context& context_;
  bool product_, parameter_;
  Layout layout_;
};

// [samples, prefix + rest] of weight [prefix] and input [samples, rest].
void join(const Context& context, const float* weight, const float* input, int64_t samples, int64_t prefix,
          int64_t rest, float* output) {
  const int64_t all = prefix + rest;
  for_each_index(context, samples * all, [=] __device__(int64_t i) {
    const int64_t sample = i / all, at = i - sample * all;
    output[i] = at < prefix ? weight[at] : input[sample * rest + at - prefix];
  });
}

void split(const Context& context, const float* gradient, int64_t samples, int64_t prefix, int64_t rest,
           float* result) {
  for_each_index(context, samples * rest, [=] __device__(int64_t i) {
    const int64_t sample = i / rest;
    result[i] = gradient[i + (sample + 1) * prefix];
  });
}

void sum_prefixes(const Context& context, const float* gradient, int64_t samples, int64_t prefix, int64_t rest,
                  bool add, float* weight) {
  for_each_index(context, prefix, [=] __device__(int64_t i) {
    float sum = add ? weight[i] : 0.0f;
    for (int64_t sample = 0; sample < samples; ++sample) sum += gradient[sample * (prefix + rest) + i];
    weight[i] = sum;
  });
}

class PrefixKernel : public Kernel {
 public:
  PrefixKernel(const Context& context, const Prefix& definition, const Block& part)
      : context_(context), samples_(part[0].size()), prefix_(definition.own_rows(part) * part[2].size()),
        rest_(part[1].size() * part[2].size() - prefix_) {}

  void forward(const KernelArguments& arguments) override {
    join(context_, arguments.parameters[0], static_cast<const float*>(arguments.inputs[0]), samples_, prefix_, rest_,
         arguments.outputs[0]);
  }
  void backward(const KernelArguments& arguments) override {
    sum_prefixes(context_, arguments.output_gradients[0], samples_, prefix_, rest_, arguments.accumulates(0),
                 arguments.parameter_gradients[0]);
    if (arguments.input_gradients[0])
      split(context_, arguments.output_gradients[0], samples_, prefix_, rest_, arguments.input_gradients[0]);
  }

 private:
  const Context& context_;
  int64_t samples_, prefix_, rest_;  // elements of a sample
};

}  // namespace

std::unique_ptr<Kernel> make_broadcast_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<BroadcastKernel>(context, dynamic_cast<const Broadcast&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_prefix_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<PrefixKernel>(context, dynamic_cast<const Prefix&>(request.definition), request.part);
}

}  // namespace ff::cuda
