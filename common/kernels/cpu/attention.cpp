#include "common/operators/attention.h"

#include <algorithm>
#include <bit>
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

// Turns channels i and i + half of each head [width], the heads of a row lying together, by the angle of the row's
// position with these cosines and sines [length, half]; direction 1, or -1 to turn back, as gradients are.
FF_VECTORIZED void turn(float* values, int64_t rows, int64_t stride, int64_t heads, int64_t width, int64_t length,
                        int64_t half, const float* cosines, const float* sines, float direction) {
  for (int64_t row = 0; row < rows; ++row) {
    const float *cosine = cosines + row % length * half, *sine = sines + row % length * half;
    for (int64_t head = 0; head < heads; ++head) {
      float *first = values + row * stride + head * width, *second = first + half;
      for (int64_t i = 0; i < half; ++i) {
        const float x = first[i], y = second[i], s = direction * sine[i];
        first[i] = x * cosine[i] - y * s;
        second[i] = y * cosine[i] + x * s;
      }
    }
  }
}

// e^x within 2 units in the last place for x from -87 to 88, and 0 below. std::exp keeps a loop from becoming vectors.
// x = n ln 2 + rest, and the polynomial for e^rest, |rest| <= ln 2 / 2, is that of the Cephes library (expf).
inline float exponential(float x) {
  constexpr float round = 12582912.0f;  // 1.5 * 2^23: added, it leaves no bits after the point
  const float inside = x < -87.0f ? -87.0f : x;
  const float shifted = inside * 1.44269504f + round, n = shifted - round;
  const float rest = (inside - n * 0.693359375f) + n * 2.12194440e-4f;
  float sum = 1.9875691500e-4f;
  for (float coefficient : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    sum = sum * rest + coefficient;
  sum = sum * rest * rest + rest + 1.0f;
  const int32_t exponent = static_cast<int32_t>(n) + 127;
  return x < -87.0f ? 0.0f : sum * std::bit_cast<float>(exponent << 23);
}

// Row i of a tile [rows, keys] sees the first `seen` + i keys. The scores of others become -1e30, in whole vectors up
// to the count that this returns, and 0 after it.
inline int64_t mask_scores(float* scores, int64_t keys, int64_t seen) {
  const int64_t count = std::min(keys, (seen + 15) / 16 * 16);
  if (seen < count) std::fill(scores + seen, scores + count, -1e30f);
  std::fill(scores + count, scores + keys, 0.0f);
  return count;
}

// Scores become probabilities. logarithms: of each row's sum of exponentials (log-sum-exp).
FF_VECTORIZED void softmax_rows(float* scores, int64_t rows, int64_t keys, int64_t seen, float* logarithms) {
  for (int64_t row = 0; row < rows; ++row, scores += keys) {
    const int64_t count = mask_scores(scores, keys, seen + row);
    float largest = scores[0], sum = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t key = 0; key < count; ++key) largest = scores[key] > largest ? scores[key] : largest;
#pragma omp simd reduction(+ : sum)
    for (int64_t key = 0; key < count; ++key) sum += scores[key] = exponential(scores[key] - largest);
    const float factor = 1.0f / sum;
    for (int64_t key = 0; key < count; ++key) scores[key] *= factor;
    logarithms[row] = largest + std::log(sum);
  }
}

// The same probabilities from these logarithms.
FF_VECTORIZED void probabilities_again(float* scores, int64_t rows, int64_t keys, int64_t seen,
                                       const float* logarithms) {
  for (int64_t row = 0; row < rows; ++row, scores += keys) {
    const int64_t count = mask_scores(scores, keys, seen + row);
    const float logarithm = logarithms[row];
    for (int64_t key = 0; key < count; ++key) scores[key] = exponential(scores[key] - logarithm);
  }
}

// Gradients of the scores, in place of those of the probabilities. The sum over a row of probability times gradient is
// the product of that row's output and output gradient [channels], both `stride` apart (Dao et al. 2022, arXiv
// 2205.14135, appendix B.2).
FF_VECTORIZED void score_gradients(const float* probabilities, const float* output, const float* output_gradient,
                                   int64_t stride, int64_t channels, int64_t rows, int64_t keys, float* gradients) {
  for (int64_t row = 0; row < rows; ++row, probabilities += keys, gradients += keys) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < channels; ++c) sum += output[row * stride + c] * output_gradient[row * stride + c];
    for (int64_t key = 0; key < keys; ++key) gradients[key] = probabilities[key] * (gradients[key] - sum);
  }
}

