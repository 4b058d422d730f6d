#include "common/operators/embedding.h"

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/packs.cuh"

namespace ff::cuda {
template <class Table, class Output>
void look_up(const Context& context, const Table* table, Interval rows, const int32_t* tokens, int64_t count,
             int64_t channels, int64_t vocabulary, int number, Output* output) {
  Fault* fault = context.fault();
  for_each_index(context, count * channels, [=] __device__(int64_t i) {
    const int64_t t = i / channels, channel = i - t * channels;
    const int32_t token = tokens[t];
    if (channel == 0) in_range(token, vocabulary, number, fault);
    const bool own = token >= rows.begin && token < rows.end;
    set(output[i], own ? value_of(table[(token - rows.begin) * channels + channel]) : 0.0f);
  });
}
template void look_up(const Context&, const float*, Interval, const int32_t*, int64_t, int64_t, int64_t, int, float*);
template void look_up(const Context&, const float*, Interval, const int32_t*, int64_t, int64_t, int64_t, int,
                      uint16_t*);
template void look_up(const Context&, const uint16_t*, Interval, const int32_t*, int64_t, int64_t, int64_t, int,
                      uint16_t*);

namespace {

// How often each row of the table is used, and one place of each token in use: whichever came first. Which one does not
// matter for the result.
void count_tokens(const Context& context, const int32_t* tokens, int64_t count, Interval rows, int* counts,
                  bool* chosen) {
  for_each_index(context, count, [=] __device__(int64_t t) {
    const int32_t token = tokens[t];
    chosen[t] = token >= rows.begin && token < rows.end && atomicAdd(counts + (token - rows.begin), 1) == 0;
  });
}

// A block a place and 256 channels. Those of a token's chosen place add up the gradients of all its occurrences, in
// their order, so that the sum is the same in every run, which atomic additions would not give; the others end at once.
__global__ void add_gradients_kernel(const float* gradients, const int32_t* tokens, int64_t count, int64_t channels,
                                     Interval rows, const int* counts, const bool* chosen, float* table) {
  const int64_t own = blockIdx.x, channel = static_cast<int64_t>(blockIdx.y) * block_threads + threadIdx.x;
  if (!chosen[own]) return;
  const int32_t token = tokens[own];
  float& target = table[(token - rows.begin) * channels + (channel < channels ? channel : 0)];
  const int occurrences = counts[token - rows.begin];
  if (occurrences == 1) {
    if (channel < channels) target += gradients[own * channels + channel];
    return;
  }
  __shared__ bool equal[block_threads];
  __shared__ int places[block_threads];  // of the occurrences among this many tokens, ascending
  float total = 0;
  int summed = 0;
  for (int64_t first = 0; summed < occurrences; first += block_threads) {
    const int64_t t = first + threadIdx.x;
    const bool own_equal = t < count && tokens[t] == token;
    equal[threadIdx.x] = own_equal;
    if (!__syncthreads_or(own_equal)) continue;
    int found = 0, earlier_ones = 0;
    for (int j = 0; j < block_threads; ++j) {
      if (j == static_cast<int>(threadIdx.x)) earlier_ones = found;
      found += equal[j];
    }
    if (own_equal) places[earlier_ones] = threadIdx.x;
    summed += found;
    __syncthreads();
    float sum = 0;
    if (channel < channels) {
#pragma unroll 16  // loads at once, for a token that occurs often
      for (int i = 0; i < found; ++i) sum += gradients[(first + places[i]) * channels + channel];
    }
    total += sum;
  }
  if (channel < channels) target += total;
}

class EmbeddingKernel : public Kernel {
 public:
  EmbeddingKernel(const Context& context, const Embedding& embedding, const KernelRequest& request)
      : context_(context), number_(context.fault_number(request.operator_name, "token")),
        vocabulary_(embedding.vocabulary), rows_(embedding.rows(request.part)),
        channels_(embedding.parameter_block(0, request.part)[1].size()),
        tokens_(embedding.input_block(0, request.part).volume()) {
    ScratchPieces sizes;
    take(sizes);
    context.reserve_scratch(sizes.taken());
  }

  void forward(const KernelArguments& arguments) override {
    look_up(context_, arguments.parameters[0], rows_, static_cast<const int32_t*>(arguments.inputs[0]), tokens_,
            channels_, vocabulary_, number_, arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    float* table = arguments.parameter_gradients[0];
    if (!table) return;  // of a constant
    if (!arguments.accumulates(0)) fill_zero(context_, table, rows_.size() * channels_ * element_bytes);
    if (tokens_ == 0) return;
    const int32_t* tokens = static_cast<const int32_t*>(arguments.inputs[0]);
    ScratchPieces scratch(context_.scratch());
    const auto [counts, chosen] = take(scratch);
    fill_zero(context_, counts, rows_.size() * static_cast<int64_t>(sizeof(int)));
    count_tokens(context_, tokens, tokens_, rows_, counts, chosen);
    const dim3 blocks(static_cast<unsigned>(tokens_),
                      static_cast<unsigned>((channels_ + block_threads - 1) / block_threads));
    launch(context_, blocks, block_threads, 0, add_gradients_kernel, arguments.output_gradients[0], tokens, tokens_,
           channels_, rows_, counts, chosen, table);
  }

 private:
  struct Pieces {
    int* counts;   // [row]
    bool* chosen;  // [token]
  };
  Pieces take(ScratchPieces& scratch) const {
    int* counts = scratch.take<int>(rows_.size());
    return {counts, scratch.take<bool>(tokens_)};
  }

  const Context& context_;
  int number_;
  int64_t vocabulary_;
  Interval rows_;
  int64_t channels_, tokens_;
};

// output [samples, positions] = input + weight [positions], a position being all channels of it.
void add_to_each_sample(const Context& context, const float* input, const float* weight, int64_t samples,
                        int64_t elements, float* output) {
  for_each_index(context, samples * elements,
                 [=] __device__(int64_t i) { output[i] = input[i] + weight[i % elements]; });
}

class PositionEmbeddingKernel : public Kernel {
 public:
  PositionEmbeddingKernel(const Context& context, const Block& part)
      : context_(context), samples_(part[0].size()), elements_(part[1].size() * part[2].size()) {
    context.reserve_scratch(sum_rows_scratch_bytes(context, samples_, elements_));
  }

  void forward(const KernelArguments& arguments) override {
    add_to_each_sample(context_, static_cast<const float*>(arguments.inputs[0]), arguments.parameters[0], samples_,
                       elements_, arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    sum_rows(context_, arguments.output_gradients[0], samples_, elements_, arguments.parameter_gradients[0],
             arguments.accumulates(0), context_.scratch());
    if (arguments.input_gradients[0])
      copy(context_, arguments.output_gradients[0], arguments.input_gradients[0], samples_ * elements_);
  }

 private:
  const Context& context_;
  int64_t samples_, elements_;
};

}  // namespace

std::unique_ptr<Kernel> make_embedding_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<EmbeddingKernel>(context, dynamic_cast<const Embedding&>(request.definition), request);
}

std::unique_ptr<Kernel> make_position_embedding_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<PositionEmbeddingKernel>(context, request.part);
}

}  // namespace ff::cuda
