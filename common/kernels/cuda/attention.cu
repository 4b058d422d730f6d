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

// How far apart the matrices of a list lie: from sample to sample, from one head of keys and values to the next, from
// one member of such a head's group of queries to the next.
struct Steps {
  int64_t sample, key_head, member;
};

// addresses [group, samples, key_heads]
void fill_addresses(const Context& context, const float* base, int64_t samples, int64_t key_heads, int64_t group,
                    Steps steps, const float** addresses) {
  for_each_index(context, group * samples * key_heads, [=] __device__(int64_t i) {
    const int64_t key_head = i % key_heads, row = i / key_heads, sample = row % samples, member = row / samples;
    addresses[i] = base + sample * steps.sample + key_head * steps.key_head + member * steps.member;
  });
}

// Cosines and sines [length, half] of the angles by which positions are turned. In double precision: far behind in a
// sequence an angle in single precision is off by more than the sine's rounding.
void fill_rotation(const Context& context, int64_t length, int64_t half, double base, float* cosines, float* sines) {
  for_each_index(context, length * half, [=] __device__(int64_t i) {
    const double exponent = static_cast<double>(i % half) / static_cast<double>(half),
                 angle = static_cast<double>(i / half) / pow(base, exponent);
    cosines[i] = static_cast<float>(cos(angle));
    sines[i] = static_cast<float>(sin(angle));
  });
}

// Turns channels i and i + half of each head, the heads of a row lying together, by the angle of the row's position;
// direction 1, or -1 to turn back, as gradients are.
void turn(const Context& context, float* values, int64_t rows, int64_t stride, int64_t heads, int64_t length,
          int64_t half, const float* cosines, const float* sines, float direction) {
  for_each_index(context, rows * heads * half, [=] __device__(int64_t index) {
    const int64_t i = index % half, head = index / half % heads, row = index / half / heads;
    const int64_t at = row % length * half + i;
    float *first = values + row * stride + head * 2 * half + i, *second = first + half;
    const float x = *first, y = *second, cosine = cosines[at], sine = direction * sines[at];
    *first = x * cosine - y * sine;
    *second = y * cosine + x * sine;
  });
}

