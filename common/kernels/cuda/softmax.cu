#include "common/operators/softmax.h"

#include "common/kernels/cuda/bf16_kernel.h"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
namespace {

// Of some numbers of a row the largest, the first place of that one, and the sum of exp(number - largest), corrected
// whenever a larger one comes (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax", arXiv
// 1805.02867): one pass over a row that may be longer than the cache.
struct Exponentials {
  float largest = -FLT_MAX, sum = 0;
  int64_t first = 0;

  template <int n>
  __device__ void add(const Pack<float, n>& numbers, int64_t place) {
    float most = numbers.of[0];
#pragma unroll
    for (int j = 1; j < n; ++j) most = fmaxf(most, numbers.of[j]);
    if (most >= largest) {
      int64_t first_here = place;
#pragma unroll
      for (int j = n - 1; j >= 0; --j)
        if (numbers.of[j] == most) first_here = place + j;
      first = most > largest || first_here < first ? first_here : first;  // places do not come in their order
      sum *= expf(largest - most);
      largest = most;
    }
#pragma unroll
    for (int j = 0; j < n; ++j) sum += expf(numbers.of[j] - largest);
  }
  // Of the whole row, for all of its threads.
  template <class Row>
  __device__ float row_sum(float row_largest) const {
    return Row::sum(sum * expf(largest - row_largest));
  }
};

template <class Data>
__device__ Exponentials own_exponentials(const Data& logits) {
  Exponentials own;
  logits.each([&](int64_t c, const auto& x) { own.add(x[0], c); });
  return own;
}
}  // namespace

void softmax(const Context& context, const float* input, int64_t rows, int64_t classes, float* output) {
  for_each_row_of_packs<true>(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float* x = input + row * classes;
    float* y = output + row * classes;
    const RowPacks packs(classes, x, y);
    const RowOf<Row, 1, float> numbers(packs, {x});
    const Exponentials own = own_exponentials(numbers);
    const float largest = Row::max(own.largest), factor = 1.0f / own.template row_sum<Row>(largest);
    map_row(packs, numbers, y, [&](int64_t, float number) { return expf(number - largest) * factor; });
  });
}