// Scores and probabilities are never there as a whole: a tile of queries has those of all of its keys, forward and
// backward, which computes them again. Per query the logarithm of its sum of exponentials is kept.
class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), attention_(attention), layout_(attention.projected(part)), samples_(part[0].size()),
        key_heads_(part[1].size()), heads_(key_heads_ * attention.group), length_(attention.length),
        channels_(attention.channels), head_channels_(attention.head_channels),
        scale_(1.0f / std::sqrt(static_cast<float>(attention.head_channels))), tile_rows_(attention.tile_queries()) {
    projected_.resize(layout_.size());
    projected_gradients_.resize(projected_.size());
    logarithms_.resize(samples_ * heads_ * length_);
    probabilities_.resize(tile_rows_ * length_);
    gradients_.resize(probabilities_.size());
    for (const auto& matrix : layout_.matrices) projections_.push_back(make_projection(matrix.width));
    if (attention.rotary()) fill_rotation();
  }

  void forward(const KernelArguments& arguments) override {
    context_.use_threads();
    project(arguments);
    if (attention_.rotary()) turn_queries_and_keys(projected_, 1);
    float* const probabilities = probabilities_.data();
    for_each_tile([&](const Tile& tile) {
      compute_scores(tile, probabilities);
      softmax_rows(probabilities, tile.rows, tile.keys, tile.seen, logarithms_.data() + tile.row);
      multiply_matrices('N', 'N', tile.rows, head_channels_, tile.keys, probabilities, tile.keys,
                        projected_.data() + tile.value, layout_.key_stride, 0, arguments.outputs[0] + tile.output,
                        layout_.query_width);
    });
  }

  void backward(const KernelArguments& arguments) override {
    context_.use_threads();
    float *const probabilities = probabilities_.data(), *const gradients = gradients_.data();
    for_each_tile([&](const Tile& tile) {
      const int64_t rows = tile.rows, keys = tile.keys, width = layout_.query_width;
      const float *output_gradient = arguments.output_gradients[0] + tile.output,
                  *query = projected_.data() + tile.query;
      const float add = tile.first_of_keys ? 0 : 1;
      compute_scores(tile, probabilities);
      probabilities_again(probabilities, rows, keys, tile.seen, logarithms_.data() + tile.row);
      multiply_matrices('T', 'N', keys, head_channels_, rows, probabilities, keys, output_gradient, width, add,
                        projected_gradients_.data() + tile.value, layout_.key_stride);
      multiply_matrices('N', 'T', rows, keys, head_channels_, output_gradient, width, projected_.data() + tile.value,
                        layout_.key_stride, 0, gradients, keys);
      score_gradients(probabilities, arguments.outputs[0] + tile.output, output_gradient, width, head_channels_, rows,
                      keys, gradients);
      multiply_matrices('N', 'N', rows, head_channels_, keys, gradients, keys, projected_.data() + tile.key,
                        layout_.key_stride, 0, projected_gradients_.data() + tile.query, layout_.query_stride, scale_);
      multiply_matrices('T', 'N', keys, head_channels_, rows, gradients, keys, query, layout_.query_stride, add,
                        projected_gradients_.data() + tile.key, layout_.key_stride, scale_);
    });
    if (attention_.rotary()) turn_queries_and_keys(projected_gradients_, -1);
    project_gradients(arguments);
  }

  int64_t workspace_bytes() const override {
    return static_cast<int64_t>((projected_.size() + probabilities_.size()) * 2 + logarithms_.size() + cosines_.size() +
                                sines_.size()) *
           static_cast<int64_t>(sizeof(float));
  }

 private:
  // Some queries of a sample's head: where they and their keys and values begin in projected_, their channels in the
  // output, and the first query among those of all samples and heads.
  struct Tile {
    int64_t query, key, value, output, row, rows;
    int64_t keys, seen;  // that any of the queries sees, and that the first one sees
    bool first_of_keys;  // no other tile comes before it with these keys and values
  };

  // The last tile of a head comes first: it has all keys where the mask is causal.
  template <class Visit>
  void for_each_tile(const Visit& visit) {
    for (int64_t s = 0; s < samples_; ++s)
      for (int64_t h = 0; h < heads_; ++h) {
        const int64_t key_head = h / attention_.group;
        const int64_t key = layout_.keys + s * length_ * layout_.key_stride + key_head * head_channels_;
        for (int64_t first = (length_ - 1) / tile_rows_ * tile_rows_; first >= 0; first -= tile_rows_) {
          const int64_t row = s * length_ + first, rows = std::min(tile_rows_, length_ - first);
          visit({row * layout_.query_stride + h * head_channels_, key, key + layout_.key_width,
                 row * layout_.query_width + h * head_channels_, (s * heads_ + h) * length_ + first, rows,
                 attention_.causal ? first + rows : length_, attention_.causal ? first + 1 : length_,
                 h % attention_.group == 0 && first + rows == length_});
        }
      }
  }

  void compute_scores(const Tile& tile, float* scores) const {
    multiply_matrices('N', 'T', tile.rows, tile.keys, head_channels_, projected_.data() + tile.query,
                      layout_.query_stride, projected_.data() + tile.key, layout_.key_stride, 0, scores, tile.keys,
                      scale_);
  }

  Primitive make_projection(int64_t outputs) const {
    using dnnl::memory;
    const memory::desc input = row_major({layout_.rows, channels_}), output = row_major({layout_.rows, outputs}),
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
    const size_t count = projections_.size();
    for (size_t p = 0; p < count; ++p) {
      float* output = projected_.data() + layout_.matrices[p].begin;
      if (attention_.bias)
        projections_[p].run(context_, {{DNNL_ARG_SRC, arguments.inputs[0]},
                                       {DNNL_ARG_WEIGHTS, arguments.parameters[p]},
                                       {DNNL_ARG_BIAS, arguments.parameters[p + count]},
                                       {DNNL_ARG_DST, output}});
      else
        projections_[p].run(
            context_,
            {{DNNL_ARG_SRC, arguments.inputs[0]}, {DNNL_ARG_WEIGHTS, arguments.parameters[p]}, {DNNL_ARG_DST, output}});
    }
  }

  void project_gradients(const KernelArguments& arguments) {
    const float* input = static_cast<const float*>(arguments.inputs[0]);
    const size_t count = layout_.matrices.size();
    for (size_t p = 0; p < count; ++p) {
      const int64_t outputs = layout_.matrices[p].width;
      const float* gradients = projected_gradients_.data() + layout_.matrices[p].begin;
      multiply_matrices('T', 'N', outputs, channels_, layout_.rows, gradients, outputs, input, channels_,
                        arguments.accumulates(p) ? 1 : 0, arguments.parameter_gradients[p], channels_);
      if (attention_.bias)
        sum_rows(gradients, layout_.rows, outputs, arguments.parameter_gradients[p + count],
                 arguments.accumulates(p + count));
      if (arguments.input_gradients[0])
        multiply_matrices('N', 'N', layout_.rows, channels_, outputs, gradients, outputs, arguments.parameters[p],
                          channels_, p == 0 ? 0 : 1, arguments.input_gradients[0], channels_);
    }
  }

  // In double precision: far along a sequence an angle in single precision is off by more than the sine's rounding.
  void fill_rotation() {
    const int64_t half = attention_.rotary_channels / 2;
    for (int64_t position = 0; position < length_; ++position)
      for (int64_t channel = 0; channel < half; ++channel) {
        const double exponent = static_cast<double>(channel) / static_cast<double>(half),
                     angle = static_cast<double>(position) / std::pow(attention_.rotary_base, exponent);
        cosines_.push_back(static_cast<float>(std::cos(angle)));
        sines_.push_back(static_cast<float>(std::sin(angle)));
      }
  }

  void turn_queries_and_keys(Vector<float>& values, float direction) const {
    const auto turn_heads = [&](int64_t begin, int64_t stride, int64_t heads) {
      turn(values.data() + begin, layout_.rows, stride, heads, head_channels_, length_, attention_.rotary_channels / 2,
           cosines_.data(), sines_.data(), direction);
    };
    turn_heads(0, layout_.query_stride, heads_);
    turn_heads(layout_.keys, layout_.key_stride, key_heads_);
  }

  const Context& context_;
  const MultiHeadAttention& attention_;
  MultiHeadAttention::Projected layout_;
  int64_t samples_, key_heads_, heads_;  // of the part
  int64_t length_, channels_, head_channels_;
  float scale_;
  int64_t tile_rows_;
  Vector<Primitive> projections_;                  // one a weight
  Vector<float> projected_, projected_gradients_;  // as layout_ says
  Vector<float> logarithms_;                       // [samples, heads, length], of each query's sum of exponentials
  Vector<float> probabilities_, gradients_;        // of a tile
  Vector<float> cosines_, sines_;                  // [length, rotary_channels / 2]; empty without rotary positions
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
