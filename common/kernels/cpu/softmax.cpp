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

// The labels of a part's rows, and how much a row counts.
class RowLabels {
 public:
  RowLabels(const SoftmaxCrossEntropy& loss, const KernelRequest& request)
      : loss_(loss), name_(request.operator_name), classes_(loss.classes), places_(loss, request.part),
        scale_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)))) {}

  void set_part(const Block& part) { places_ = LabelPlaces(loss_, part); }
  void read(const KernelArguments& arguments) {
    labels_ = static_cast<const int32_t*>(arguments.inputs[1]);
    if (!places_.counts) return;
    int64_t counted = 0;
    for (int64_t i = 0; i < places_.all; ++i) counted += places_.is_ignored(labels_[i]) ? 0 : 1;
    factor_ = counted > 0 ? static_cast<float>(static_cast<double>(places_.all) / static_cast<double>(counted)) : 0.0f;
  }
  bool counts(int64_t row) const { return !places_.is_ignored(labels_[places_.of(row)]); }
  int32_t of(int64_t row) const {  // that counts
    const int32_t label = labels_[places_.of(row)];
    if (label < 0 || label >= classes_)
      throw InputError(name_ + ": found the label " + std::to_string(label) + ", expected one from 0 to " +
                       std::to_string(classes_ - 1));
    return label;
  }
  float factor() const { return factor_; }          // of losses of rows that count
  float scale() const { return scale_ * factor_; }  // of the training loss by the loss of such a row
  int64_t bytes() const { return places_.counts ? element_bytes : 0; }

 private:
  const SoftmaxCrossEntropy& loss_;
  std::string name_;
  int64_t classes_;
  LabelPlaces places_;
  float scale_, factor_ = 1;
  const int32_t* labels_ = nullptr;
};

class SoftmaxCrossEntropyKernel : public Kernel {
 public:
  SoftmaxCrossEntropyKernel(const Context& context, const SoftmaxCrossEntropy& loss, const KernelRequest& request)
      : context_(context), labels_(loss, request), rows_(SoftmaxCrossEntropy::rows(request.part).volume()),
        classes_(loss.classes), softmax_(make_softmax(context, rows_, classes_)),
        probabilities_(static_cast<size_t>(rows_ * classes_)) {}

  void set_part(const Block& part, const std::string&) override { labels_.set_part(part); }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    labels_.read(arguments);
    softmax_.run(context_, {{DNNL_ARG_SRC, logits}, {DNNL_ARG_DST, probabilities_.data()}});
    for (int64_t row = 0; row < rows_; ++row) {
      arguments.outputs[0][row] = arguments.outputs[1][row] = 0;
      if (!labels_.counts(row)) continue;
      const float* logit = logits + row * classes_;
      const int32_t label = labels_.of(row);
      const int64_t largest = index_of_largest(logit, classes_);
      // -log softmax(label), by the probability of the largest logit, which is at least 1 / classes and so never 0.
      const float loss = logit[largest] - logit[label] - std::log(probabilities_[row * classes_ + largest]);
      arguments.outputs[0][row] = labels_.factor() * loss;
      arguments.outputs[1][row] = largest == label ? labels_.factor() : 0.0f;
    }
  }

  void backward(const KernelArguments& arguments) override {  // (softmax - one-hot) * weight / number of losses
    float* result = arguments.input_gradients[0];
    if (!result) return;
    labels_.read(arguments);
    for (int64_t row = 0; row < rows_; ++row) {
      const float* probability = probabilities_.data() + row * classes_;
      float* gradient = result + row * classes_;
      const float scale = labels_.counts(row) ? labels_.scale() : 0.0f;
      for (int64_t c = 0; c < classes_; ++c) gradient[c] = probability[c] * scale;
      if (labels_.counts(row)) gradient[labels_.of(row)] -= scale;
    }
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>(probabilities_.size() * sizeof(float)) + labels_.bytes();
  }

 private:
  const Context& context_;
  RowLabels labels_;
  int64_t rows_, classes_;
  Primitive softmax_;
  Vector<float> probabilities_;  // [rows, classes], kept for backward
};

// Some of the classes. The statistics task leaves the softmax over these, and what of it the sum over all classes
// changes: with the largest logit m and the sum s of exp(logit - m) here, and M and S of all, the probabilities are
// those of the own softmax times s exp(m - M) / S.
class PartialCrossEntropyKernel : public Kernel {
 public:
  PartialCrossEntropyKernel(const Context& context, const SoftmaxCrossEntropy& loss, const KernelRequest& request)
      : context_(context), labels_(loss, request), rows_(SoftmaxCrossEntropy::rows(request.part).volume()),
        own_(SoftmaxCrossEntropy::own_classes(request.part)), softmax_(make_softmax(context, rows_, own_.size())),
        probabilities_(static_cast<size_t>(rows_ * own_.size())), largest_(static_cast<size_t>(rows_)),
        sums_(static_cast<size_t>(rows_)) {}

