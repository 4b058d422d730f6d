#include "common/operators/relative_bias.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

// Scores lie as [sample, query, key, head].
struct ScoresLayout {
  int64_t samples, heads, queries, keys;
  __host__ __device__ int64_t distances() const { return queries + keys - 1; }
  int64_t elements() const { return samples * heads * queries * keys; }
};

template <class Index>
void add_relative_bias_by(const Context& context, const ScoresLayout& layout, const int32_t* buckets,
                          const float* scores, const float* weight, float* result) {
  const Divisor<Index> heads(static_cast<Index>(layout.heads)), keys(static_cast<Index>(layout.keys)),
      queries(static_cast<Index>(layout.queries));
  const Index heads_count = static_cast<Index>(layout.heads), last_query = static_cast<Index>(layout.queries - 1);
  for_each_index(context, layout.elements(), [=] __device__(int64_t i) {
    Index rest = static_cast<Index>(i);
    const Index head = heads.remainder(rest), key = keys.remainder(rest), query = queries.remainder(rest);
    result[i] = scores[i] + weight[static_cast<Index>(buckets[key + (last_query - query)]) * heads_count + head];
  });
}

void add_relative_bias(const Context& context, const ScoresLayout& layout, const int32_t* buckets, const float* scores,
                       const float* weight, float* result) {
  if (layout.elements() >> 31) add_relative_bias_by<uint64_t>(context, layout, buckets, scores, weight, result);
  else add_relative_bias_by<uint32_t>(context, layout, buckets, scores, weight, result);
}

// distances [queries + keys - 1, heads]: over all samples and queries. Neighbouring threads read neighbouring scores of
// a query, each score once.
void sum_distances(const Context& context, const ScoresLayout& layout, const float* gradient, float* distances,
                   void* scratch) {
  const int64_t heads = layout.heads, keys = layout.keys;
  const uint32_t queries = static_cast<uint32_t>(layout.queries);
  column_sums<1>(
      context, layout.samples * layout.queries, layout.distances() * heads,
      [=] __device__(int64_t row, int64_t column) {
        const int64_t query = static_cast<uint32_t>(row) % queries;  // of 64 bits it would outlast the access to memory
        const int64_t score = column + (query - (queries - 1)) * heads;  // [key, head]
        return Sums<1>{{score >= 0 && score < keys * heads ? gradient[row * keys * heads + score] : 0.0f}};
      },
      [=] __device__(int64_t column, const double* total) { distances[column] = static_cast<float>(total[0]); },
      scratch);
}

// weight [buckets, heads]: a warp or a block an element. The distances of a bucket follow one another.
void sum_buckets(const Context& context, const ScoresLayout& layout, int64_t rows, const int32_t* buckets,
                 const float* distances, bool add, float* weight) {
  for_each_row(context, rows * layout.heads, layout.distances(), [=] __device__(auto row_threads, int64_t element) {
    using Row = decltype(row_threads);
    const int64_t row = element / layout.heads, head = element - row * layout.heads;
    float sum = 0;
    for (int64_t i = Row::thread(); i < layout.distances(); i += Row::threads)
      if (buckets[i] == row) sum += distances[i * layout.heads + head];
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
    ScratchPieces sizes;
    take(sizes);
    context.reserve_scratch(sizes.taken());
  }

  void forward(const KernelArguments& arguments) override {
    add_relative_bias(context_, layout_, buckets_.data(), static_cast<const float*>(arguments.inputs[0]),
                      arguments.parameters[0], arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    const float* gradient = arguments.output_gradients[0];
    if (float* result = arguments.input_gradients[0]) copy(context_, gradient, result, layout_.elements());
    ScratchPieces scratch(context_.scratch());
    const auto [distances, sums] = take(scratch);
    sum_distances(context_, layout_, gradient, distances, sums);
    sum_buckets(context_, layout_, rows_, buckets_.data(), distances, arguments.accumulates(0),
                arguments.parameter_gradients[0]);
  }

  int64_t workspace_bytes() const override { return buckets_.bytes(); }

 private:
  struct Pieces {
    float* distances;
    char* sums;
  };
  Pieces take(ScratchPieces& scratch) const {
    const int64_t columns = layout_.distances() * layout_.heads;
    float* distances = scratch.take(columns);
    return {distances,
            scratch.take<char>(column_sums_scratch_bytes<1>(context_, layout_.samples * layout_.queries, columns))};
  }

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
