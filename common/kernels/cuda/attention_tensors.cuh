// What the kernels of attention's products read and write (attention_products.cu, attention_tensor_cores.cu,
// attention_bf16_products.cu).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "common/kernels/bf16.h"
#include "common/kernels/cuda/context.h"
#include "common/operators/attention.h"

namespace ff::cuda {

// Some rows of one head from one on, with offsets that fit into 32 bits; 0 outside.
struct TileRows {
  const float* data;
  int stride, rows, channels;
  bool by_fours;

  // Groups of four channels, from ones that are multiples of 4: that of row(i) from channel(i) on.
  template <int count, class Row, class Channel>
  __device__ void read_fours(float4 (&values)[count], const Row& row, const Channel& channel) const {
    if (by_fours) {
#pragma unroll
      for (int i = 0; i < count; ++i) {
        values[i] = make_float4(0, 0, 0, 0);
        if (row(i) < rows && channel(i) < channels)
          values[i] = *reinterpret_cast<const float4*>(data + row(i) * stride + channel(i));
      }
    } else {
#pragma unroll
      for (int i = 0; i < count; ++i)
        values[i] = make_float4(at(row(i), channel(i)), at(row(i), channel(i) + 1), at(row(i), channel(i) + 2),
                                at(row(i), channel(i) + 3));
    }
  }
  __device__ float at(int row, int channel) const {
    return row < rows && channel < channels ? data[row * stride + channel] : 0.0f;
  }
};

// Rows of one head [length, channels].
struct HeadRows {
  const float* data;
  int64_t stride, rows, channels;
  bool by_fours;  // channels, stride and address are multiples of four numbers

  __device__ TileRows from(int64_t first) const {
    constexpr int64_t most = 1 << 20;
    return {data + first * stride, static_cast<int>(stride), static_cast<int>(min(rows - first, most)),
            static_cast<int>(channels), by_fours};
  }
  // To `result`, which lies as the rows do.
  __device__ void store_four(float* result, int64_t row, int channel, float4 values) const {
    if (row >= rows || channel >= channels) return;
    float* const to = result + row * stride + channel;
    if (by_fours) {
      *reinterpret_cast<float4*>(to) = values;
      return;
    }
    to[0] = values.x;
    if (channel + 1 < channels) to[1] = values.y;
    if (channel + 2 < channels) to[2] = values.z;
    if (channel + 3 < channels) to[3] = values.w;
  }
};

// For all samples and heads. The first of a head's query_rows has the position first_query, the first of its key_rows
// the position 0.
template <class Element>
struct AttentionTensorsOf {
  int64_t query_rows, key_rows, first_query, head_channels, heads, group;
  int64_t query_stride, key_stride, output_stride;  // of positions
  bool causal;
  float scale;
  const Element *queries, *keys, *values;
  Element *query_gradients, *key_gradients, *value_gradients;  // as queries, keys and values
  Element* output;
  const Element* output_gradient;
  float *logarithms, *products;  // [samples, heads, query_rows]; products: of output and its gradient
  bool by_packs;                 // channels, strides and addresses are multiples of 16 bytes

