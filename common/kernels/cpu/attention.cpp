#include "common/operators/attention.h"

#include <cstring>

#include "common/kernels/cpu/attention_tiles.h"
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

class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), attention_(attention), tiles_(attention, part), layout_(tiles_.layout()),
        channels_(attention.channels) {
    for (const auto& matrix : layout_.matrices)
      projections_.push_back(make_projection(layout_.rows(matrix), matrix.width));
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    project(arguments);
    tiles_.forward(arguments.outputs[0]);
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    tiles_.backward(arguments.outputs[0], arguments.output_gradients[0]);
    project_gradients(arguments);
  }

  int64_t workspace_bytes() const override { return tiles_.workspace_bytes(); }

 private:
  using Matrix = MultiHeadAttention::Projected::Matrix;

  Primitive make_projection(int64_t rows, int64_t outputs) const {
    using dnnl::memory;
    const memory::desc input = row_major({rows, channels_}), output = row_major({rows, outputs}),
                       bias = row_major({1, outputs});
    const memory::desc weight({channels_, outputs}, memory::data_type::f32, memory::format_tag::ba);
    const dnnl::matmul::desc operation =
        attention_.bias ? dnnl::matmul::desc(input, weight, bias, output) : dnnl::matmul::desc(input, weight, output);
    const dnnl::matmul::primitive_desc descriptor(operation, user_scratchpad(), context_.engine);
    Primitive projection = Primitive::make<dnnl::matmul>(context_, descriptor);
    projection.add(context_, DNNL_ARG_SRC, input);
    projection.add(context_, DNNL_ARG_WEIGHTS, weight);
    if (attention_.bias) projection.add(context_, DNNL_ARG_BIAS, bias);
    projection.add(context_, DNNL_ARG_DST, output);
    return projection;
  }

  void project(const KernelArguments& arguments) {
    const float* const input = static_cast<const float*>(arguments.inputs[0]);
    for (const int m : layout_.matrices.indices()) {
      const Matrix& matrix = layout_.matrices[m];
      const float* const weight = arguments.parameters[matrix.parameter] + matrix.weight_row * channels_;
      layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
        const float* const rows = input + row * channels_;
        float* const output = tiles_.projected() + matrix.begin + element;
        if (attention_.bias)
          projections_[m].run(
              context_, {{DNNL_ARG_SRC, rows},
                         {DNNL_ARG_WEIGHTS, weight},
                         {DNNL_ARG_BIAS, arguments.parameters[matrix.parameter + layout_.weights] + matrix.weight_row},
                         {DNNL_ARG_DST, output}});
        else projections_[m].run(context_, {{DNNL_ARG_SRC, rows}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, output}});
      });
    }
  }

  void project_gradients(const KernelArguments& arguments) {
    for (const int m : layout_.matrices.indices()) {
      const Matrix& matrix = layout_.matrices[m];
      const int weight = matrix.parameter, bias = weight + layout_.weights;
      const float* const gradients = tiles_.projected_gradients() + matrix.begin;
      weight_gradients(matrix, gradients, arguments);
      if (attention_.bias)
        sum_rows(gradients, layout_.samples * matrix.positions, matrix.width,
                 arguments.parameter_gradients[bias] + matrix.weight_row,
                 arguments.accumulates(static_cast<size_t>(bias)));
      if (float* const result = arguments.input_gradients[0])
        layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
          multiply_matrices('N', 'N', layout_.rows(matrix), channels_, matrix.width, gradients + element, matrix.width,
                            arguments.parameters[weight] + matrix.weight_row * channels_, channels_, m == 0 ? 0 : 1,
                            result + row * channels_, channels_);
        });
    }
  }

  void weight_gradients(const Matrix& matrix, const float* gradients, const KernelArguments& arguments) {
    const float* const input = static_cast<const float*>(arguments.inputs[0]);
    bool add = arguments.accumulates(static_cast<size_t>(matrix.parameter));
    layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
      multiply_matrices('T', 'N', matrix.width, channels_, layout_.rows(matrix), gradients + element, matrix.width,
                        input + row * channels_, channels_, add ? 1 : 0,
                        arguments.parameter_gradients[matrix.parameter] + matrix.weight_row * channels_, channels_);
      add = true;
    });
  }

  const Context& context_;
  const MultiHeadAttention& attention_;
  AttentionTiles tiles_;
  const MultiHeadAttention::Projected& layout_;
  int64_t channels_;
  Vector<Primitive> projections_;  // [matrix]
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
