#include "common/operators/lstm.h"

#include <cmath>
#include <cstring>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// What one row's units go through, as arrays of `units` elements: gates i, f, g, o follow one another in `gates`.

// sigmoid(x) = (1 + tanh(x / 2)) / 2, so that one tanh serves all gates: the sums of i, f and o are halved before it
// and finished after it.
FF_VECTORIZED void halve_sigmoid_gates(float* gates, int64_t units) {
  for (int64_t u = 0; u < 2 * units; ++u) gates[u] *= 0.5f;
  for (int64_t u = 3 * units; u < 4 * units; ++u) gates[u] *= 0.5f;
}

FF_VECTORIZED void next_state(float* gates, const float* c, int64_t units, float* next_c) {
  float *i = gates, *f = gates + units, *g = gates + 2 * units, *o = gates + 3 * units;
  for (int64_t u = 0; u < units; ++u) {
    i[u] = 0.5f + 0.5f * i[u];
    f[u] = 0.5f + 0.5f * f[u];
    o[u] = 0.5f + 0.5f * o[u];
    next_c[u] = i[u] * g[u];
  }
  if (!c) return;
  for (int64_t u = 0; u < units; ++u) next_c[u] += f[u] * c[u];
}

// `c`, `dh` and `dc` are zeros where there are none. No two pointers that are written through meet another: with so
// many that could, the compiler leaves the loop scalar, three times slower.
FF_VECTORIZED void state_gradients(const float* __restrict gates, const float* __restrict c,
                                   const float* __restrict tanh_c, const float* __restrict dh,
                                   const float* __restrict dc, int64_t units, float* __restrict gate_gradients,
                                   float* __restrict c_gradient) {
  const float *i = gates, *f = gates + units, *g = gates + 2 * units, *o = gates + 3 * units;
  float *di = gate_gradients, *df = gate_gradients + units, *dg = gate_gradients + 2 * units,
        *output_gradients = gate_gradients + 3 * units;
  for (int64_t u = 0; u < units; ++u) {
    const float total = dc[u] + dh[u] * o[u] * (1.0f - tanh_c[u] * tanh_c[u]);
    di[u] = total * g[u] * i[u] * (1.0f - i[u]);
    df[u] = total * c[u] * f[u] * (1.0f - f[u]);
    dg[u] = total * i[u] * (1.0f - g[u] * g[u]);
    output_gradients[u] = dh[u] * tanh_c[u] * o[u] * (1.0f - o[u]);
    c_gradient[u] = total * f[u];
  }
}

