#include "common/operators/attention.h"

#include <cmath>

#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"

namespace ff::cuda {
namespace {

void tanh_in_place(const Context& context, float* values, int64_t elements) {
  for_each_index(context, elements, [=] __device__(int64_t i) { values[i] = tanhf(values[i]); });
}

// result[s, l] = a_weights[s, l] * a[s] + b_weights[s, l] * b[s]; rows of a and b lie a_stride and `channels` apart.
void rows_from_two(const Context& context, const float* a_weights, const float* a, int64_t a_stride,
                   const float* b_weights, const float* b, int64_t samples, int64_t length, int64_t channels,
                   float* result) {
  for_each_index(context, samples * length * channels, [=] __device__(int64_t i) {
    const int64_t row = i / channels, channel = i - row * channels, sample = row / length;
    result[i] = a_weights[row] * a[sample * a_stride + channel] + b_weights[row] * b[sample * channels + channel];
  });
}

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const Context& context, const Attention& attention, const Block& part)
      : context_(context), samples_(part[0].size()), features_(attention.features), length_(attention.length),
        channels_(attention.channels), out_(part[1].size()), keys_(context, samples_ * channels_),
        key_gradients_(context, keys_.size()), joined_(context, samples_ * joined_width()),
        joined_gradients_(context, joined_.size()), weights_(context, samples_ * length_),
        weight_gradients_(context, weights_.size()), behind_tanh_(context, samples_ * out_) {}

  void forward(const KernelArguments& arguments) override {
    const float *query = static_cast<const float*>(arguments.inputs[0]),
                *states = static_cast<const float*>(arguments.inputs[1]);
    const float *score = arguments.parameters[0], *combine = arguments.parameters[1];
    multiply_matrices(context_, 'N', 'N', samples_, channels_, features_, query, features_, score, channels_, 0,
                      keys_.data(), channels_);
    products_with_states(states, keys_.data(), channels_, weights_.data());
    softmax(context_, weights_.data(), samples_, length_, weights_.data());
    sum_of_states(states, weights_.data(), joined_.data(), joined_width());
    copy_columns(context_, query, features_, joined_.data() + channels_, joined_width(), samples_, features_);
    multiply_matrices(context_, 'N', 'T', samples_, out_, joined_width(), joined_.data(), joined_width(), combine,
                      joined_width(), 0, arguments.outputs[0], out_);
    tanh_in_place(context_, arguments.outputs[0], samples_ * out_);
  }

  void backward(const KernelArguments& arguments) override {
    const float *query = static_cast<const float*>(arguments.inputs[0]),
                *states = static_cast<const float*>(arguments.inputs[1]);
    const float *score = arguments.parameters[0], *combine = arguments.parameters[1];
    const float* gradient = behind_tanh_.data();
    const float* context_gradients = joined_gradients_.data();  // [samples, channels], joined_width() apart
    tanh_gradient(context_, arguments.outputs[0], arguments.output_gradients[0], behind_tanh_.data(), samples_ * out_);
    multiply_matrices(context_, 'T', 'N', out_, joined_width(), samples_, gradient, out_, joined_.data(),
                      joined_width(), arguments.accumulates(1) ? 1 : 0, arguments.parameter_gradients[1],
                      joined_width());
    multiply_matrices(context_, 'N', 'N', samples_, joined_width(), out_, gradient, out_, combine, joined_width(), 0,
                      joined_gradients_.data(), joined_width());
    products_with_states(states, context_gradients, joined_width(), weight_gradients_.data());
    // now of the scores
    softmax_gradient(context_, weights_.data(), weight_gradients_.data(), samples_, length_, weight_gradients_.data());
    sum_of_states(states, weight_gradients_.data(), key_gradients_.data(), channels_);
    if (float* result = arguments.input_gradients[1])
      rows_from_two(context_, weights_.data(), context_gradients, joined_width(), weight_gradients_.data(),
                    keys_.data(), samples_, length_, channels_, result);
    multiply_matrices(context_, 'T', 'N', features_, channels_, samples_, query, features_, key_gradients_.data(),
                      channels_, arguments.accumulates(0) ? 1 : 0, arguments.parameter_gradients[0], channels_);
    if (float* result = arguments.input_gradients[0]) {
      copy_columns(context_, context_gradients + channels_, joined_width(), result, features_, samples_, features_);
      multiply_matrices(context_, 'N', 'T', samples_, features_, channels_, key_gradients_.data(), channels_, score,
                        channels_, 1, result, features_);
    }
  }

