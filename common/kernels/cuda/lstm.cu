#include "common/operators/lstm.h"

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/packs.cuh"

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

// From the sums of the products to the gates (in place), c' and h'. bias [4, units]; `c` may be null. Element: float or
// Bf16, the type of the operator's tensors.
template <class Element>
void next_state(const Context& context, int64_t rows, int64_t units, const Element* bias, const Element* c,
                float* gates, float* tanh_c, Element* next_h, Element* next_c) {
  for_each_index(context, rows * units, [=] __device__(int64_t e) {
    const GateIndex at = gates_of(e, units);
    const int64_t unit = e % units;
    const auto sum = [&](int64_t gate, int64_t number) { return gates[gate] + value_of(bias[number * units + unit]); };
    const float i = sigmoid(sum(at.i, 0)), f = sigmoid(sum(at.f, 1)), g = tanhf(sum(at.g, 2)),
                o = sigmoid(sum(at.o, 3));
    const float next = i * g + (c ? f * value_of(c[e]) : 0.0f), squashed = tanhf(next);
    gates[at.i] = i;
    gates[at.f] = f;
    gates[at.g] = g;
    gates[at.o] = o;
    tanh_c[e] = squashed;
    set(next_c[e], next);
    set(next_h[e], o * squashed);
  });
}

// Gradients of the gates' sums. `c`, `dh`, `dc` and `c_gradient` may be null.
template <class Element>
void state_gradients(const Context& context, int64_t rows, int64_t units, const float* gates, const Element* c,
                     const float* tanh_c, const Element* dh, const Element* dc, Element* gate_gradients,
                     Element* c_gradient) {
  for_each_index(context, rows * units, [=] __device__(int64_t e) {
    const GateIndex at = gates_of(e, units);
    const float i = gates[at.i], f = gates[at.f], g = gates[at.g], o = gates[at.o], t = tanh_c[e];
    const float h_gradient = dh ? value_of(dh[e]) : 0.0f;
    const float total = (dc ? value_of(dc[e]) : 0.0f) + h_gradient * o * (1.0f - t * t);
    set(gate_gradients[at.i], total * g * i * (1.0f - i));
    set(gate_gradients[at.f], total * (c ? value_of(c[e]) : 0.0f) * f * (1.0f - f));
    set(gate_gradients[at.g], total * i * (1.0f - g * g));
    set(gate_gradients[at.o], h_gradient * t * o * (1.0f - o));
    if (c_gradient) set(c_gradient[e], total * f);
  });
}

// x [rows, in], h, c [rows, hidden or units] -> h', c' [rows, units]: matrix products for all four gates at once, and
// one elementwise kernel. The sums of the products, and what is kept for backward, are f32. With bf16 the gradients of
// the sums are rounded, as operands of products.
template <class Element>
class LstmKernel : public Kernel {
 public:
  LstmKernel(const Context& context, const Lstm& lstm, const Block& part)
      : context_(context), first_(lstm.first_step()), rows_(part[0].size()), units_(part[1].size()),
        in_(lstm.in_features), hidden_(lstm.hidden), gates_(context, rows_ * units_ * 4),
        tanh_c_(context, rows_ * units_), gate_gradients_(context, rows_ * units_ * 4) {
    context.reserve_scratch(sum_rows_scratch_bytes(context, rows_, 4 * units_));
  }

  void forward(const KernelArguments& arguments) override {
    add_products(arguments, 0, in_);
    if (!first_) add_products(arguments, 1, hidden_);
    next_state<Element>(context_, rows_, units_, typed<Element>(arguments.parameters[2]), c(arguments), gates_.data(),
                        tanh_c_.data(), typed<Element>(arguments.outputs[0]), typed<Element>(arguments.outputs[1]));
  }

  void backward(const KernelArguments& arguments) override {
    state_gradients<Element>(context_, rows_, units_, gates_.data(), c(arguments), tanh_c_.data(),
                             typed<Element>(arguments.output_gradients[0]),
                             typed<Element>(arguments.output_gradients[1]), gate_gradients(),
                             first_ ? nullptr : typed<Element>(arguments.input_gradients[2]));
    const Element* const gradients = gate_gradients();
    product_gradients(arguments, 0, in_);
    sum_rows(context_, gradients, rows_, 4 * units_, arguments.parameter_gradients[2], arguments.accumulates(2),
             context_.scratch());
    if (!first_) product_gradients(arguments, 1, hidden_);
    else if (!arguments.accumulates(1))
      fill_zero(context_, arguments.parameter_gradients[1], 4 * units_ * hidden_ * element_bytes);
  }

  int64_t workspace_bytes() const override { return gates_.bytes() + tanh_c_.bytes() + gate_gradients_.bytes(); }

 private:
  const Element* c(const KernelArguments& arguments) const {
    return first_ ? nullptr : typed<Element>(arguments.inputs[2]);
  }
  Element* gate_gradients() const { return typed<Element>(gate_gradients_.data()); }

  // Of input i [rows, size] and its weight [4 units, size] to the gates' sums; the first one begins them.
  void add_products(const KernelArguments& arguments, int i, int64_t size) const {
    multiply_matrices(context_, 'N', 'T', rows_, 4 * units_, size, typed<Element>(arguments.inputs[i]), size,
                      typed<Element>(arguments.parameters[i]), size, i == 0 ? 0 : 1, gates_.data(), 4 * units_);
  }

  // Of input i and its weight.
  void product_gradients(const KernelArguments& arguments, int i, int64_t size) const {
    const int64_t gates = 4 * units_;
    const Element* const gradients = gate_gradients();
    multiply_matrices(context_, 'T', 'N', gates, size, rows_, gradients, gates, typed<Element>(arguments.inputs[i]),
                      size, arguments.accumulates(static_cast<size_t>(i)) ? 1 : 0, arguments.parameter_gradients[i],
                      size);
    if (arguments.input_gradients[i])
      multiply_matrices(context_, 'N', 'N', rows_, size, gates, gradients, gates,
                        typed<Element>(arguments.parameters[i]), size, 0, typed<Element>(arguments.input_gradients[i]),
                        size);
  }

  const Context& context_;
  bool first_;
  int64_t rows_, units_, in_, hidden_;
  Memory<float> gates_, tanh_c_;  // kept for backward: [rows, 4, units], [rows, units]
  Memory<float> gate_gradients_;  // [rows, 4, units]; in bf16 as large as in f32
};

}  // namespace

std::unique_ptr<Kernel> make_lstm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LstmKernel<float>>(context, dynamic_cast<const Lstm&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_lstm_bf16_kernel(const Context& context, const KernelRequest& request, void* scratch) {
  const auto* const lstm = dynamic_cast<const Lstm*>(&request.definition);
  if (!lstm) return nullptr;
  return std::make_unique<RoundedKernel>(context, request, scratch,
                                         std::make_unique<LstmKernel<Bf16>>(context, *lstm, request.part));
}

}  // namespace ff::cuda