// x [rows, in], h, c [rows, hidden or units] -> h', c' [rows, units]. oneDNN's LSTM works on whole sequences and whole
// hidden states; one step on some of the units is matrix products and elementwise functions.
class LstmKernel : public Kernel {
 public:
  LstmKernel(const Context& context, const Lstm& lstm, const Block& part)
      : context_(context), first_(lstm.first_step()), rows_(part[0].size()), units_(part[1].size()),
        in_(lstm.in_features), hidden_(lstm.hidden), gates_(static_cast<size_t>(rows_ * units_ * 4)),
        tanh_c_(static_cast<size_t>(rows_ * units_)), gate_gradients_(gates_.size()),
        zeros_(static_cast<size_t>(units_)), unused_(zeros_.size()) {
    input_product_ = product(in_, gates_size(), /*add=*/false);
    if (!first_) recurrent_product_ = product(hidden_, gates_size(), /*add=*/true);
    tanh_gates_ = make_tanh(context, rows_, gates_size());
    tanh_state_ = make_tanh(context, rows_, units_);
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    float* gates = gates_.data();
    input_product_.run(context_, {{DNNL_ARG_SRC, arguments.inputs[0]},
                                  {DNNL_ARG_WEIGHTS, arguments.parameters[0]},
                                  {DNNL_ARG_BIAS, arguments.parameters[2]},
                                  {DNNL_ARG_DST, gates}});
    const float* c = nullptr;
    if (!first_) {
      recurrent_product_.run(
          context_,
          {{DNNL_ARG_SRC, arguments.inputs[1]}, {DNNL_ARG_WEIGHTS, arguments.parameters[1]}, {DNNL_ARG_DST, gates}});
      c = static_cast<const float*>(arguments.inputs[2]);
    }
    for (int64_t row = 0; row < rows_; ++row) halve_sigmoid_gates(gates + row * 4 * units_, units_);
    tanh_gates_.run(context_, {{DNNL_ARG_SRC, gates}, {DNNL_ARG_DST, gates}});
    float* next_c = arguments.outputs[1];
    for (int64_t row = 0; row < rows_; ++row)
      next_state(gates + row * 4 * units_, c ? c + row * units_ : nullptr, units_, next_c + row * units_);
    tanh_state_.run(context_, {{DNNL_ARG_SRC, next_c}, {DNNL_ARG_DST, tanh_c_.data()}});
    for (int64_t row = 0; row < rows_; ++row)
      multiply(gates + (row * 4 + 3) * units_, tanh_c_.data() + row * units_, arguments.outputs[0] + row * units_,
               units_);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float *dh = arguments.output_gradients[0], *dc = arguments.output_gradients[1];  // null where nothing came
    const float* c = first_ ? nullptr : static_cast<const float*>(arguments.inputs[2]);
    float* c_gradient = first_ ? nullptr : arguments.input_gradients[2];
    const auto row_of = [&](const float* matrix, int64_t row) {
      return matrix ? matrix + row * units_ : zeros_.data();
    };
    for (int64_t row = 0; row < rows_; ++row)
      state_gradients(gates_.data() + row * 4 * units_, row_of(c, row), tanh_c_.data() + row * units_, row_of(dh, row),
                      row_of(dc, row), units_, gate_gradients_.data() + row * 4 * units_,
                      c_gradient ? c_gradient + row * units_ : unused_.data());
    const float* gradients = gate_gradients_.data();  // [rows, 4 units]
    const int64_t gates = gates_size();
    const auto product_gradients = [&](const float* input, int64_t size, const float* weight, float* weight_gradient,
                                       bool accumulate, float* input_gradient) {
      multiply_matrices('T', 'N', gates, size, rows_, gradients, gates, input, size, accumulate ? 1 : 0,
                        weight_gradient, size);
      if (input_gradient)
        multiply_matrices('N', 'N', rows_, size, gates, gradients, gates, weight, size, 0, input_gradient, size);
    };
    product_gradients(static_cast<const float*>(arguments.inputs[0]), in_, arguments.parameters[0],
                      arguments.parameter_gradients[0], arguments.accumulates(0), arguments.input_gradients[0]);
    sum_rows(gradients, rows_, gates, arguments.parameter_gradients[2], arguments.accumulates(2));
    if (first_ && arguments.accumulates(1)) return;
    if (first_) std::memset(arguments.parameter_gradients[1], 0, static_cast<size_t>(gates * hidden_) * sizeof(float));
    else
      product_gradients(static_cast<const float*>(arguments.inputs[1]), hidden_, arguments.parameters[1],
                        arguments.parameter_gradients[1], arguments.accumulates(1), arguments.input_gradients[1]);
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((gates_.size() + tanh_c_.size() + gate_gradients_.size()) * sizeof(float));
  }

 private:
  int64_t gates_size() const { return 4 * units_; }

  // gates [rows, 4 units] = (gates +) input [rows, size] weight^T (+ bias); weight [4 units, size] as it lies.
  Primitive product(int64_t size, int64_t gates, bool add) const {
    using dnnl::memory;
    const memory::desc input = row_major({rows_, size}), output = row_major({rows_, gates});
    const memory::desc weight({size, gates}, memory::data_type::f32, memory::format_tag::ba);
    const memory::desc bias = add ? memory::desc() : row_major({1, gates});
    dnnl::primitive_attr attributes = user_scratchpad();
    if (add) {
      dnnl::post_ops before;
      before.append_sum(1.0f);
      attributes.set_post_ops(before);
    }
    const dnnl::matmul::primitive_desc descriptor({input, weight, bias, output}, attributes, context_.engine);
    Primitive primitive = Primitive::make<dnnl::matmul>(context_, descriptor);
    primitive.add(context_, DNNL_ARG_SRC, input);
    primitive.add(context_, DNNL_ARG_WEIGHTS, weight);
    if (!add) primitive.add(context_, DNNL_ARG_BIAS, bias);
    primitive.add(context_, DNNL_ARG_DST, output);
    return primitive;
  }

  const Context& context_;
  bool first_;
  int64_t rows_, units_, in_, hidden_;
  Primitive input_product_, recurrent_product_, tanh_gates_, tanh_state_;
  Vector<float> gates_, tanh_c_;  // kept for backward: [rows, 4, units], [rows, units]
  Vector<float> gate_gradients_;  // [rows, 4, units]
  Vector<float> zeros_, unused_;  // [units]: of states that are not there, and for gradients that nobody wants
};

}  // namespace

std::unique_ptr<Kernel> make_lstm_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LstmKernel>(context, dynamic_cast<const Lstm&>(request.definition), request.part);
}

}  // namespace ff::cpu
