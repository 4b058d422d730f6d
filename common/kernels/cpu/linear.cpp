#include "common/operators/linear.h"

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {

// oneDNN's matmul: 11 ms where its sgemm takes 19 for [16, 9216] times [4096, 9216]^T on one core. Backward has no
// transposed operand that hurts, and sgemm is as fast there.
Primitive make_linear(const Context& context, int64_t rows, int64_t in, int64_t out, bool has_bias, bool relu) {
  using dnnl::memory;
  const memory::desc input = row_major({rows, in}), output = row_major({rows, out});
  const memory::desc weight({in, out}, memory::data_type::f32, memory::format_tag::ba);  // weight^T, as it lies
  const memory::desc bias = has_bias ? row_major({1, out}) : memory::desc();
  dnnl::primitive_attr attributes = user_scratchpad();
  if (relu) {
    dnnl::post_ops after;
    after.append_eltwise(1.0f, dnnl::algorithm::eltwise_relu, 0, 0);
    attributes.set_post_ops(after);
  }
  const dnnl::matmul::primitive_desc descriptor({input, weight, bias, output}, attributes, context.engine);
  Primitive primitive = Primitive::make<dnnl::matmul>(context, descriptor);
  primitive.add(context, DNNL_ARG_SRC, input);
  primitive.add(context, DNNL_ARG_WEIGHTS, weight);
  if (has_bias) primitive.add(context, DNNL_ARG_BIAS, bias);
  primitive.add(context, DNNL_ARG_DST, output);
  return primitive;
}

void run_linear(const Context& context, Primitive& linear, const float* input, const float* weight, const float* bias,
                float* output) {
  if (bias)
    linear.run(context,
               {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_BIAS, bias}, {DNNL_ARG_DST, output}});
  else linear.run(context, {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, output}});
}

namespace {

// input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class LinearKernel : public Kernel {
 public:
  LinearKernel(const Context& context, const Linear& linear, const Block& part)
      : context_(context), linear_(linear), bias_(linear.adds_bias(part)), in_(linear.in_channels(part).size()) {
    const Block output = linear.output_block(0, part);
    out_ = output[output.rank() - 1].size();
    rows_ = output.volume() / out_;
    if (linear.relu) masked_.resize(rows_ * out_);
    forward_ = make_linear(context, rows_, in_, out_, bias_, linear.relu);
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    run_linear(context_, forward_, static_cast<const float*>(arguments.inputs[0]), arguments.parameters[0],
               bias_ ? arguments.parameters[1] : nullptr, arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* gradient = arguments.output_gradients[0];
    if (linear_.relu) {
      mask_by_positive(arguments.outputs[0], gradient, masked_.data(), rows_ * out_);
      gradient = masked_.data();
    }
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    multiply_matrices('T', 'N', out_, in_, rows_, gradient, out_, input, in_, arguments.accumulates(0) ? 1 : 0,
                      arguments.parameter_gradients[0], in_);
    if (bias_) sum_rows(gradient, rows_, out_, arguments.parameter_gradients[1], arguments.accumulates(1));
    if (arguments.input_gradients[0])
      multiply_matrices('N', 'N', rows_, in_, out_, gradient, out_, arguments.parameters[0], in_, 0,
                        arguments.input_gradients[0], in_);
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(masked_.size() * sizeof(float)); }

 private:
  const Context& context_;
  const Linear& linear_;
  bool bias_;
  int64_t in_, out_, rows_;
  Primitive forward_;
  Vector<float> masked_;  // gradient after the relu
};

}  // namespace

std::unique_ptr<Kernel> make_linear_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LinearKernel>(context, dynamic_cast<const Linear&>(request.definition), request.part);
}

}  // namespace ff::cpu
