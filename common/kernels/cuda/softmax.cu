#include "common/operators/softmax.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {

void softmax(const Context& context, const float* input, int64_t rows, int64_t classes, float* output, int64_t causal) {
  for_each_row(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float* x = input + row * classes;
    float* y = output + row * classes;
    const int64_t seen = causal > 0 && row % causal + 1 < classes ? row % causal + 1 : classes;
    float largest = -FLT_MAX;
    for (int64_t c = Row::thread(); c < seen; c += Row::threads) largest = fmaxf(largest, x[c]);
    largest = Row::max(largest);
    float sum = 0;
    for (int64_t c = Row::thread(); c < seen; c += Row::threads) sum += expf(x[c] - largest);
    const float factor = 1.0f / Row::sum(sum);
    for (int64_t c = Row::thread(); c < classes; c += Row::threads)
      y[c] = c < seen ? expf(x[c] - largest) * factor : 0.0f;
  });
}

void softmax_gradient(const Context& context, const float* output, const float* gradient, int64_t rows, int64_t classes,
                      float* result) {
  for_each_row(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const int64_t at = row * classes;
    float sum = 0;
    for (int64_t c = Row::thread(); c < classes; c += Row::threads) sum += output[at + c] * gradient[at + c];
    sum = Row::sum(sum);
    for (int64_t c = Row::thread(); c < classes; c += Row::threads)
      result[at + c] = output[at + c] * (gradient[at + c] - sum);
  });
}

namespace {

class SoftmaxKernel : public Kernel {
 public:
  SoftmaxKernel(const Context& context, const Softmax& definition, const Block& part)
      : context_(context), rows_(part.volume()), classes_(definition.classes) {}

  void forward(const KernelArguments& arguments) override {
    softmax(context_, static_cast<const float*>(arguments.inputs[0]), rows_, classes_, arguments.outputs[0]);
  }
  void backward(const KernelArguments& arguments) override {
    if (arguments.input_gradients[0])
      softmax_gradient(context_, arguments.outputs[0], arguments.output_gradients[0], rows_, classes_,
                       arguments.input_gradients[0]);
  }

 private:
  const Context& context_;
  int64_t rows_, classes_;
};

// Of every row: the probabilities, -log of the label's, and whether the label has the largest logit (the first one, of
// equals).
void losses_of_rows(const Context& context, const float* logits, const int32_t* labels, int64_t rows, int64_t classes,
                    int number, float* probabilities, float* losses, float* correct) {
  Fault* fault = context.fault();
  for_each_row(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float* x = logits + row * classes;
    float largest = -FLT_MAX;
    for (int64_t c = Row::thread(); c < classes; c += Row::threads) largest = fmaxf(largest, x[c]);
    largest = Row::max(largest);
    const bool labelled = labels[row] >= 0 && labels[row] < classes;
    const int64_t label = labelled ? labels[row] : 0;
    float sum = 0, earlier_equals = 0;
    for (int64_t c = Row::thread(); c < classes; c += Row::threads) {
      sum += expf(x[c] - largest);
      earlier_equals += x[c] == largest && c < label ? 1.0f : 0.0f;
    }
    sum = Row::sum(sum);
    earlier_equals = Row::sum(earlier_equals);
    const float factor = 1.0f / sum;
    for (int64_t c = Row::thread(); c < classes; c += Row::threads)
      probabilities[row * classes + c] = expf(x[c] - largest) * factor;
    if (Row::thread() != 0) return;
    if (!in_range(labels[row], classes, number, fault)) return;
    losses[row] = largest - x[label] + logf(sum);
    correct[row] = x[label] == largest && earlier_equals == 0 ? 1.0f : 0.0f;
  });
}

void loss_gradients(const Context& context, const float* probabilities, const int32_t* labels, int64_t rows,
                    int64_t classes, float scale, float* result) {
  for_each_row(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const int32_t label = labels[row];
    for (int64_t c = Row::thread(); c < classes; c += Row::threads)
      result[row * classes + c] = (probabilities[row * classes + c] - (c == label ? 1.0f : 0.0f)) * scale;
  });
}

class SoftmaxCrossEntropyKernel : public Kernel {
 public:
  SoftmaxCrossEntropyKernel(const Context& context, const SoftmaxCrossEntropy& loss, const KernelRequest& request)
      : context_(context), number_(context.fault_number(request.operator_name, "label")), rows_(request.part.volume()),
        classes_(loss.classes),
        scale_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)))),
        probabilities_(context, rows_ * classes_) {}

  void forward(const KernelArguments& arguments) override {
    losses_of_rows(context_, static_cast<const float*>(arguments.inputs[0]),
                   static_cast<const int32_t*>(arguments.inputs[1]), rows_, classes_, number_, probabilities_.data(),
                   arguments.outputs[0], arguments.outputs[1]);
  }
  void backward(const KernelArguments& arguments) override {  // (softmax - one-hot) * weight / number of losses
    if (arguments.input_gradients[0])
      loss_gradients(context_, probabilities_.data(), static_cast<const int32_t*>(arguments.inputs[1]), rows_, classes_,
                     scale_, arguments.input_gradients[0]);
  }
  int64_t workspace_bytes() const override { return probabilities_.bytes(); }

 private:
  const Context& context_;
  int number_;
  int64_t rows_, classes_;
  float scale_;
  Memory<float> probabilities_;  // [rows, classes], kept for backward
};

}  // namespace

std::unique_ptr<Kernel> make_softmax_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxKernel>(context, dynamic_cast<const Softmax&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_softmax_cross_entropy_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxCrossEntropyKernel>(
      context, dynamic_cast<const SoftmaxCrossEntropy&>(request.definition), request);
}

}  // namespace ff::cuda
