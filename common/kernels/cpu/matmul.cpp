#include "common/operators/matmul.h"

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// One matrix product a sample: a [m, k], b [k, n] or [n, k] -> [m, n].
class MatmulKernel : public Kernel {
 public:
  MatmulKernel(const Context& context, const Matmul& matmul, const Block& part)
      : context_(context), transposed_(matmul.transposed), scale_(static_cast<float>(matmul.scale)),
        samples_(part[0].size()), rows_(part[1].size()), columns_(part[2].size()), inner_(part[3].size()) {}

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    for (int64_t s = 0; s < samples_; ++s)
      multiply_matrices('N', transposed_ ? 'T' : 'N', rows_, columns_, inner_, a(arguments, s), inner_, b(arguments, s),
                        b_stride(), 0, arguments.outputs[0] + s * rows_ * columns_, columns_, scale_);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    for (int64_t s = 0; s < samples_; ++s) {
      const float* gradient = arguments.output_gradients[0] + s * rows_ * columns_;
      if (float* result = arguments.input_gradients[0])
        multiply_matrices('N', transposed_ ? 'N' : 'T', rows_, inner_, columns_, gradient, columns_, b(arguments, s),
                          b_stride(), 0, result + s * rows_ * inner_, inner_, scale_);
      float* result = arguments.input_gradients[1];
      if (!result) continue;
      result += s * inner_ * columns_;
      if (transposed_)
        multiply_matrices('T', 'N', columns_, inner_, rows_, gradient, columns_, a(arguments, s), inner_, 0, result,
                          inner_, scale_);
      else
        multiply_matrices('T', 'N', inner_, columns_, rows_, a(arguments, s), inner_, gradient, columns_, 0, result,
                          columns_, scale_);
    }
  }

 private:
  const float* a(const KernelArguments& arguments, int64_t sample) const {
    return static_cast<const float*>(arguments.inputs[0]) + sample * rows_ * inner_;
  }
  const float* b(const KernelArguments& arguments, int64_t sample) const {
    return static_cast<const float*>(arguments.inputs[1]) + sample * inner_ * columns_;
  }
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

}  // namespace ff::cpu
