#include "common/operators/experts.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// The slots of a part's tokens, and where their rows lie.
struct Slots {
  const int32_t* slots;  // [token, choice]
  ExpertRows rows;
  int64_t tokens, top_k, limit, channels;
  int64_t first_here, count_here;  // slots of the part's experts
  int number;                      // of the operator's name, for slots out of range
  Fault* fault;

  // Where the row of a choice begins; -1 where it has none here.
  __device__ int64_t begin(int64_t choice) const {
    const int32_t slot = slots[choice];
    if (slot == -1 || !in_range(slot, limit, number, fault)) return -1;
    const int64_t here = slot - first_here;
    return here < 0 || here >= count_here ? -1 : rows.row(choice / top_k, here) * channels;
  }
};

// rows[slot] = tokens' values, times their weight if there is one.
void scatter(const Context& context, const Slots& slots, const float* tokens, const float* weights, float* rows) {
  for_each_index(context, slots.tokens * slots.top_k * slots.channels, [=] __device__(int64_t i) {
    const int64_t choice = i / slots.channels, channel = i - choice * slots.channels, begin = slots.begin(choice);
    if (begin < 0) return;
    const float value = tokens[choice / slots.top_k * slots.channels + channel];
    rows[begin + channel] = weights ? weights[choice] * value : value;
  });
}

// tokens' values = sum over their slots of its row, times its weight if there is one.
void gather(const Context& context, const Slots& slots, const float* rows, const float* weights, float* tokens) {
  for_each_index(context, slots.tokens * slots.channels, [=] __device__(int64_t i) {
    const int64_t token = i / slots.channels, channel = i - token * slots.channels;
    float sum = 0;
    for (int64_t choice = token * slots.top_k; choice < (token + 1) * slots.top_k; ++choice) {
      const int64_t begin = slots.begin(choice);
      if (begin >= 0) sum += (weights ? weights[choice] : 1.0f) * rows[begin + channel];
    }
    tokens[i] = sum;
  });
}

// result[choice] = product of its row and its token's values
void weight_gradients(const Context& context, const Slots& slots, const float* rows, const float* tokens,
                      float* result) {
  for_each_row(context, slots.tokens * slots.top_k, slots.channels, [=] __device__(auto row_threads, int64_t choice) {
    using Row = decltype(row_threads);
    const int64_t begin = slots.begin(choice);
    float sum = 0;
    for (int64_t c = Row::thread(); begin >= 0 && c < slots.channels; c += Row::threads)
      sum += rows[begin + c] * tokens[choice / slots.top_k * slots.channels + c];
    sum = Row::sum(sum);
    if (Row::thread() == 0) result[choice] = sum;
  });
}

class RoutedKernel : public Kernel {
 public:
  RoutedKernel(const Context& context, const Routed& routed, const KernelRequest& request)
      : context_(context), slots_{nullptr,
                                  routed.rows(request.part),
                                  routed.tokens(request.part),
                                  routed.top_k,
                                  routed.routing.slots(),
                                  request.part[1].size(),
                                  routed.experts(request.part).begin * routed.routing.capacity,
                                  routed.experts(request.part).size() * routed.routing.capacity,
                                  context.fault_number(request.operator_name, "slot"),
                                  context.fault()} {}

 protected:
  Slots slots(const KernelArguments& arguments) const {
    Slots slots = slots_;
    slots.slots = static_cast<const int32_t*>(arguments.inputs[1]);
    return slots;
  }
  void clear_rows(float* rows) const {
    fill_zero(context_, rows, slots_.count_here * slots_.rows.groups * slots_.channels * element_bytes);
  }

  const Context& context_;
  Slots slots_;
};

class DispatchKernel : public RoutedKernel {
 public:
  using RoutedKernel::RoutedKernel;

  void forward(const KernelArguments& arguments) override {
    clear_rows(arguments.outputs[0]);
    scatter(context_, slots(arguments), static_cast<const float*>(arguments.inputs[0]), nullptr, arguments.outputs[0]);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      gather(context_, slots(arguments), arguments.output_gradients[0], nullptr, arguments.input_gradients[0]);
  }
};

class CombineKernel : public RoutedKernel {
 public:
  using RoutedKernel::RoutedKernel;