  int64_t workspace_bytes() const override {
    return 2 * (keys_.bytes() + joined_.bytes() + weights_.bytes()) + behind_tanh_.bytes();
  }

 private:
  int64_t joined_width() const { return channels_ + features_; }

  // result[s, l] = states[s, l] . vectors[s], vectors lying vector_stride apart.
  void products_with_states(const float* states, const float* vectors, int64_t vector_stride, float* result) const {
    multiply_matrices(context_, {samples_, length_ * channels_, vector_stride, length_}, 'N', 'N', length_, 1,
                      channels_, states, channels_, vectors, 1, 0, result, 1);
  }
  // result[s] = sum over l of weights[s, l] states[s, l], results lying result_stride apart.
  void sum_of_states(const float* states, const float* weights, float* result, int64_t result_stride) const {
    multiply_matrices(context_, {samples_, length_, length_ * channels_, result_stride}, 'N', 'N', 1, channels_,
                      length_, weights, length_, states, channels_, 0, result, result_stride);
  }

  const Context& context_;
  int64_t samples_, features_, length_, channels_, out_;
  Memory<float> keys_, key_gradients_;        // [samples, channels]: query times score
  Memory<float> joined_, joined_gradients_;   // [samples, channels + features]: context, query
  Memory<float> weights_, weight_gradients_;  // [samples, length]
  Memory<float> behind_tanh_;                 // [samples, out]: gradient
};

// addresses[s * heads + h] = base + s * sample_step + h * head_step
void fill_addresses(const Context& context, const float* base, int64_t samples, int64_t heads, int64_t sample_step,
                    int64_t head_step, const float** addresses) {
  for_each_index(context, samples * heads,
                 [=] __device__(int64_t i) { addresses[i] = base + i / heads * sample_step + i % heads * head_step; });
}

