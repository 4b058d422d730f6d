#include "common/operators/lstm.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Gates [rows, 4, units] in the order i, f, g, o.
struct GateIndex {
  int64_t i, f, g, o;
};
__device__ GateIndex gates_of(int64_t element, int64_t units) {
  const int64_t row = element / units, first = row * 4 * units + (element - row * units);
  return {first, first + units, first + 2 * units, first + 3 * units};
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// From the sums of the products to the gates (in place), c' and h'. bias [4, units]; `c` may be null.
void next_state(const Context& context, int64_t rows, int64_t units, const float* bias, const float* c, float* gates,
                float* tanh_c, float* next_h, float* next_c) {
  for_each_index(context, rows * units, [=] __device__(int64_t e) {
    const GateIndex at = gates_of(e, units);
    const int64_t unit = e % units;
    const float i = sigmoid(gates[at.i] + bias[unit]), f = sigmoid(gates[at.f] + bias[units + unit]);
    const float g = tanhf(gates[at.g] + bias[2 * units + unit]), o = sigmoid(gates[at.o] + bias[3 * units + unit]);
    const float next = i * g + (c ? f * c[e] : 0.0f), squashed = tanhf(next);
    gates[at.i] = i;
    gates[at.f] = f;
    gates[at.g] = g;
    gates[at.o] = o;
    tanh_c[e] = squashed;
    next_c[e] = next;
    next_h[e] = o * squashed;
  });
}

// Gradients of the gates' sums. `c`, `dh`, `dc` and `c_gradient` may be null.
void state_gradients(const Context& context, int64_t rows, int64_t units, const float* gates, const float* c,
                     const float* tanh_c, const float* dh, const float* dc, float* gate_gradients, float* c_gradient) {
  for_each_index(context, rows * units, [=] __device__(int64_t e) {
    const GateIndex at = gates_of(e, units);
    const float i = gates[at.i], f = gates[at.f], g = gates[at.g], o = gates[at.o], t = tanh_c[e];
    const float h_gradient = dh ? dh[e] : 0.0f;
    const float total = (dc ? dc[e] : 0.0f) + h_gradient * o * (1.0f - t * t);
    gate_gradients[at.i] = total * g * i * (1.0f - i);
    gate_gradients[at.f] = total * (c ? c[e] : 0.0f) * f * (1.0f - f);
    gate_gradients[at.g] = total * i * (1.0f - g * g);
    gate_gradients[at.o] = h_gradient * t * o * (1.0f - o);
    if (c_gradient) c_gradient[e] = total * f;
  });
}

// x [rows, in], h, c [rows, hidden or units] -> h', c' [rows, units]: matrix products for all four gates at once, and
// one elementwise kernel.
class LstmKernel : public Kernel {
 public:
  LstmKernel(const Context& context, const Lstm& lstm, const Block& part)
      : context_(context), first_(lstm.first_step()), rows_(part[0].size()), units_(part[1].size()),
        in_(lstm.in_features), hidden_(lstm.hidden), gates_(context, rows_ * units_ * 4),
        tanh_c_(context, rows_ * units_), gate_gradients_(context, rows_ * units_ * 4) {
    context.reserve_scratch(sum_rows_scratch_bytes(context, rows_, 4 * units_));
  }

  void forward(const KernelArguments& arguments) override {
    const int64_t gates = 4 * units_;
    multiply_matrices(context_, 'N', 'T', rows_, gates, in_, input(arguments, 0), in_, arguments.parameters[0], in_, 0,
                      gates_.data(), gates);
    if (!first_)
      multiply_matrices(context_, 'N', 'T', rows_, gates, hidden_, input(arguments, 1), hidden_,
                        arguments.parameters[1], hidden_, 1, gates_.data(), gates);
    next_state(context_, rows_, units_, arguments.parameters[2], first_ ? nullptr : input(arguments, 2), gates_.data(),
               tanh_c_.data(), arguments.outputs[0], arguments.outputs[1]);
  }

  void backward(const KernelArguments& arguments) override {
    state_gradients(context_, rows_, units_, gates_.data(), first_ ? nullptr : input(arguments, 2), tanh_c_.data(),
                    arguments.output_gradients[0], arguments.output_gradients[1], gate_gradients_.data(),
                    first_ ? nullptr : arguments.input_gradients[2]);
    const float* gradients = gate_gradients_.data();
    product_gradients(arguments, 0, in_);
    sum_rows(context_, gradients, rows_, 4 * units_, arguments.parameter_gradients[2], arguments.accumulates(2),
             context_.scratch());
    if (!first_) product_gradients(arguments, 1, hidden_);
    else if (!arguments.accumulates(1))
      fill_zero(context_, arguments.parameter_gradients[1], 4 * units_ * hidden_ * element_bytes);
  }

  int64_t workspace_bytes() const override { return gates_.bytes() + tanh_c_.bytes() + gate_gradients_.bytes(); }

 private:
  static const float* input(const KernelArguments& arguments, size_t i) {
    return static_cast<const float*>(arguments.inputs[i]);
  }

  // Of input i [rows, size] and its weight [4 units, size].
  void product_gradients(const KernelArguments& arguments, size_t i, int64_t size) {
    const int64_t gates = 4 * units_;
    multiply_matrices(context_, 'T', 'N', gates, size, rows_, gate_gradients_.data(), gates, input(arguments, i), size,
                      arguments.accumulates(i) ? 1 : 0, arguments.parameter_gradients[i], size);
    if (arguments.input_gradients[i])
      multiply_matrices(context_, 'N', 'N', rows_, size, gates, gate_gradients_.data(), gates, arguments.parameters[i],
                        size, 0, arguments.input_gradients[i], size);
  }

  const Context& context_;
  bool first_;
  int64_t rows_, units_, in_, hidden_;
  Memory<float> gates_, tanh_c_;  // kept for backward: [rows, 4, units], [rows, units]
  Memory<float> gate_gradients_;  // [rows, 4, units]
};

}  // namespace

std::unique_ptr<Kernel> make_lstm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LstmKernel>(context, dynamic_cast<const Lstm&>(request.definition), request.part);
}

}  // namespace ff::cuda
