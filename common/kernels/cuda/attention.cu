#include "common/operators/attention.h"

#include <cmath>

#include "common/kernels/cuda/attention_tensors.cuh"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/kernels.h"
#include "common/kernels/cuda/rotary_positions.cuh"

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

class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), attention_(attention), layout_(attention.projected(part)), samples_(part[0].size()),
        channels_(attention.channels), projected_(context, layout_.size()),
        projected_gradients_(context, projected_.size()),
        logarithms_(context, layout_.query_rows() * layout_.query_width / attention.head_channels),
        cosines_(context, layout_.positions * attention.rotary_channels / 2), sines_(context, cosines_.size()) {
    for (const Matrix& matrix : layout_.matrices)
      context.reserve_scratch(sum_rows_scratch_bytes(context, samples_ * matrix.positions, matrix.width));
    context.reserve_scratch(logarithms_.bytes());
    if (attention.rotary())
      fill_rotation(context, layout_.positions, attention.rotary_channels / 2, attention.rotary_base, cosines_.data(),
                    sines_.data());
  }

  void forward(const KernelArguments& arguments) override {
    project(arguments);
    if (attention_.rotary()) turn_queries_and_keys(projected_, 1);
    attention_products(context_, tensors(arguments.outputs[0], nullptr), samples_, /*backward=*/false);
  }

  void backward(const KernelArguments& arguments) override {
    attention_products(context_, tensors(arguments.outputs[0], arguments.output_gradients[0]), samples_,
                       /*backward=*/true);
    if (attention_.rotary()) turn_queries_and_keys(projected_gradients_, -1);
    project_gradients(arguments);
  }

  int64_t workspace_bytes() const override {
    return projected_.bytes() + projected_gradients_.bytes() + logarithms_.bytes() + cosines_.bytes() + sines_.bytes();
  }

 private:
  using Matrix = MultiHeadAttention::Projected::Matrix;

  AttentionTensors tensors(float* output, const float* output_gradient) const {
    return attention_tensors(attention_, layout_, projected_.data(), projected_gradients_.data(), output,
                             output_gradient, logarithms_.data(), reinterpret_cast<float*>(context_.scratch()));
  }

  void project(const KernelArguments& arguments) const {
    const float* const input = static_cast<const float*>(arguments.inputs[0]);
    for (const Matrix& matrix : layout_.matrices) {
      const float* const weight = arguments.parameters[matrix.parameter] + matrix.weight_row * channels_;
      float* const output = projected_.data() + matrix.begin;
      layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
        multiply_matrices(context_, 'N', 'T', layout_.rows(matrix), matrix.width, channels_, input + row * channels_,
                          channels_, weight, channels_, 0, output + element, matrix.width);
      });
      if (attention_.bias)
        add_bias(context_, arguments.parameters[matrix.parameter + layout_.weights] + matrix.weight_row, /*relu=*/false,
                 samples_ * matrix.positions, matrix.width, output);
    }
  }

  void project_gradients(const KernelArguments& arguments) const {
    for (const int m : layout_.matrices.indices()) {
      const Matrix& matrix = layout_.matrices[m];
      const int weight = matrix.parameter, bias = weight + layout_.weights;
      const float* const gradients = projected_gradients_.data() + matrix.begin;
      weight_gradients(matrix, gradients, arguments);
      if (attention_.bias)
        sum_rows(context_, gradients, samples_ * matrix.positions, matrix.width,
                 arguments.parameter_gradients[bias] + matrix.weight_row,
                 arguments.accumulates(static_cast<size_t>(bias)), context_.scratch());
      if (float* const result = arguments.input_gradients[0])
        layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
          multiply_matrices(context_, 'N', 'N', layout_.rows(matrix), channels_, matrix.width, gradients + element,
                            matrix.width, arguments.parameters[weight] + matrix.weight_row * channels_, channels_,
                            m == 0 ? 0 : 1, result + row * channels_, channels_);
        });
    }
  }

  void weight_gradients(const Matrix& matrix, const float* gradients, const KernelArguments& arguments) const {
    const float* const input = static_cast<const float*>(arguments.inputs[0]);
    bool add = arguments.accumulates(static_cast<size_t>(matrix.parameter));
    layout_.for_each_product(matrix, [&](int64_t row, int64_t element) {
      multiply_matrices(context_, 'T', 'N', matrix.width, channels_, layout_.rows(matrix), gradients + element,
                        matrix.width, input + row * channels_, channels_, add ? 1 : 0,
                        arguments.parameter_gradients[matrix.parameter] + matrix.weight_row * channels_, channels_);
      add = true;
    });
  }

  void turn_queries_and_keys(const Memory<float>& projected, float direction) const {
    cuda::turn_queries_and_keys(context_, attention_, layout_, projected.data(), cosines_.data(), sines_.data(),
                                direction);
  }

  const Context& context_;
  const MultiHeadAttention& attention_;
  MultiHeadAttention::Projected layout_;
  int64_t samples_;  // of the part
  int64_t channels_;
  Memory<float> projected_, projected_gradients_;  // as layout_ says
  Memory<float> logarithms_;                       // [samples, heads, queries], of each query's sum of exponentials
  Memory<float> cosines_, sines_;                  // [positions, rotary_channels / 2]; empty without rotary positions
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