  __device__ int64_t query_offset(int64_t sample, int64_t head) const {
    return sample * query_rows * query_stride + head * head_channels;
  }
  __device__ int64_t key_offset(int64_t sample, int64_t key_head) const {
    return sample * key_rows * key_stride + key_head * head_channels;
  }
  __device__ int64_t output_offset(int64_t sample, int64_t head) const {
    return sample * query_rows * output_stride + head * head_channels;
  }
  __device__ HeadRows of_queries(const float* data, int64_t stride) const {
    return {data, stride, query_rows, head_channels, by_packs};
  }
  __device__ HeadRows of_keys(const float* data) const { return {data, key_stride, key_rows, head_channels, by_packs}; }
  // Behind the last key that a tile of queries sees.
  __device__ int64_t keys_end(int64_t first, int tile) const {
    const int64_t behind = first_query + first + tile;
    return causal && behind < key_rows ? behind : key_rows;
  }
  // How many keys from one on a query sees, at most `most`; 0 or less, at least -most: none.
  __device__ int visible(int64_t query, int64_t first_key, int64_t most) const {
    return static_cast<int>(max(-most, min(most, keys_end(query, 1) - first_key)));
  }
  // The first tile of queries of which one sees these keys.
  __device__ int64_t queries_begin(int64_t first_key, int tile) const {
    return causal && first_key > first_query ? (first_key - first_query) / tile * tile : 0;
  }
};

using AttentionTensors = AttentionTensorsOf<float>;

// `projected` and `gradients` lie as `layout` says.
template <class Element>
AttentionTensorsOf<Element> attention_tensors(const MultiHeadAttention& attention,
                                              const MultiHeadAttention::Projected& layout, Element* projected,
                                              Element* gradients, Element* output, const Element* output_gradient,
                                              float* logarithms, float* products) {
  Element *const keys = projected + layout.keys, *const key_gradients = gradients + layout.keys;
  AttentionTensorsOf<Element> t{.query_rows = layout.queries,
                                .key_rows = layout.positions,
                                .first_query = layout.first_query,
                                .head_channels = attention.head_channels,
                                .heads = layout.query_width / attention.head_channels,
                                .group = attention.group,
                                .query_stride = layout.query_stride,
                                .key_stride = layout.key_stride,
                                .output_stride = layout.query_width,
                                .causal = attention.causal,
                                .scale = 1.0f / std::sqrt(static_cast<float>(attention.head_channels)),
                                .queries = projected,
                                .keys = keys,
                                .values = keys + layout.key_width,
                                .query_gradients = gradients,
                                .key_gradients = key_gradients,
                                .value_gradients = key_gradients + layout.key_width,
                                .output = output,
                                .output_gradient = output_gradient,
                                .logarithms = logarithms,
                                .products = products,
                                .by_packs = true};
  constexpr int64_t bytes = 16, elements = bytes / static_cast<int64_t>(sizeof(Element));
  const auto aligned = [](const Element* memory) { return reinterpret_cast<uintptr_t>(memory) % bytes == 0; };
  t.by_packs = t.head_channels % elements == 0 && t.query_stride % elements == 0 && t.key_stride % elements == 0 &&
               aligned(t.queries) && aligned(t.keys) && aligned(t.values) && aligned(output) &&
               aligned(output_gradient);
  return t;
}

constexpr float log2_e = 1.44269504f;

// Of one query: the logarithm of its sum of exponentials, base 2, and the product of its output and gradient. From a
// score, without its factor: the probability; and from that and its gradient the gradient of the score.
struct QueryStatistics {
  float logarithm = 0, product = 0;
  QueryStatistics() = default;
  __device__ QueryStatistics(const AttentionTensors& t, int64_t sample, int64_t head, int64_t query) {
    if (query >= t.query_rows) return;
    const int64_t at = (sample * t.heads + head) * t.query_rows + query;
    logarithm = t.logarithms[at] * log2_e;
    product = t.products[at];
  }
  __device__ float probability(float score, float scale) const { return exp2f(score * (scale * log2_e) - logarithm); }
  __device__ float score_gradient(float probability, float gradient) const {
    return probability * (gradient - product);
  }
};

// A block's tile of one head's positions, and of its channels.
struct TilePlace {
  int64_t sample, head, first, first_channel;
  // The last tile of a head first, which sees the most keys with a causal mask.
  __device__ TilePlace(const AttentionTensors& t, int64_t heads, int64_t rows, int tile, int columns, bool last_first) {
    const int64_t chunks = (t.head_channels + columns - 1) / columns, tiles = (rows + tile - 1) / tile;
    const int64_t all = blockIdx.x / chunks, of_all_heads = all / tiles, number = all - of_all_heads * tiles;
    sample = of_all_heads / heads;
    head = of_all_heads - sample * heads;
    first = (last_first ? tiles - 1 - number : number) * tile;
    first_channel = (blockIdx.x - all * chunks) * columns;
  }
};

// Blocks of a kernel with a TilePlace.
inline unsigned tile_blocks(const AttentionTensors& t, int64_t samples, int64_t heads, int64_t rows, int tile,
                            int columns) {
  return static_cast<unsigned>(samples * heads * ((rows + tile - 1) / tile) *
                               ((t.head_channels + columns - 1) / columns));
}

// The output, and the logarithms that backward reads; or the gradients of queries, keys and values. By CUDA cores in
// f32, or by tensor cores where the context's precision and device, and the heads' width, allow it.
void attention_products(const Context& context, const AttentionTensors& tensors, int64_t samples, bool backward);

bool attention_by_tensor_cores(const Context& context, const AttentionTensors& tensors);
void attention_products_by_tensor_cores(const Context& context, const AttentionTensors& tensors, int64_t samples,
                                        bool backward);

// The same of bf16, by tensor cores: of heads of at most this many channels, on compute capability 8.0 and newer.
constexpr int64_t most_bf16_head_channels = 128;
void attention_products(const Context& context, const AttentionTensorsOf<Bf16>& tensors, int64_t samples,
                        bool backward);

}  // namespace ff::cuda
