#include "common/operators/linear.h"

#include "common/errors.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// c [m, n] = op(a) op(b), row-major.
void multiply(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, const float* a, int64_t a_stride, const float* b,
              int64_t b_stride, float beta, float* c) {
  const dnnl_status_t status = dnnl_sgemm(transpose_a, transpose_b, m, n, k, 1.0f, a, a_stride, b, b_stride, beta, c, n);
  if (status != dnnl_success) throw MachineError("oneDNN: sgemm failed with status " + std::to_string(status));
}

// input [rows, in], weight [out, in], bias [out] -> output [rows, out].
class LinearKernel : public Kernel {
 public:
  LinearKernel(const Context& context, const Linear& linear, const Block& part) : context_(context), linear_(linear) {
    rows_ = 1;
    for (int axis = 0; axis + 1 < part.rank(); ++axis) rows_ *= part[axis].size();
    in_ = linear.in_features;
    out_ = part[part.rank() - 1].size();
    if (linear.relu) masked_.resize(static_cast<size_t>(rows_ * out_));
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    float* output = arguments.outputs[0];
    if (linear_.bias) fill_rows(arguments.parameters[1], output, rows_, out_);
    multiply('N', 'T', rows_, out_, in_, input, in_, arguments.parameters[0], in_, linear_.bias ? 1.0f : 0.0f, output);
    if (linear_.relu) mask_by_positive(output, output, output, rows_ * out_);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* gradient = arguments.output_gradients[0];
    if (linear_.relu) {
      mask_by_positive(arguments.outputs[0], gradient, masked_.data(), rows_ * out_);
      gradient = masked_.data();
    }
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    multiply('T', 'N', out_, in_, rows_, gradient, out_, input, in_, 0.0f, arguments.parameter_gradients[0]);
    if (linear_.bias) sum_rows(gradient, rows_, out_, arguments.parameter_gradients[1]);
    if (arguments.input_gradients[0]) multiply('N', 'N', rows_, in_, out_, gradient, out_, arguments.parameters[0], in_, 0.0f, arguments.input_gradients[0]);
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(masked_.size() * sizeof(float)); }

 private:
  static void fill_rows(const float* row, float* matrix, int64_t rows, int64_t columns) {
    for (int64_t r = 0; r < rows; ++r) std::copy(row, row + columns, matrix + r * columns);
  }

  const Context& context_;
  const Linear& linear_;
  int64_t rows_, in_, out_;
  std::vector<float> masked_;  // gradient behind the relu
};

}  // namespace

std::unique_ptr<Kernel> make_linear_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<LinearKernel>(context, dynamic_cast<const Linear&>(request.definition), request.part);
}

}  // namespace ff::cpu
