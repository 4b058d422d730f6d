#include "common/operators/broadcast.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Broadcast::Layout as plain arrays, for the device. Index: 32 bits where these suffice: they divide by multiplication.
template <class Index>
struct Layout {
  struct Axis {
    Index size, stride;
    Divisor<Index> by_size{size}, by_stride{stride > 0 ? stride : 1};
  };
  Axis axes[4];
  int64_t elements, partners;

  explicit Layout(const Broadcast::Layout& layout)
      : axes{axis(layout, 0), axis(layout, 1), axis(layout, 2), axis(layout, 3)}, elements(layout.elements),
        partners(layout.partners) {}

  // Where the partner of an element lies.
  __device__ Index partner(int64_t element) const {
    Index rest = static_cast<Index>(element), at = 0;
#pragma unroll
    for (int d = 3; d >= 0; --d) at += axes[d].by_size.remainder(rest) * axes[d].stride;
    return at;
  }

  // Element number `i` of those with this partner.
  __device__ Index element(int64_t partner, int64_t i) const {
    Index rest = static_cast<Index>(i), at = 0, distance = 1;
#pragma unroll
    for (int d = 3; d >= 0; --d) {
      const Axis& axis = axes[d];
      if (axis.stride > 0) {
        Index of_partner = axis.by_stride.quotient(static_cast<Index>(partner));
        at += axis.by_size.remainder(of_partner) * distance;
      } else {
        at += axis.by_size.remainder(rest) * distance;
      }
      distance *= axis.size;
    }
    return at;
  }

 private:
  static Axis axis(const Broadcast::Layout& layout, int d) {
    return {static_cast<Index>(layout.sizes[d]), static_cast<Index>(layout.strides[d])};
  }
};

// body(Layout) of the numbers that suffice.
template <class Body>
void with_layout(const Broadcast::Layout& layout, const Body& body) {
  if (layout.elements >> 31) body(Layout<uint64_t>(layout));
  else body(Layout<uint32_t>(layout));
}

// Whether consecutive partners are those of consecutive elements.
bool inner_axis_is_kept(const Broadcast::Layout& layout) {
  int inner = 3;
  while (inner > 0 && layout.sizes[inner] == 1) --inner;
  return layout.strides[inner] == 1 && layout.partners > 1;
}

template <class Index>
void multiply_or_add(const Context& context, const Layout<Index>& layout, bool product, const float* x,
                     const float* other, float* y) {
  if (product)
    for_each_index(context, layout.elements, [=] __device__(int64_t i) { y[i] = x[i] * other[layout.partner(i)]; });
  else for_each_index(context, layout.elements, [=] __device__(int64_t i) { y[i] = x[i] + other[layout.partner(i)]; });
}

int64_t gather_scratch_bytes(const Context& context, const Broadcast::Layout& layout) {
  if (!inner_axis_is_kept(layout)) return 0;
  return column_sums_scratch_bytes<1>(context, layout.elements / layout.partners, layout.partners);
}

// result [partners]: sums of gradient * x, or of the gradient where x is null. Threads of a warp read consecutive
// elements: of consecutive partners, or of one partner that a warp or a block has.
template <class Index>
void gather(const Context& context, const Layout<Index>& layout, bool by_columns, const float* x, const float* gradient,
            bool add, float* result) {
  const int64_t each = layout.elements / layout.partners;
  if (by_columns) {
    column_sums<1>(
        context, each, layout.partners,
        [=] __device__(int64_t i, int64_t partner) {
          const int64_t at = layout.element(partner, i);
          return Sums<1>{{x ? gradient[at] * x[at] : gradient[at]}};
        },
        [=] __device__(int64_t partner, const double* total) {
          result[partner] = static_cast<float>(total[0]) + (add ? result[partner] : 0.0f);
        },
        context.scratch());
    return;
  }
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
        layout_(definition.layout(part)) {
    context.reserve_scratch(gather_scratch_bytes(context, layout_));
  }

  void forward(const KernelArguments& arguments) override {
    with_layout(layout_, [&](const auto& layout) {
      multiply_or_add(context_, layout, product_, static_cast<const float*>(arguments.inputs[0]), second(arguments),
                      arguments.outputs[0]);
    });
  }

  void backward(const KernelArguments& arguments) override {
    const float *x = product_ ? static_cast<const float*>(arguments.inputs[0]) : nullptr,
                *gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) {
      if (product_)
        with_layout(layout_, [&](const auto& layout) {
          multiply_or_add(context_, layout, true, gradient, second(arguments), result);
        });
      else copy(context_, gradient, result, layout_.elements);
    }
    float* const result = parameter_ ? arguments.parameter_gradients[0] : arguments.input_gradients[1];
    if (!result) return;
    with_layout(layout_, [&](const auto& layout) {
      gather(context_, layout, inner_axis_is_kept(layout_), x, gradient, parameter_ && arguments.accumulates(0),
             result);
    });
  }

 private:
  const float* second(const KernelArguments& arguments) const {
    return parameter_ ? arguments.parameters[0] : static_cast<const float*>(arguments.inputs[1]);
  }

  const Context& context_;
  bool product_, parameter_;
  Broadcast::Layout layout_;
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
  column_sums<1>(
      context, samples, prefix,
      [=] __device__(int64_t sample, int64_t i) { return Sums<1>{{gradient[sample * (prefix + rest) + i]}}; },
      [=] __device__(int64_t i, const double* total) {
        weight[i] = static_cast<float>(total[0]) + (add ? weight[i] : 0.0f);
      },
      context.scratch());
}

class PrefixKernel : public Kernel {
 public:
  PrefixKernel(const Context& context, const Prefix& definition, const Block& part)
      : context_(context), samples_(part[0].size()), prefix_(definition.own_rows(part) * part[2].size()),
        rest_(part[1].size() * part[2].size() - prefix_) {
    context.reserve_scratch(column_sums_scratch_bytes<1>(context, samples_, prefix_));
  }

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