// Queries, keys and values of a part lie in rows [samples * length, 3, width], width being the channels of the part's
// heads. Products of all samples and heads at once take lists of addresses, which are made on the device where the
// stream has them in order, and in a captured graph.
class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), causal_(attention.causal), samples_(part[0].size()), length_(attention.length),
        channels_(attention.channels), heads_(part[1].size()), head_channels_(attention.head_channels),
        scale_(1.0f / std::sqrt(static_cast<float>(attention.head_channels))),
        projected_(context, rows() * 3 * width()), projected_gradients_(context, projected_.size()),
        weights_(context, samples_ * heads_ * length_ * length_), weight_gradients_(context, weights_.size()),
        addresses_(context, address_lists * samples_ * heads_) {
    context.reserve_scratch(sum_rows_scratch_bytes(context, rows(), 3 * width()));
    const int64_t of_sample = length_ * 3 * width(), matrix = length_ * length_;
    for (int third = 0; third < 3; ++third) {
      fill_addresses(context, projected_.data() + third * width(), samples_, heads_, of_sample, head_channels_,
                     list(queries + third));
      fill_addresses(context, projected_gradients_.data() + third * width(), samples_, heads_, of_sample,
                     head_channels_, list(query_gradients + third));
    }
    fill_addresses(context, weights_.data(), samples_, heads_, heads_ * matrix, matrix, list(weights));
    fill_addresses(context, weight_gradients_.data(), samples_, heads_, heads_ * matrix, matrix,
                   list(weight_gradients));
  }

  void forward(const KernelArguments& arguments) override {
    const int64_t outputs = 3 * width();
    multiply_matrices(context_, 'N', 'T', rows(), outputs, channels_, static_cast<const float*>(arguments.inputs[0]),
                      channels_, arguments.parameters[0], channels_, 0, projected_.data(), outputs);
    add_bias(context_, arguments.parameters[1], /*relu=*/false, rows(), outputs, projected_.data());
    multiply('N', 'T', length_, length_, head_channels_, queries, outputs, keys, outputs, weights, length_, scale_);
    softmax(context_, weights_.data(), samples_ * heads_ * length_, length_, weights_.data(), causal_ ? length_ : 0);
    point_to_block(arguments.outputs[0]);
    multiply('N', 'N', length_, head_channels_, length_, weights, length_, values, outputs, block, width(), 1);
  }

  void backward(const KernelArguments& arguments) override {
    const int64_t outputs = 3 * width();
    point_to_block(arguments.output_gradients[0]);
    multiply('T', 'N', length_, head_channels_, length_, weights, length_, block, width(), value_gradients, outputs, 1);
    multiply('N', 'T', length_, length_, head_channels_, block, width(), values, outputs, weight_gradients, length_, 1);
    softmax_gradient(context_, weights_.data(), weight_gradients_.data(), samples_ * heads_ * length_, length_,
                     weight_gradients_.data());
    multiply('N', 'N', length_, head_channels_, length_, weight_gradients, length_, keys, outputs, query_gradients,
             outputs, scale_);
    multiply('T', 'N', length_, head_channels_, length_, weight_gradients, length_, queries, outputs, key_gradients,
             outputs, scale_);
    const float* gradients = projected_gradients_.data();
    multiply_matrices(context_, 'T', 'N', outputs, channels_, rows(), gradients, outputs,
                      static_cast<const float*>(arguments.inputs[0]), channels_, arguments.accumulates(0) ? 1 : 0,
                      arguments.parameter_gradients[0], channels_);
    sum_rows(context_, gradients, rows(), outputs, arguments.parameter_gradients[1], arguments.accumulates(1),
             context_.scratch());
    if (arguments.input_gradients[0])
      multiply_matrices(context_, 'N', 'N', rows(), channels_, outputs, gradients, outputs, arguments.parameters[0],
                        channels_, 0, arguments.input_gradients[0], channels_);
  }

  int64_t workspace_bytes() const override {
    return projected_.bytes() + projected_gradients_.bytes() + weights_.bytes() + weight_gradients_.bytes() +
           addresses_.bytes();
  }

 private:
  // Lists of addresses, one matrix a sample and head. block: of the output, or of its gradient.
  enum List {
    queries,
    keys,
    values,
    query_gradients,
    key_gradients,
    value_gradients,
    weights,
    weight_gradients,
    block,
    address_lists
  };

  int64_t rows() const { return samples_ * length_; }
  int64_t width() const { return heads_ * head_channels_; }
  const float** list(int number) const { return addresses_.data() + number * samples_ * heads_; }

  void point_to_block(const float* base) const {
    fill_addresses(context_, base, samples_, heads_, length_ * width(), head_channels_, list(block));
  }
  void multiply(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, List a, int64_t a_stride, List b,
                int64_t b_stride, List c, int64_t c_stride, float alpha) const {
    // heads and matrices of weights begin at multiples of these
    const bool aligned = head_channels_ % 4 == 0 && length_ * length_ % 4 == 0;
    multiply_matrices(context_, samples_ * heads_, transpose_a, transpose_b, m, n, k, list(a), a_stride, list(b),
                      b_stride, 0, const_cast<float* const*>(list(c)), c_stride, aligned, alpha);
  }

  const Context& context_;
  bool causal_;
  int64_t samples_, length_, channels_, heads_, head_channels_;
  float scale_;
  Memory<float> projected_, projected_gradients_;  // [samples, length, 3, width]
  Memory<float> weights_, weight_gradients_;       // [samples, heads, length, length]
  Memory<const float*> addresses_;
};

}  // namespace

std::unique_ptr<Kernel> make_attention_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<AttentionKernel>(context, dynamic_cast<const Attention&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_multi_head_attention_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<MultiHeadAttentionKernel>(
      context, dynamic_cast<const MultiHeadAttention&>(request.definition), request.part);
}

}  // namespace ff::cuda