// Products of all samples and heads at once take lists of addresses, which are made on the device where the stream has
// them in order, and in a captured graph.
class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), attention_(attention), layout_(attention.projected(part)), samples_(part[0].size()),
        key_heads_(part[1].size()), heads_(key_heads_ * attention.group), length_(attention.length),
        channels_(attention.channels), head_channels_(attention.head_channels),
        scale_(1.0f / std::sqrt(static_cast<float>(attention.head_channels))), projected_(context, layout_.size()),
        projected_gradients_(context, projected_.size()), weights_(context, samples_ * heads_ * length_ * length_),
        weight_gradients_(context, weights_.size()), addresses_(context, address_lists * samples_ * heads_),
        cosines_(context, attention.rotary() ? length_ * head_channels_ / 2 : 0), sines_(context, cosines_.size()) {
    for (const auto& matrix : layout_.matrices)
      context.reserve_scratch(sum_rows_scratch_bytes(context, layout_.rows, matrix.width));
    const int64_t matrix = length_ * length_;
    const Steps of_queries{length_ * layout_.query_stride, attention.group * head_channels_, head_channels_},
        of_keys{length_ * layout_.key_stride, head_channels_, 0},
        of_weights{heads_ * matrix, attention.group * matrix, matrix};
    fill(queries, projected_.data(), of_queries);
    fill(query_gradients, projected_gradients_.data(), of_queries);
    fill(keys, projected_.data() + layout_.keys, of_keys);
    fill(key_gradients, projected_gradients_.data() + layout_.keys, of_keys);
    fill(values, projected_.data() + layout_.keys + layout_.key_width, of_keys);
    fill(value_gradients, projected_gradients_.data() + layout_.keys + layout_.key_width, of_keys);
    fill(weights, weights_.data(), of_weights);
    fill(weight_gradients, weight_gradients_.data(), of_weights);
    if (attention.rotary())
      fill_rotation(context, length_, head_channels_ / 2, attention.rotary_base, cosines_.data(), sines_.data());
  }

  void forward(const KernelArguments& arguments) override {
    const int64_t queries_apart = layout_.query_stride, keys_apart = layout_.key_stride;
    project(arguments);
    if (attention_.rotary()) turn_queries_and_keys(projected_, 1);
    multiply('N', 'T', length_, length_, head_channels_, queries, queries_apart, keys, keys_apart, weights, length_,
             scale_);
    softmax(context_, weights_.data(), samples_ * heads_ * length_, length_, weights_.data(),
            attention_.causal ? length_ : 0);
    point_to_block(arguments.outputs[0]);
    multiply('N', 'N', length_, head_channels_, length_, weights, length_, values, keys_apart, block,
             layout_.query_width, 1);
  }

  void backward(const KernelArguments& arguments) override {
    const int64_t queries_apart = layout_.query_stride, keys_apart = layout_.key_stride, width = layout_.query_width;
    point_to_block(arguments.output_gradients[0]);
    sum_over_groups(weights, block, width, value_gradients, 1);
    multiply('N', 'T', length_, length_, head_channels_, block, width, values, keys_apart, weight_gradients, length_,
             1);
    softmax_gradient(context_, weights_.data(), weight_gradients_.data(), samples_ * heads_ * length_, length_,
                     weight_gradients_.data());
    multiply('N', 'N', length_, head_channels_, length_, weight_gradients, length_, keys, keys_apart, query_gradients,
             queries_apart, scale_);
    sum_over_groups(weight_gradients, queries, queries_apart, key_gradients, scale_);
    if (attention_.rotary()) turn_queries_and_keys(projected_gradients_, -1);
    project_gradients(arguments);
  }

  int64_t workspace_bytes() const override {
    return projected_.bytes() + projected_gradients_.bytes() + weights_.bytes() + weight_gradients_.bytes() +
           addresses_.bytes() + cosines_.bytes() + sines_.bytes();
  }

 private:
  // Lists of addresses, one matrix a sample and head of the queries. block: of the output, or of its gradient.
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

  const float** list(int number) const { return addresses_.data() + number * samples_ * heads_; }
  void fill(List number, const float* base, Steps steps) const {
    fill_addresses(context_, base, samples_, key_heads_, attention_.group, steps, list(number));
  }
  void point_to_block(const float* base) const {
    fill(block, base, {length_ * layout_.query_width, attention_.group * head_channels_, head_channels_});
  }

  // heads and matrices of weights begin at multiples of these
  bool aligned() const { return head_channels_ % 4 == 0 && length_ * length_ % 4 == 0; }

  void multiply(char transpose_a, char transpose_b, int64_t m, int64_t n, int64_t k, List a, int64_t a_stride, List b,
                int64_t b_stride, List c, int64_t c_stride, float alpha) const {
    multiply_matrices(context_, samples_ * heads_, transpose_a, transpose_b, m, n, k, list(a), a_stride, list(b),
                      b_stride, 0, const_cast<float* const*>(list(c)), c_stride, aligned(), alpha);
  }
  // Gradients of keys or values: the sum over a group of its matrices a [length, length], transposed, times b [length,
  // head_channels]. The members one after the other, since all of them add to the same matrix.
  void sum_over_groups(List a, List b, int64_t b_stride, List c, float alpha) const {
    const int64_t count = samples_ * key_heads_;
    for (int64_t member = 0; member < attention_.group; ++member)
      multiply_matrices(context_, count, 'T', 'N', length_, head_channels_, length_, list(a) + member * count, length_,
                        list(b) + member * count, b_stride, member == 0 ? 0 : 1, const_cast<float* const*>(list(c)),
                        layout_.key_stride, aligned(), alpha);
  }

  void project(const KernelArguments& arguments) const {
    const size_t count = layout_.matrices.size();
    for (size_t p = 0; p < count; ++p) {
      const int64_t outputs = layout_.matrices[p].width;
      float* output = projected_.data() + layout_.matrices[p].begin;
      multiply_matrices(context_, 'N', 'T', layout_.rows, outputs, channels_,
                        static_cast<const float*>(arguments.inputs[0]), channels_, arguments.parameters[p], channels_,
                        0, output, outputs);
      if (attention_.bias)
        add_bias(context_, arguments.parameters[p + count], /*relu=*/false, layout_.rows, outputs, output);
    }
  }

  void project_gradients(const KernelArguments& arguments) const {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    const size_t count = layout_.matrices.size();
    for (size_t p = 0; p < count; ++p) {
      const int64_t outputs = layout_.matrices[p].width;
      const float* gradients = projected_gradients_.data() + layout_.matrices[p].begin;
      multiply_matrices(context_, 'T', 'N', outputs, channels_, layout_.rows, gradients, outputs, input, channels_,
                        arguments.accumulates(p) ? 1 : 0, arguments.parameter_gradients[p], channels_);
      if (attention_.bias)
        sum_rows(context_, gradients, layout_.rows, outputs, arguments.parameter_gradients[p + count],
                 arguments.accumulates(p + count), context_.scratch());
      if (arguments.input_gradients[0])
        multiply_matrices(context_, 'N', 'N', layout_.rows, channels_, outputs, gradients, outputs,
                          arguments.parameters[p], channels_, p == 0 ? 0 : 1, arguments.input_gradients[0], channels_);
    }
  }

  void turn_queries_and_keys(const Memory<float>& projected, float direction) const {
    const int64_t half = head_channels_ / 2;
    turn(context_, projected.data(), layout_.rows, layout_.query_stride, heads_, length_, half, cosines_.data(),
         sines_.data(), direction);
    turn(context_, projected.data() + layout_.keys, layout_.rows, layout_.key_stride, key_heads_, length_, half,
         cosines_.data(), sines_.data(), direction);
  }

  const Context& context_;
  const MultiHeadAttention& attention_;
  MultiHeadAttention::Projected layout_;
  int64_t samples_, key_heads_, heads_;  // of the part
  int64_t length_, channels_, head_channels_;
  float scale_;
  Memory<float> projected_, projected_gradients_;  // as layout_ says
  Memory<float> weights_, weight_gradients_;       // [samples, heads, length, length]
  Memory<const float*> addresses_;
  Memory<float> cosines_, sines_;  // [length, head_channels / 2]; empty without rotary positions
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
