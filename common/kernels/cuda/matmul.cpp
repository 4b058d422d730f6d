#include "common/operators/matmul.h"

#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// One matrix product a sample: a [m, k], b [k, n] or [n, k] -> [m, n].
class MatmulKernel : public Kernel {
 public:
  MatmulKernel(const Context& context, const Matmul& matmul, const Block& part)
      : context_(context), transposed_(matmul.transposed), scale_(static_cast<float>(matmul.scale)),
        samples_(part[0].size()), rows_(part[1].size()), columns_(part[2].size()), inner_(part[3].size()) {}

  void forward(const KernelArguments& arguments) override {
    const float *a = static_cast<const float*>(arguments.inputs[0]),
                *b = static_cast<const float*>(arguments.inputs[1]);
    multiply_matrices(context_, {samples_, a_size(), b_size(), c_size()}, 'N', transposed_ ? 'T' : 'N', rows_, columns_,
                      inner_, a, inner_, b, b_stride(), 0, arguments.outputs[0], columns_, scale_);
  }

  void backward(const KernelArguments& arguments) override {
    const float *a = static_cast<const float*>(arguments.inputs[0]),
                *b = static_cast<const float*>(arguments.inputs[1]);
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0])
      multiply_matrices(context_, {samples_, c_size(), b_size(), a_size()}, 'N', transposed_ ? 'N' : 'T', rows_, inner_,
                        columns_, gradient, columns_, b, b_stride(), 0, result, inner_, scale_);
    float* result = arguments.input_gradients[1];
    if (!result) return;
    if (transposed_)
      multiply_matrices(context_, {samples_, c_size(), a_size(), b_size()}, 'T', 'N', columns_, inner_, rows_, gradient,
                        columns_, a, inner_, 0, result, inner_, scale_);
    else
      multiply_matrices(context_, {samples_, a_size(), c_size(), b_size()}, 'T', 'N', inner_, columns_, rows_, a,
                        inner_, gradient, columns_, 0, result, columns_, scale_);
  }

 private:
  int64_t a_size() const { return rows_ * inner_; }
  int64_t b_size() const { return inner_ * columns_; }
  int64_t c_size() const { return rows_ * columns_; }
  int64_t b_stride() const { return transposed_ ? inner_ : columns_; }

  const Context& context_;
  bool transposed_;
  float scale_;
  int64_t samples_, rows_, columns_, inner_;
};

}  // namespace

std::unique_ptr<Kernel> make_matmul_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<MatmulKernel>(context, dynamic_cast<const Matmul&>(request.definition), request.part);
}

}  // namespace ff::cuda
