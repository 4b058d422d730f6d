#include "common/operators/attention.h"

#include <cmath>
#include <cstring>

#include "common/kernels/cpu/block_copy.h"
#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// result[l] = sum over channels of vector * rows[l].
FF_VECTORIZED void products_with_rows(const float* rows, const float* vector, int64_t length, int64_t channels,
                                      float* result) {
  for (int64_t l = 0; l < length; ++l, rows += channels) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < channels; ++c) sum += rows[c] * vector[c];
    result[l] = sum;
  }
}

// result = sum over l of weights[l] * rows[l].
FF_VECTORIZED void weighted_sum_of_rows(const float* rows, const float* weights, int64_t length, int64_t channels,
                                        float* result) {
  std::memset(result, 0, static_cast<size_t>(channels) * sizeof(float));
  for (int64_t l = 0; l < length; ++l, rows += channels)
    for (int64_t c = 0; c < channels; ++c) result[c] += weights[l] * rows[c];
}

// rows[l] = a_weights[l] * a + b_weights[l] * b.
FF_VECTORIZED void rows_from_two(const float* a_weights, const float* a, const float* b_weights, const float* b,
                                 int64_t length, int64_t channels, float* rows) {
  for (int64_t l = 0; l < length; ++l, rows += channels)
    for (int64_t c = 0; c < channels; ++c) rows[c] = a_weights[l] * a[c] + b_weights[l] * b[c];
}

FF_VECTORIZED void behind_tanh(const float* output, const float* gradient, float* result, int64_t elements) {
  for (int64_t i = 0; i < elements; ++i) result[i] = gradient[i] * (1.0f - output[i] * output[i]);
}

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const Context& context, const Attention& attention, const Block& part)
      : context_(context), samples_(part[0].size()), features_(attention.features), length_(attention.length),
        channels_(attention.channels), out_(part[1].size()), softmax_(make_softmax(context, samples_, length_)),
        tanh_(make_tanh(context, samples_, out_)) {
    keys_.resize(samples_ * channels_);
    key_gradients_.resize(keys_.size());
    joined_.resize(samples_ * joined_width());
    joined_gradients_.resize(joined_.size());
    weights_.resize(samples_ * length_);
    weight_gradients_.resize(weights_.size());
    behind_tanh_.resize(samples_ * out_);
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float *query = static_cast<const float*>(arguments.inputs[0]),
                *states = static_cast<const float*>(arguments.inputs[1]);
    const float *score = arguments.parameters[0], *combine = arguments.parameters[1];
    multiply_matrices('N', 'N', samples_, channels_, features_, query, features_, score, channels_, 0, keys_.data(),
                      channels_);
    for (int64_t s = 0; s < samples_; ++s)
      products_with_rows(states + s * length_ * channels_, &keys_[index(s, channels_)], length_, channels_,
                         &weights_[index(s, length_)]);
    softmax_.run(context_, {{DNNL_ARG_SRC, weights_.data()}, {DNNL_ARG_DST, weights_.data()}});
    for (int64_t s = 0; s < samples_; ++s)
      weighted_sum_of_rows(states + s * length_ * channels_, &weights_[index(s, length_)], length_, channels_,
                           &joined_[index(s, joined_width())]);
    copy_columns(query, features_, joined_.data() + channels_, joined_width(), samples_, features_);
    float* output = arguments.outputs[0];
    multiply_matrices('N', 'T', samples_, out_, joined_width(), joined_.data(), joined_width(), combine, joined_width(),
                      0, output, out_);
    tanh_.run(context_, {{DNNL_ARG_SRC, output}, {DNNL_ARG_DST, output}});
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    const float *query = static_cast<const float*>(arguments.inputs[0]),
                *states = static_cast<const float*>(arguments.inputs[1]);
    const float *score = arguments.parameters[0], *combine = arguments.parameters[1];
    const float* gradient = behind_tanh_.data();
    behind_tanh(arguments.outputs[0], arguments.output_gradients[0], behind_tanh_.data(), samples_ * out_);
    multiply_matrices('T', 'N', out_, joined_width(), samples_, gradient, out_, joined_.data(), joined_width(),
                      arguments.accumulates(1) ? 1 : 0, arguments.parameter_gradients[1], joined_width());
    multiply_matrices('N', 'N', samples_, joined_width(), out_, gradient, out_, combine, joined_width(), 0,
                      joined_gradients_.data(), joined_width());
    for (int64_t s = 0; s < samples_; ++s)
      products_with_rows(states + s * length_ * channels_, &joined_gradients_[index(s, joined_width())], length_,
                         channels_, &weight_gradients_[index(s, length_)]);
    // now of the scores
    softmax_gradient(weights_.data(), weight_gradients_.data(), samples_, length_, weight_gradients_.data());
    for (int64_t s = 0; s < samples_; ++s)
      weighted_sum_of_rows(states + s * length_ * channels_, &weight_gradients_[index(s, length_)], length_, channels_,
                           &key_gradients_[index(s, channels_)]);
    if (float* result = arguments.input_gradients[1])
      for (int64_t s = 0; s < samples_; ++s)
        rows_from_two(&weights_[index(s, length_)], &joined_gradients_[index(s, joined_width())],
                      &weight_gradients_[index(s, length_)], &keys_[index(s, channels_)], length_, channels_,
                      result + s * length_ * channels_);
    multiply_matrices('T', 'N', features_, channels_, samples_, query, features_, key_gradients_.data(), channels_,
                      arguments.accumulates(0) ? 1 : 0, arguments.parameter_gradients[0], channels_);
    if (float* result = arguments.input_gradients[0]) {
      copy_columns(joined_gradients_.data() + channels_, joined_width(), result, features_, samples_, features_);
      multiply_matrices('N', 'T', samples_, features_, channels_, key_gradients_.data(), channels_, score, channels_, 1,
                        result, features_);
    }
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((keys_.size() + joined_.size() + weights_.size()) * 2 + behind_tanh_.size()) *
           static_cast<int64_t>(sizeof(float));
  }

 private:
  int64_t joined_width() const { return channels_ + features_; }
  static size_t index(int64_t row, int64_t width) { return static_cast<size_t>(row * width); }

  const Context& context_;
  int64_t samples_, features_, length_, channels_, out_;
  Primitive softmax_, tanh_;
  Vector<float> keys_, key_gradients_;        // [samples, channels]: query times score
  Vector<float> joined_, joined_gradients_;   // [samples, channels + features]: context, query
  Vector<float> weights_, weight_gradients_;  // [samples, length]
  Vector<float> behind_tanh_;                 // [samples, out]: gradient
};