  void forward(const KernelArguments& arguments) override {
    gather(context_, slots(arguments), static_cast<const float*>(arguments.inputs[0]), weights(arguments),
           arguments.outputs[0]);
  }
  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) {
      clear_rows(result);
      scatter(context_, slots(arguments), gradient, weights(arguments), result);
    }
    if (float* result = arguments.input_gradients[2])
      weight_gradients(context_, slots(arguments), static_cast<const float*>(arguments.inputs[0]), gradient, result);
  }

 private:
  static const float* weights(const KernelArguments& arguments) {
    return static_cast<const float*>(arguments.inputs[2]);
  }
};

// values [expert, row, column] += bias [expert, column], if any, then relu, if asked for.
void add_expert_bias(const Context& context, const float* bias, bool relu, int64_t experts, int64_t rows,
                     int64_t columns, float* values) {
  if (!bias && !relu) return;
  const int64_t expert_elements = rows * columns;
  for_each_index(context, experts * expert_elements, [=] __device__(int64_t i) {
    const float sum = values[i] + (bias ? bias[i / expert_elements * columns + i % columns] : 0.0f);
    values[i] = relu && !(sum > 0) ? 0.0f : sum;
  });
}

// gradient [expert, row, column] -> bias gradients [expert, column], in one launch.
void sum_bias_gradients(const Context& context, const float* gradient, int64_t experts, int64_t rows, int64_t columns,
                        const KernelArguments& arguments) {
  float* sums = arguments.parameter_gradients[1];
  const bool add = arguments.accumulates(1);
  column_sums<1>(
      context, rows, experts * columns,
      [=] __device__(int64_t row, int64_t i) {
        const int64_t expert = i / columns;
        return Sums<1>{{gradient[(expert * (rows - 1) + row) * columns + i]}};  // (expert rows + row) columns + column
      },
      [=] __device__(int64_t i, const double* total) {
        sums[i] = static_cast<float>(total[0]) + (add ? sums[i] : 0.0f);
      },
      context.scratch());
}

// Of each expert: input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class ExpertLinearKernel : public Kernel {
 public:
  ExpertLinearKernel(const Context& context, const ExpertLinear& linear, const Block& part)
      : context_(context), bias_(linear.adds_bias(part)), relu_(linear.relu), rows_(part[0].size()),
        experts_(part[1].size()), in_(linear.in_channels(part).size()), out_(part[2].size()),
        masked_(context, relu_ ? part.volume() : 0) {
    if (bias_) context.reserve_scratch(sum_rows_scratch_bytes(context, rows_, experts_ * out_));
  }

  void forward(const KernelArguments& arguments) override {
    multiply_matrices(context_, {experts_, rows_ * in_, out_ * in_, rows_ * out_}, 'N', 'T', rows_, out_, in_,
                      static_cast<const float*>(arguments.inputs[0]), in_, arguments.parameters[0], in_, 0,
                      arguments.outputs[0], out_);
    add_expert_bias(context_, bias_ ? arguments.parameters[1] : nullptr, relu_, experts_, rows_, out_,
                    arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (relu_) {
      mask_by_positive(context_, arguments.outputs[0], gradient, masked_.data(), masked_.size());
      gradient = masked_.data();
    }
    multiply_matrices(context_, {experts_, rows_ * out_, rows_ * in_, out_ * in_}, 'T', 'N', out_, in_, rows_, gradient,
                      out_, static_cast<const float*>(arguments.inputs[0]), in_, arguments.accumulates(0) ? 1 : 0,
                      arguments.parameter_gradients[0], in_);
    if (bias_) sum_bias_gradients(context_, gradient, experts_, rows_, out_, arguments);
    if (arguments.input_gradients[0])
      multiply_matrices(context_, {experts_, rows_ * out_, out_ * in_, rows_ * in_}, 'N', 'N', rows_, in_, out_,
                        gradient, out_, arguments.parameters[0], in_, 0, arguments.input_gradients[0], in_);
  }

  int64_t workspace_bytes() const override { return masked_.bytes(); }

 private:
  const Context& context_;
  bool bias_, relu_;
  int64_t rows_, experts_, in_, out_;
  Memory<float> masked_;  // gradient after the relu
};

}  // namespace

std::unique_ptr<Kernel> make_dispatch_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<DispatchKernel>(context, dynamic_cast<const Dispatch&>(request.definition), request);
}
std::unique_ptr<Kernel> make_combine_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<CombineKernel>(context, dynamic_cast<const Combine&>(request.definition), request);
}
std::unique_ptr<Kernel> make_expert_linear_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<ExpertLinearKernel>(context, dynamic_cast<const ExpertLinear&>(request.definition),
                                              request.part);
}

}  // namespace ff::cuda