  void set_part(const Block& part, const std::string&) override { labels_.set_part(part); }

  void forward_statistics(const KernelArguments& arguments) override {
    context_.use_threads();
    const float* logits = static_cast<const float*>(arguments.inputs[0]);
    labels_.read(arguments);
    softmax_.run(context_, {{DNNL_ARG_SRC, logits}, {DNNL_ARG_DST, probabilities_.data()}});
    for (int64_t row = 0; row < rows_; ++row) {
      const float* logit = logits + row * own_.size();
      const int64_t label = labels_.counts(row) ? labels_.of(row) - own_.begin : -1;
      const bool has_label = label >= 0 && label < own_.size();
      const int64_t largest = index_of_largest(logit, own_.size());
      largest_[row] = logit[largest];
      sums_[row] = 1 / probabilities_[row * own_.size() + largest];  // of which the largest logit's summand is 1
      const auto put = [&](CrossEntropyStatistics which, float value) {
        arguments.statistics[static_cast<int64_t>(which) * rows_ + row] = value;
      };
      put(CrossEntropyStatistics::largest, largest_[row]);
      put(CrossEntropyStatistics::sum, sums_[row]);
      put(CrossEntropyStatistics::label_logit, has_label ? logit[label] : 0.0f);
      put(CrossEntropyStatistics::label_rank, !has_label ? 0.0f : label == largest ? 2.0f : 1.0f);
    }
  }

  void forward(const KernelArguments& arguments) override {
    labels_.read(arguments);
    for (int64_t row = 0; row < rows_; ++row) {
      const auto of = [&](CrossEntropyStatistics which, int slot) {
        return arguments.statistics[(slot * cross_entropy_statistics + static_cast<int64_t>(which)) * rows_ + row];
      };
      int first = 0;  // slot with the largest logit
      for (int slot = 1; slot < arguments.statistics_slots; ++slot)
        if (of(CrossEntropyStatistics::largest, slot) > of(CrossEntropyStatistics::largest, first)) first = slot;
      const float largest = of(CrossEntropyStatistics::largest, first);
      float sum = 0, label = 0;
      for (int slot = 0; slot < arguments.statistics_slots; ++slot) {
        sum += of(CrossEntropyStatistics::sum, slot) * std::exp(of(CrossEntropyStatistics::largest, slot) - largest);
        label += of(CrossEntropyStatistics::label_logit, slot);
      }
      const float factor = sums_[row] * std::exp(largest_[row] - largest) / sum;
      float* probability = probabilities_.data() + row * own_.size();
      for (int64_t c = 0; c < own_.size(); ++c) probability[c] *= factor;
      if (own_.begin > 0) continue;
      const float row_factor = labels_.counts(row) ? labels_.factor() : 0.0f;
      arguments.outputs[0][row] = row_factor * (largest - label + std::log(sum));
      arguments.outputs[1][row] = of(CrossEntropyStatistics::label_rank, first) == 2 ? row_factor : 0.0f;
    }
  }

  void backward(const KernelArguments& arguments) override {
    float* result = arguments.input_gradients[0];
    if (!result) return;
    labels_.read(arguments);
    for (int64_t row = 0; row < rows_; ++row) {
      const float* probability = probabilities_.data() + row * own_.size();
      float* gradient = result + row * own_.size();
      const float scale = labels_.counts(row) ? labels_.scale() : 0.0f;
      for (int64_t c = 0; c < own_.size(); ++c) gradient[c] = probability[c] * scale;
      const int64_t label = labels_.counts(row) ? labels_.of(row) - own_.begin : -1;
      if (label >= 0 && label < own_.size()) gradient[label] -= scale;
    }
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((probabilities_.size() + largest_.size() + sums_.size()) * sizeof(float)) +
           labels_.bytes();
  }

 private:
  const Context& context_;
  RowLabels labels_;
  int64_t rows_;
  Interval own_;
  Primitive softmax_;
  Vector<float> probabilities_;  // [rows, own classes], kept for backward
  Vector<float> largest_, sums_;
};

}  // namespace

std::unique_ptr<Kernel> make_softmax_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxKernel>(context, dynamic_cast<const Softmax&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_softmax_cross_entropy_kernel(const Context& context, const KernelRequest& request) {
  const auto& loss = dynamic_cast<const SoftmaxCrossEntropy&>(request.definition);
  if (loss.splits_classes(request.part)) return std::make_unique<PartialCrossEntropyKernel>(context, loss, request);
  return std::make_unique<SoftmaxCrossEntropyKernel>(context, loss, request);
}

}  // namespace ff::cpu
