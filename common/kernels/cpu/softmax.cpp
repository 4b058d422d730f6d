#include "common/operators/softmax.h"

#include <algorithm>
#include <cmath>

#include "common/errors.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
Primitive make_softmax(const Context& context, int64_t rows, int64_t classes) {
  const dnnl::memory::desc data = row_major({rows, classes});
  const dnnl::softmax_forward::primitive_desc descriptor({dnnl::prop_kind::forward_training, data, 1},
                                                         user_scratchpad(), context.engine);
  Primitive primitive = Primitive::make<dnnl::softmax_forward>(context, descriptor);
  primitive.add(context, DNNL_ARG_SRC, data);
  primitive.add(context, DNNL_ARG_DST, data);
  return primitive;
}

FF_VECTORIZED void softmax_gradient(const float* output, const float* gradient, int64_t rows, int64_t classes,
                                    float* result) {
  for (int64_t row = 0; row < rows; ++row, output += classes, gradient += classes, result += classes) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < classes; ++c) sum += output[c] * gradient[c];
    for (int64_t c = 0; c < classes; ++c) result[c] = output[c] * (gradient[c] - sum);
  }
}

namespace {

// The first of the largest values. Whole blocks are compared first, as vectors; a branch on each value would hardly
// ever be foreseen right.
FF_VECTORIZED int64_t index_of_largest(const float* values, int64_t count) {
  constexpr int64_t block = 64;
  float largest = values[0];
  int64_t begin = 0;
  for (int64_t first = 0; first < count; first += block) {
    const int64_t end = std::min(first + block, count);
    float largest_here = values[first];
#pragma omp simd reduction(max : largest_here)
    for (int64_t i = first; i < end; ++i) largest_here = values[i] > largest_here ? values[i] : largest_here;
    if (largest_here > largest) largest = largest_here, begin = first;
  }
  for (int64_t i = begin; i < std::min(begin + block, count); ++i)
    if (values[i] == largest) return i;
  return 0;
}

class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(const Context& context, const Softmax& softmax, const Block& part)
      : context_(context), rows_(part.volume()), classes_(softmax.classes),
        softmax_(make_softmax(context, rows_, classes_)) {}

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    softmax_.run(context_, {{DNNL_ARG_SRC, arguments.inputs[0]}, {DNNL_ARG_DST, arguments.outputs[0]}});
  }

  // d input = output * (d output - sum over classes of output * d output)
  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    softmax_gradient(arguments.outputs[0], arguments.output_gradients[0], rows_, classes_, result);
  }

 private:
  const Context& context_;
  int64_t rows_, classes_;
  Primitive softmax_;
};

class SoftmaxCrossEntropyKernel : public Kernel {
 public:
  SoftmaxCrossEntropyKernel(const Context& context, const SoftmaxCrossEntropy& loss, const KernelRequest& request)
      : context_(context), name_(request.operator_name), rows_(request.part.volume()), classes_(loss.classes),
        scale_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)))),
        softmax_(make_softmax(context, rows_, classes_)), probabilities_(static_cast<size_t>(rows_ * classes_)) {}

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    const int32_t* labels = static_cast<const int32_t*>(arguments.inputs[1]);
    softmax_.run(context_, {{DNNL_ARG_SRC, logits}, {DNNL_ARG_DST, probabilities_.data()}});
    for (int64_t row = 0; row < rows_; ++row) {
      const float* logit = logits + row * classes_;
      const int32_t label = checked(labels[row]);
      const int64_t largest = index_of_largest(logit, classes_);
      // -log softmax(label), by the probability of the largest logit, which is at least 1 / classes and so never 0.
      arguments.outputs[0][row] = logit[largest] - logit[label] - std::log(probabilities_[row * classes_ + largest]);
      arguments.outputs[1][row] = largest == label ? 1.0f : 0.0f;
    }
  }

  void backward(const KernelArguments& arguments) override {  // (softmax - one-hot) * weight / number of losses
    float* result = arguments.input_gradients[0];
    if (!result) return;
    const int32_t* labels = static_cast<const int32_t*>(arguments.inputs[1]);
    for (int64_t row = 0; row < rows_; ++row) {
      const float* probability = probabilities_.data() + row * classes_;
      float* gradient = result + row * classes_;
      for (int64_t c = 0; c < classes_; ++c) gradient[c] = probability[c] * scale_;
      gradient[checked(labels[row])] -= scale_;
    }
  }

  int64_t workspace_bytes() const override { return static_cast<int64_t>(probabilities_.size() * sizeof(float)); }

 private:
  int32_t checked(int32_t label) const {
    if (label < 0 || label >= classes_)
      throw InputError(name_ + ": found the label " + std::to_string(label) + ", expected one from 0 to " +
                       std::to_string(classes_ - 1));
    return label;
  }

  const Context& context_;
  std::string name_;
  int64_t rows_, classes_;
  float scale_;
  Primitive softmax_;
  Vector<float> probabilities_;  // [rows, classes], kept for backward
};

}  // namespace

std::unique_ptr<Kernel> make_softmax_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxKernel>(context, dynamic_cast<const Softmax&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_softmax_cross_entropy_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxCrossEntropyKernel>(
      context, dynamic_cast<const SoftmaxCrossEntropy&>(request.definition), request);
}

}  // namespace ff::cpu
