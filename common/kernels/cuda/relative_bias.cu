#include "common/operators/relative_bias.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Scores lie as [sample, query, key, head].
struct ScoresLayout {
  int64_t samples, heads, queries, keys;
};

void add_relative_bias(const Context& context, const ScoresLayout& layout, const int32_t* buckets, const float* scores,
                       const float* weight, float* result) {
  for_each_index(context, layout.samples * layout.heads * layout.queries * layout.keys, [=] __device__(int64_t i) {
    const int64_t head = i % layout.heads, score = i / layout.heads;
    const int64_t key = score % layout.keys, query = score / layout.keys % layout.queries;
    result[i] = scores[i] + weight[buckets[key - query + layout.queries - 1] * layout.heads + head];
  });
}

// weight [buckets, heads]: a warp or a block an element. The distances of a bucket follow one another.
void sum_bias_gradients(const Context& context, const ScoresLayout& layout, int64_t rows, const int32_t* buckets,
                        const float* gradient, bool add, float* weight) {
  const int64_t queries_of_all = layout.samples * layout.queries;
  for_each_row(context, rows * layout.heads, queries_of_all, [=] __device__(auto row_threads, int64_t element) {
    using Row = decltype(row_threads);
    const int64_t row = element / layout.heads, head = element - row * layout.heads;
    int64_t first = 0, end = layout.queries + layout.keys - 1;
    while (first < end && buckets[first] != row) ++first;
    while (end > first && buckets[end - 1] != row) --end;
    const int64_t distances = end - first;
    float sum = 0;
    for (int64_t i = Row::thread(); i < queries_of_all * distances; i += Row::threads) {
      const int64_t query_of_all = i / distances, query = query_of_all % layout.queries;
      const int64_t key = first + (i - query_of_all * distances) + query - (layout.queries - 1);
      if (key >= 0 && key < layout.keys) sum += gradient[(query_of_all * layout.keys + key) * layout.heads + head];
    }
    sum = Row::sum(sum);
    if (Row::thread() == 0) weight[element] = add ? weight[element] + sum : sum;
  });
}

class RelativeBiasKernel : public Kernel {
 public:
  RelativeBiasKernel(const Context& context, const RelativeBias& definition, const Block& part)
      : context_(context), layout_{part[0].size(), part[1].size(), part[2].size(), part[3].size()},
        rows_(definition.buckets) {
    const Vector<int32_t> buckets = definition.part_buckets(part);
    buckets_ = Memory<int32_t>(context, buckets.count());
    FF_CHECK(cudaMemcpyAsync(buckets_.data(), buckets.data(), static_cast<size_t>(buckets_.bytes()),
                             cudaMemcpyHostToDevice, context.stream));
    FF_CHECK(cudaStreamSynchronize(context.stream));  // before the vector is gone
  }

  void forward(const KernelArguments& arguments) override {
    add_relative_bias(context_, layout_, buckets_.data(), static_cast<const float*>(arguments.inputs[0]),
                      arguments.parameters[0], arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0])
      copy(context_, gradient, result, layout_.samples * layout_.heads * layout_.queries * layout_.keys);
    sum_bias_gradients(context_, layout_, rows_, buckets_.data(), gradient, arguments.accumulates(0),
                       arguments.parameter_gradients[0]);
  }

  int64_t workspace_bytes() const override { return buckets_.bytes(); }

 private:
  const Context& context_;
  ScoresLayout layout_;
  int64_t rows_;
  Memory<int32_t> buckets_;  // by distance
};

}  // namespace

std::unique_ptr<Kernel> make_relative_bias_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<RelativeBiasKernel>(context, dynamic_cast<const RelativeBias&>(request.definition),
                                              request.part);
}

}  // namespace ff::cuda