void softmax_gradient(const Context& context, const float* output, const float* gradient, int64_t rows, int64_t classes,
                      float* result) {
  for_each_row_of_packs(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float *y = output + row * classes, *g = gradient + row * classes;
    float* x = result + row * classes;
    const RowPacks packs(classes, y, g, x);
    const RowOf<Row, 2, float> both(packs, {y, g});
    float sum = 0;
    both.each([&](int64_t, const auto& of) {
#pragma unroll
      for (int j = 0; j < of[0].size; ++j) sum += of[0].of[j] * of[1].of[j];
    });
    sum = Row::sum(sum);
    map_row(packs, both, x, [&](int64_t, float p, float slope) { return p * (slope - sum); });
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

// The labels of a part's rows, and by what the rows that count are multiplied: where it is null, by 1.
struct RowLabels {
  const int32_t* labels;
  LabelPlaces places;
  const float* factor;

  __device__ int32_t of(int64_t row) const { return labels[places.of(row)]; }
  __device__ bool counts(int64_t row) const { return !places.is_ignored(of(row)); }
  __device__ float factor_of(int64_t row) const { return !counts(row) ? 0.0f : factor ? *factor : 1.0f; }
};

// All rows by those that count, 0 if none does.
void count_rows(const Context& context, const int32_t* labels, const LabelPlaces& places, float* factor) {
  for_each_row(context, 1, places.all, [=] __device__(auto row_threads, int64_t) {
    using Row = decltype(row_threads);
    float counted = 0;  // whole numbers up to 2^24 in each thread
    for (int64_t i = Row::thread(); i < places.all; i += Row::threads)
      counted += places.is_ignored(labels[i]) ? 0.0f : 1.0f;
    counted = Row::sum(counted);
    if (Row::thread() == 0) *factor = counted > 0 ? static_cast<float>(places.all) / counted : 0.0f;
  });
}

// Of every row: the probabilities, -log of the label's, and whether the label has the largest logit (the first one, of
// equals).
template <class Element>
void losses_of_rows(const Context& context, const Element* logits, const RowLabels& labels, int64_t rows,
                    int64_t classes, int number, float* probabilities, float* losses, float* correct) {
  Fault* fault = context.fault();
  for_each_row_of_packs<true>(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const Element* x = logits + row * classes;
    float* own_probabilities = probabilities + row * classes;
    const RowPacks packs(classes, x, own_probabilities);
    const RowOf<Row, 1, Element> row_logits(packs, {x});
    const Exponentials own = own_exponentials(row_logits);
    const float largest = Row::max(own.largest);
    const bool labelled = labels.of(row) >= 0 && labels.of(row) < classes;
    const int64_t label = labelled ? labels.of(row) : 0;
    const float sum = own.template row_sum<Row>(largest);
    const float earlier_equal = Row::max(own.largest == largest && own.first < label ? 1.0f : 0.0f);
    const float factor = 1.0f / sum;
    map_row(packs, row_logits, own_probabilities, [&](int64_t, float logit) { return expf(logit - largest) * factor; });
    if (Row::thread() != 0) return;
    if (labels.counts(row) && !in_range(labels.of(row), classes, number, fault)) return;
    const float row_factor = labels.factor_of(row);
    losses[row] = labels.counts(row) ? row_factor * (largest - value_of(x[label]) + logf(sum)) : 0.0f;
    correct[row] = value_of(x[label]) == largest && earlier_equal == 0 ? row_factor : 0.0f;
  });
}

// Of every row the statistics of its logits of these classes, exp(logit - largest), and the largest.
template <class Element>
void statistics_of_rows(const Context& context, const Element* logits, const RowLabels& labels, int64_t rows,
                        Interval own, int64_t classes, int number, float* exponentials, float* largest_logits,
                        float* statistics) {
  Fault* fault = context.fault();
  const int64_t count = own.size();
  for_each_row_of_packs<true>(context, rows, count, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const Element* x = logits + row * count;
    float* own_exponentials_of_row = exponentials + row * count;
    const RowPacks packs(count, x, own_exponentials_of_row);
    const RowOf<Row, 1, Element> row_logits(packs, {x});
    float largest = -FLT_MAX;
    row_logits.each([&](int64_t, const auto& of) {
#pragma unroll
      for (int j = 0; j < of[0].size; ++j) largest = fmaxf(largest, of[0].of[j]);
    });
    largest = Row::max(largest);
    const int64_t label = labels.of(row) - own.begin;
    const bool has_label = labels.counts(row) && label >= 0 && label < count;
    float sum = 0, earlier_equals = 0;
    map_row(packs, row_logits, own_exponentials_of_row, [&](int64_t c, float logit) {
      const float exponential = expf(logit - largest);
      sum += exponential;
      earlier_equals += logit == largest && c < label ? 1.0f : 0.0f;
      return exponential;
    });
    sum = Row::sum(sum);
    earlier_equals = Row::sum(earlier_equals);
    if (Row::thread() != 0) return;
    if (labels.counts(row)) in_range(labels.of(row), classes, number, fault);
    largest_logits[row] = largest;
    const auto put = [&](CrossEntropyStatistics which, float value) {
      statistics[static_cast<int64_t>(which) * rows + row] = value;
    };
    const bool is_largest = has_label && value_of(x[label]) == largest && earlier_equals == 0;
    put(CrossEntropyStatistics::largest, largest);
    put(CrossEntropyStatistics::sum, sum);
    put(CrossEntropyStatistics::label_logit, has_label ? value_of(x[label]) : 0.0f);
    put(CrossEntropyStatistics::label_rank, is_largest ? 2.0f : has_label ? 1.0f : 0.0f);
  });
}

// From the statistics of all classes, [slots, statistics, rows]: the own probabilities, where their exponentials were;
// and, where they are asked for, losses and whether the label has the largest logit.
void losses_from_statistics(const Context& context, const float* statistics, int slots, const RowLabels& labels,
                            int64_t rows, int64_t count, const float* largest_logits, float* probabilities,
                            float* losses, float* correct) {
  for_each_row_of_packs(context, rows, count, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const auto of = [&](CrossEntropyStatistics which, int slot) {
      return statistics[(slot * cross_entropy_statistics + static_cast<int64_t>(which)) * rows + row];
    };
    int first = 0;  // slot with the largest logit
    for (int slot = 1; slot < slots; ++slot)
      if (of(CrossEntropyStatistics::largest, slot) > of(CrossEntropyStatistics::largest, first)) first = slot;
    const float largest = of(CrossEntropyStatistics::largest, first);
    float sum = 0, label = 0;
    for (int slot = 0; slot < slots; ++slot) {
      sum += of(CrossEntropyStatistics::sum, slot) * expf(of(CrossEntropyStatistics::largest, slot) - largest);
      label += of(CrossEntropyStatistics::label_logit, slot);
    }
    const float factor = expf(largest_logits[row] - largest) / sum;
    float* of_row = probabilities + row * count;
    const RowPacks packs(count, of_row);
    map_row(packs, RowOf<Row, 1, float>(packs, {of_row}), of_row,
            [&](int64_t, float exponential) { return exponential * factor; });
    if (Row::thread() != 0 || !losses) return;
    const float row_factor = labels.factor_of(row);
    losses[row] = labels.counts(row) ? row_factor * (largest - label + logf(sum)) : 0.0f;
    correct[row] = of(CrossEntropyStatistics::label_rank, first) == 2 ? row_factor : 0.0f;
  });
}