// Queries, keys and values of a part lie in rows [samples * length, 3, width], width being the channels of the part's
// heads.
class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), causal_(attention.causal), samples_(part[0].size()), length_(attention.length),
        channels_(attention.channels), heads_(part[1].size()), head_channels_(attention.head_channels),
        scale_(1.0f / std::sqrt(static_cast<float>(attention.head_channels))),
        softmax_(make_softmax(context, samples_ * heads_ * length_, length_)) {
    projected_.resize(rows() * 3 * width());
    projected_gradients_.resize(projected_.size());
    weights_.resize(samples_ * heads_ * length_ * length_);
    weight_gradients_.resize(length_ * length_);
    make_projection();
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    projection_.run(context_, {{DNNL_ARG_SRC, arguments.inputs[0]},
                               {DNNL_ARG_WEIGHTS, arguments.parameters[0]},
                               {DNNL_ARG_BIAS, arguments.parameters[1]},
                               {DNNL_ARG_DST, projected_.data()}});
    for_each_head([&](int64_t at, int64_t, float* weights) {
      const float *query = projected_.data() + at, *key = query + width();
      multiply_matrices('N', 'T', length_, length_, head_channels_, query, 3 * width(), key, 3 * width(), 0, weights,
                        length_, scale_);
      if (!causal_) return;
      for (int64_t row = 0; row < length_; ++row)
        for (int64_t later = row + 1; later < length_; ++later) weights[row * length_ + later] = -1e30f;
    });
    softmax_.run(context_, {{DNNL_ARG_SRC, weights_.data()}, {DNNL_ARG_DST, weights_.data()}});
    for_each_head([&](int64_t at, int64_t out, float* weights) {
      const float* value = projected_.data() + at + 2 * width();
      multiply_matrices('N', 'N', length_, head_channels_, length_, weights, length_, value, 3 * width(), 0,
                        arguments.outputs[0] + out, width());
    });
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    for_each_head([&](int64_t at, int64_t out, float* weights) {
      const float *query = projected_.data() + at, *key = query + width(), *value = key + width();
      float *query_gradient = projected_gradients_.data() + at, *key_gradient = query_gradient + width(),
            *value_gradient = key_gradient + width();
      const float* gradient = arguments.output_gradients[0] + out;
      float* scores = weight_gradients_.data();
      multiply_matrices('T', 'N', length_, head_channels_, length_, weights, length_, gradient, width(), 0,
                        value_gradient, 3 * width());
      multiply_matrices('N', 'T', length_, length_, head_channels_, gradient, width(), value, 3 * width(), 0, scores,
                        length_);
      softmax_gradient(weights, scores, length_, length_, scores);
      multiply_matrices('N', 'N', length_, head_channels_, length_, scores, length_, key, 3 * width(), 0,
                        query_gradient, 3 * width(), scale_);
      multiply_matrices('T', 'N', length_, head_channels_, length_, scores, length_, query, 3 * width(), 0,
                        key_gradient, 3 * width(), scale_);
    });
    const float* gradients = projected_gradients_.data();
    const int64_t outputs = 3 * width();
    multiply_matrices('T', 'N', outputs, channels_, rows(), gradients, outputs,
                      static_cast<const float*>(arguments.inputs[0]), channels_, arguments.accumulates(0) ? 1 : 0,
                      arguments.parameter_gradients[0], channels_);
    sum_rows(gradients, rows(), outputs, arguments.parameter_gradients[1], arguments.accumulates(1));
    if (arguments.input_gradients[0])
      multiply_matrices('N', 'N', rows(), channels_, outputs, gradients, outputs, arguments.parameters[0], channels_, 0,
                        arguments.input_gradients[0], channels_);
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((projected_.size() * 2 + weights_.size() + weight_gradients_.size()) * sizeof(float));
  }

 private:
  int64_t rows() const { return samples_ * length_; }
  int64_t width() const { return heads_ * head_channels_; }

  // Calls visit(offset of its queries, offset in the output, weights) for every sample and head.
  template <class Visit>
  void for_each_head(const Visit& visit) {
    for (int64_t s = 0; s < samples_; ++s)
      for (int64_t h = 0; h < heads_; ++h)
        visit(s * length_ * 3 * width() + h * head_channels_, s * length_ * width() + h * head_channels_,
              weights_.data() + (s * heads_ + h) * length_ * length_);
  }

  void make_projection() {
    using dnnl::memory;
    const int64_t outputs = 3 * width();
    const memory::desc input = row_major({rows(), channels_}), output = row_major({rows(), outputs}),
                       bias = row_major({1, outputs});
    const memory::desc weight({channels_, outputs}, memory::data_type::f32, memory::format_tag::ba);
    const dnnl::matmul::primitive_desc descriptor({input, weight, bias, output}, user_scratchpad(), context_.engine);
    projection_ = Primitive::make<dnnl::matmul>(context_, descriptor);
    projection_.add(context_, DNNL_ARG_SRC, input);
    projection_.add(context_, DNNL_ARG_WEIGHTS, weight);
    projection_.add(context_, DNNL_ARG_BIAS, bias);
    projection_.add(context_, DNNL_ARG_DST, output);
  }

  const Context& context_;
  bool causal_;
  int64_t samples_, length_, channels_, heads_, head_channels_;
  float scale_;
  Primitive softmax_, projection_;
  Vector<float> projected_, projected_gradients_;  // [samples, length, 3, width]
  Vector<float> weights_;                          // [samples, heads, length, length]
  Vector<float> weight_gradients_;                 // of one head
};

}  // namespace

std::unique_ptr<Kernel> make_attention_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<AttentionKernel>(context, dynamic_cast<const Attention&>(request.definition), request.part);
}
std::unique_ptr<Kernel> make_multi_head_attention_kernel(const Context& context, const KernelRequest& request) {
  return std::make_unique<MultiHeadAttentionKernel>(
      context, dynamic_cast<const MultiHeadAttention&>(request.definition), request.part);
}

}  // namespace ff::cpu
