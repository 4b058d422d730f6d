#include "common/kernels/cpu/attention_tiles.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/kernels/cpu/kernels.h"

namespace ff::cpu {
namespace {

// Turns channels i and i + half of each head [width], the heads of a row lying together, by the angle of the row's
// position with these cosines and sines [.., half]; direction 1, or -1 to turn back, as gradients are. A sample has
// `positions` rows, from `first_position` on.
FF_VECTORIZED void turn(float* values, int64_t rows, int64_t stride, int64_t heads, int64_t width,
                        int64_t first_position, int64_t positions, int64_t half, const float* cosines,
                        const float* sines, float direction) {
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t position = first_position + row % positions;
    const float *cosine = cosines + position * half, *sine = sines + position * half;
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

}  // namespace

AttentionTiles::AttentionTiles(const MultiHeadAttention& attention, const Block& part)
    : attention_(attention), layout_(attention.projected(part)), samples_(part[0].size()), key_heads_(part[2].size()),
      heads_(key_heads_ * attention.group), head_channels_(attention.head_channels),
      scale_(1.0f / std::sqrt(static_cast<float>(attention.head_channels))), tile_rows_(attention.tile_queries(part)) {
  projected_.resize(layout_.size());
  projected_gradients_.resize(projected_.size());
  logarithms_.resize(samples_ * heads_ * layout_.queries);
  probabilities_.resize(tile_rows_ * layout_.positions);
  gradients_.resize(probabilities_.size());
  if (attention.rotary()) fill_rotation();
}

// The last tile of a head comes first: it has all keys where the mask is causal.
template <class Visit>
void AttentionTiles::for_each_tile(const Visit& visit) const {
  const int64_t queries = layout_.queries;
  for (int64_t s = 0; s < samples_; ++s)
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t key_head = h / attention_.group;
      const int64_t key = layout_.keys + s * layout_.positions * layout_.key_stride + key_head * head_channels_;
      for (int64_t first = (queries - 1) / tile_rows_ * tile_rows_; first >= 0; first -= tile_rows_) {
        const int64_t row = s * queries + first, rows = std::min(tile_rows_, queries - first);
        const int64_t position = layout_.first_query + first;
        visit({row * layout_.query_stride + h * head_channels_, key, key + layout_.key_width,
               row * layout_.query_width + h * head_channels_, (s * heads_ + h) * queries + first, rows,
               attention_.causal ? position + rows : layout_.positions,
               attention_.causal ? position + 1 : layout_.positions,
               h % attention_.group == 0 && first + rows == queries});
      }
    }
}

void AttentionTiles::forward(float* result) {
  if (attention_.rotary()) turn_queries_and_keys(projected_, 1);
  float* const probabilities = probabilities_.data();
  for_each_tile([&](const Tile& tile) {
    compute_scores(tile, probabilities);
    softmax_rows(probabilities, tile.rows, tile.keys, tile.seen, logarithms_.data() + tile.row);
    multiply_matrices('N', 'N', tile.rows, head_channels_, tile.keys, probabilities, tile.keys,
                      projected_.data() + tile.value, layout_.key_stride, 0, result + tile.output, layout_.query_width);
  });
}

void AttentionTiles::backward(const float* output, const float* gradient_of_output) {
  float *const probabilities = probabilities_.data(), *const gradients = gradients_.data();
  for_each_tile([&](const Tile& tile) {
    const int64_t rows = tile.rows, keys = tile.keys, width = layout_.query_width;
    const float *output_gradient = gradient_of_output + tile.output, *query = projected_.data() + tile.query;
    const float add = tile.first_of_keys ? 0 : 1;
    compute_scores(tile, probabilities);
    probabilities_again(probabilities, rows, keys, tile.seen, logarithms_.data() + tile.row);
    multiply_matrices('T', 'N', keys, head_channels_, rows, probabilities, keys, output_gradient, width, add,
                      projected_gradients_.data() + tile.value, layout_.key_stride);
    multiply_matrices('N', 'T', rows, keys, head_channels_, output_gradient, width, projected_.data() + tile.value,
                      layout_.key_stride, 0, gradients, keys);
    score_gradients(probabilities, output + tile.output, output_gradient, width, head_channels_, rows, keys, gradients);
    multiply_matrices('N', 'N', rows, head_channels_, keys, gradients, keys, projected_.data() + tile.key,
                      layout_.key_stride, 0, projected_gradients_.data() + tile.query, layout_.query_stride, scale_);
    multiply_matrices('T', 'N', keys, head_channels_, rows, gradients, keys, query, layout_.query_stride, add,
                      projected_gradients_.data() + tile.key, layout_.key_stride, scale_);
  });
  if (attention_.rotary()) turn_queries_and_keys(projected_gradients_, -1);
}

int64_t AttentionTiles::workspace_bytes() const {
  return static_cast<int64_t>((projected_.size() + probabilities_.size()) * 2 + logarithms_.size() + cosines_.size() +
                              sines_.size()) *
         static_cast<int64_t>(sizeof(float));
}

void AttentionTiles::compute_scores(const Tile& tile, float* scores) const {
  multiply_matrices('N', 'T', tile.rows, tile.keys, head_channels_, projected_.data() + tile.query,
                    layout_.query_stride, projected_.data() + tile.key, layout_.key_stride, 0, scores, tile.keys,
                    scale_);
}

// In double precision: far along a sequence an angle in single precision is off by more than the sine's rounding.
void AttentionTiles::fill_rotation() {
  const int64_t half = attention_.rotary_channels / 2;
  for (int64_t position = 0; position < layout_.positions; ++position)
    for (int64_t channel = 0; channel < half; ++channel) {
      const double exponent = static_cast<double>(channel) / static_cast<double>(half),
                   angle = static_cast<double>(position) / std::pow(attention_.rotary_base, exponent);
      cosines_.push_back(static_cast<float>(std::cos(angle)));
      sines_.push_back(static_cast<float>(std::sin(angle)));
    }
}

void AttentionTiles::turn_queries_and_keys(Vector<float>& values, float direction) const {
  const auto turn_heads = [&](int64_t begin, int64_t stride, int64_t heads, int64_t first, int64_t positions) {
    turn(values.data() + begin, samples_ * positions, stride, heads, head_channels_, first, positions,
         attention_.rotary_channels / 2, cosines_.data(), sines_.data(), direction);
  };
  turn_heads(0, layout_.query_stride, heads_, layout_.first_query, layout_.queries);
  turn_heads(layout_.keys, layout_.key_stride, key_heads_, 0, layout_.positions);
}

}  // namespace ff::cpu