// `first_class`: of the probabilities.
template <class Element>
void loss_gradients(const Context& context, const float* probabilities, const RowLabels& labels, int64_t rows,
                    int64_t first_class, int64_t classes, float scale, Element* result) {
  for_each_row_of_packs(context, rows, classes, [=] __device__(auto row_threads, int64_t row) {
    using Row = decltype(row_threads);
    const float* p = probabilities + row * classes;
    Element* of_row = result + row * classes;
    const RowPacks packs(classes, p, of_row);
    const RowOf<Row, 1, float> row_probabilities(packs, {p});
    const int64_t label = labels.of(row) - first_class;
    const float row_scale = labels.factor_of(row) * scale;
    map_row(packs, row_probabilities, of_row,
            [&](int64_t c, float probability) { return (probability - (c == label ? 1.0f : 0.0f)) * row_scale; });
  });
}

// Logits and their gradient are f32 or bf16, probabilities and losses f32.
template <class Element>
class SoftmaxCrossEntropyKernel : public Kernel {
 public:
  SoftmaxCrossEntropyKernel(const Context& context, const SoftmaxCrossEntropy& loss, const KernelRequest& request)
      : context_(context), loss_(loss), number_(context.fault_number(request.operator_name, "label")),
        places_(loss, request.part), rows_(SoftmaxCrossEntropy::rows(request.part).volume()), classes_(loss.classes),
        own_(SoftmaxCrossEntropy::own_classes(request.part)), splits_classes_(loss.splits_classes(request.part)),
        scale_(static_cast<float>(loss.weight / static_cast<double>(volume(loss.outputs()[0].shape)))),
        probabilities_(context, rows_ * own_.size()), largest_(context, splits_classes_ ? rows_ : 0),
        factor_(context, places_.counts ? 1 : 0) {}

  void set_part(const Block& part, const std::string&) override { places_ = LabelPlaces(loss_, part); }

  void forward_statistics(const KernelArguments& arguments) override {
    statistics_of_rows(context_, static_cast<const Element*>(arguments.inputs[0]), labels(arguments), rows_, own_,
                       classes_, number_, probabilities_.data(), largest_.data(), arguments.statistics);
  }
  void forward(const KernelArguments& arguments) override {
    if (places_.counts) count_rows(context_, static_cast<const int32_t*>(arguments.inputs[1]), places_, factor_.data());
    if (splits_classes_) {
      const bool writes = own_.begin == 0;
      losses_from_statistics(context_, arguments.statistics, arguments.statistics_slots, labels(arguments), rows_,
                             own_.size(), largest_.data(), probabilities_.data(),
                             writes ? arguments.outputs[0] : nullptr, writes ? arguments.outputs[1] : nullptr);
      return;
    }
    losses_of_rows(context_, static_cast<const Element*>(arguments.inputs[0]), labels(arguments), rows_, classes_,
                   number_, probabilities_.data(), arguments.outputs[0], arguments.outputs[1]);
  }
  void backward(const KernelArguments& arguments) override {  // (softmax - one-hot) * weight / number of losses
    if (arguments.input_gradients[0])
      loss_gradients(context_, probabilities_.data(), labels(arguments), rows_, own_.begin, own_.size(), scale_,
                     reinterpret_cast<Element*>(arguments.input_gradients[0]));
  }
  int64_t workspace_bytes() const override { return probabilities_.bytes() + largest_.bytes() + factor_.bytes(); }

 private:
  RowLabels labels(const KernelArguments& arguments) const {
    return {static_cast<const int32_t*>(arguments.inputs[1]), places_, places_.counts ? factor_.data() : nullptr};
  }

  const Context& context_;
  const SoftmaxCrossEntropy& loss_;
  int number_;
  LabelPlaces places_;
  int64_t rows_, classes_;
  Interval own_;  // classes
  bool splits_classes_;
  float scale_;
  Memory<float> probabilities_;  // [rows, own classes], kept for backward
  Memory<float> largest_;        // of the own logits, where there are others
  Memory<float> factor_;         // of rows that count
};

}  // namespace

std::unique_ptr<Kernel> make_softmax_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxKernel>(context, dynamic_cast<const Softmax&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_softmax_cross_entropy_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<SoftmaxCrossEntropyKernel<float>>(
      context, dynamic_cast<const SoftmaxCrossEntropy&>(request.definition), request);
}

std::unique_ptr<Kernel> make_softmax_cross_entropy_bf16_kernel(const Context& context, const KernelRequest& request) {
  const auto* const definition = dynamic_cast<const SoftmaxCrossEntropy*>(&request.definition);
  return definition ? std::make_unique<SoftmaxCrossEntropyKernel<Bf16>>(context, *definition, request) : nullptr;
}

}  // namespace ff::cuda
