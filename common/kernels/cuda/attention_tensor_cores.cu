// The products of attention on tensor cores, in TF32: operands are rounded to ten bits of mantissa, products are exact
// and added up in f32, and so is the softmax. Of compute capability 8.0 and newer.
//
// As attention_products.cu: tiles of queries by tiles of keys, an online softmax, no scores in memory, two kernels
// backward. A warp has 16 rows of its own, queries or, for the gradients of keys and values, keys. Their channels are
// in registers all the while as left operands, its results as sums. The block takes 32 rows of the others at a time
// into shared memory. Scores come as sums in registers, in an order that CUDA leaves open; so they go through a strip
// of shared memory of the warp, 16 rows by 32 or 16 columns, from which the softmax takes them by rows, and products
// take probabilities as left operands.
//
// Strides in shared memory are such that the lanes of a warp read from different banks: 4 times an odd number where
// lanes with neighbouring numbers read along rows (operands by columns), 8 times an odd number where they read down a
// column. Where a tile is read both ways, the second takes twice as long.
#include <mma.h>

#include "common/kernels/cuda/attention_tensors.cuh"
#include "common/kernels/cuda/device.cuh"

namespace ff::cuda {
namespace {

// Not for older devices, where the host takes others. Code compiled for those ends with an error on newer ones.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define FF_TENSOR_CORES 1
#endif

constexpr int warp_rows = 16, step_rows = 32;

#ifdef FF_TENSOR_CORES

namespace wmma = nvcuda::wmma;

using Left = wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major>;
template <class Layout>
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, Layout>;
using Sums = wmma::fragment<wmma::accumulator, 16, 16, 8, float>;

__device__ inline int lane_number() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_number() { return static_cast<int>(threadIdx.x) / 32; }

__device__ inline float4 rounded(float4 values) {
  return make_float4(wmma::__float_to_tf32(values.x), wmma::__float_to_tf32(values.y), wmma::__float_to_tf32(values.z),
                     wmma::__float_to_tf32(values.w));
}

// A warp's memory of 16 rows.
template <int columns>
struct alignas(32) Strip {
  static constexpr int stride = columns + 4;
  float of[warp_rows * stride];
};

// The row and column, of a matrix of 16 x 16 sums, that element i of a lane's fragment is.
class Places {
 public:
  template <int columns>
  __device__ explicit Places(Strip<columns>& strip) {
    for (int place = lane_number(); place < 256; place += 32)
      strip.of[place / 16 * strip.stride + place % 16] = static_cast<float>(place);
    __syncwarp();
    Sums places;
    wmma::load_matrix_sync(places, strip.of, strip.stride, wmma::mem_row_major);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) packed_[i / 4] |= static_cast<uint32_t>(places.x[i]) << 8 * (i % 4);
  }
  __device__ int row(int i) const { return static_cast<int>(packed_[i / 4] >> (8 * (i % 4) + 4) & 15); }
  __device__ int column(int i) const { return static_cast<int>(packed_[i / 4] >> 8 * (i % 4) & 15); }

 private:
  uint32_t packed_[2] = {0, 0};
};

// Rows from `first` on, rounded, by all threads of the block.
template <int columns, int stride, int threads>
__device__ void load_tile(const HeadRows& rows, int64_t first, float* tile) {
  constexpr int fours = columns / 4, count = step_rows * fours / threads;
  static_assert(step_rows * fours % threads == 0);
  float4 values[count];
  const auto place_of = [](int i) { return i * threads + static_cast<int>(threadIdx.x); };
  rows.from(first).read_fours(
      values, [&](int i) { return place_of(i) / fours; }, [&](int i) { return place_of(i) % fours * 4; });
#pragma unroll
  for (int i = 0; i < count; ++i) {
    const int place = place_of(i);
    *reinterpret_cast<float4*>(tile + place / fours * stride + place % fours * 4) = rounded(values[i]);
  }
}

// The warp's rows from `first` on, rounded.
template <int columns, int width>
__device__ void load_left(const HeadRows& rows, int64_t first, Strip<width>& strip, Left (&left)[columns / 8]) {
  const TileRows tile = rows.from(first);
  const int row = lane_number() / 4, channel = lane_number() % 4 * 4;
#pragma unroll
  for (int begin = 0; begin < columns; begin += 16) {
    float4 values[2];
    tile.read_fours(
        values, [&](int i) { return row + 8 * i; }, [&](int) { return begin + channel; });
#pragma unroll
    for (int i = 0; i < 2; ++i)
      *reinterpret_cast<float4*>(strip.of + (row + 8 * i) * strip.stride + channel) = rounded(values[i]);
    __syncwarp();
    wmma::load_matrix_sync(left[begin / 8], strip.of, strip.stride);
    wmma::load_matrix_sync(left[begin / 8 + 1], strip.of + 8, strip.stride);
    __syncwarp();
  }
}

// result [16, columns] += left [16, 8 steps], in shared memory, times as many rows of `right`.
template <int columns, int stride, int steps, int width>
__device__ void add_products(const Strip<width>& left, const float* right, Sums (&result)[columns / 16]) {
#pragma unroll
  for (int k = 0; k < steps; ++k) {
    Left one;
    wmma::load_matrix_sync(one, left.of + 8 * k, left.stride);
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      Right<wmma::row_major> other;
      wmma::load_matrix_sync(other, right + 8 * k * stride + 16 * n, stride);
      wmma::mma_sync(result[n], one, other, result[n]);
    }
  }
}

// The warp's rows of the result, from `first` and `first_channel` on.
template <int columns, int width>
__device__ void store_result(const Sums (&values)[columns / 16], Strip<width>& strip, const HeadRows& rows,
                             int64_t first, int64_t first_channel, float* result) {
#pragma unroll
  for (int n = 0; n < columns / 16; ++n) {
    wmma::store_matrix_sync(strip.of, values[n], strip.stride, wmma::mem_row_major);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int place = 32 * i + lane_number(), row = place / 4, channel = place % 4 * 4;
      rows.store_four(result, first + row, static_cast<int>(first_channel) + 16 * n + channel,
                      *reinterpret_cast<const float4*>(strip.of + row * strip.stride + channel));
    }
    __syncwarp();
  }
}

// Probabilities in place of the strip's scores, rounded. Two lanes have a row, 16 columns each; the row sees the first
// `visible` columns. Corrects largest score and total so far, whose correction is the result.
__device__ inline float online_softmax(Strip<step_rows>& strip, int visible, float scale, float& largest,
                                       float& total) {
  float* const scores = strip.of + lane_number() / 2 * strip.stride + lane_number() % 2 * 16;
  visible -= lane_number() % 2 * 16;
  float values[16], largest_here = largest, sum = 0;
#pragma unroll
  for (int c = 0; c < 16; c += 4) {
    const float4 four = *reinterpret_cast<const float4*>(scores + c);
    values[c] = four.x, values[c + 1] = four.y, values[c + 2] = four.z, values[c + 3] = four.w;
  }
#pragma unroll
  for (int c = 0; c < 16; ++c)
    if (c < visible) largest_here = fmaxf(largest_here, values[c]);
  largest_here = fmaxf(largest_here, __shfl_xor_sync(0xffffffffu, largest_here, 1));
  const float factor = scale * log2_e, least = largest_here * factor;
#pragma unroll
  for (int c = 0; c < 16; ++c) {
    values[c] = c < visible ? exp2f(values[c] * factor - least) : 0.0f;
    sum += values[c];
  }
#pragma unroll
  for (int c = 0; c < 16; c += 4)
    *reinterpret_cast<float4*>(scores + c) =
        rounded(make_float4(values[c], values[c + 1], values[c + 2], values[c + 3]));
  const float correction = exp2f((largest - largest_here) * factor);
  largest = largest_here;
  total = total * correction + sum + __shfl_xor_sync(0xffffffffu, sum, 1);
  return correction;
}

#endif  // FF_TENSOR_CORES

template <int columns>
constexpr int forward_warps = columns <= 64 ? 8 : 4;

template <int columns>
struct alignas(32) ForwardMemory {
  static constexpr int key_stride = columns + 4, value_stride = columns + 8;
  float keys[step_rows * key_stride], values[step_rows * value_stride];
#ifdef FF_TENSOR_CORES
  Strip<step_rows> strips[forward_warps<columns>];
#endif
  float factors[forward_warps<columns>][warp_rows];
};

template <int columns>
__global__ void __launch_bounds__(32 * forward_warps<columns>, 2) attention_tensor_core_kernel(AttentionTensors t) {
#ifdef FF_TENSOR_CORES
  constexpr int warps = forward_warps<columns>, tile = warps * warp_rows;
  using Memory = ForwardMemory<columns>;
  __shared__ Memory memory;
  const TilePlace place(t, t.heads, t.query_rows, tile, columns, /*last_first=*/true);
  const int64_t key_offset = t.key_offset(place.sample, place.head / t.group),
                output_offset = t.output_offset(place.sample, place.head);
  const HeadRows keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset),
                 outputs = t.of_queries(nullptr, t.output_stride);
  const int64_t first = place.first + warp_number() * warp_rows, query = first + lane_number() / 2;
  Strip<step_rows>& strip = memory.strips[warp_number()];
  float* const factors = memory.factors[warp_number()];
  const Places places(strip);
  Left queries[columns / 8];
  load_left<columns>(t.of_queries(t.queries + t.query_offset(place.sample, place.head), t.query_stride), first, strip,
                     queries);
  Sums result[columns / 16];
  for (Sums& sums : result) wmma::fill_fragment(sums, 0.0f);
  float largest = -FLT_MAX, total = 0;  // of two lanes' query
  const auto correct = [&](float factor) {
    if (lane_number() % 2 == 0) factors[lane_number() / 2] = factor;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float one = factors[places.row(i)];
#pragma unroll
      for (int n = 0; n < columns / 16; ++n) result[n].x[i] *= one;
    }
  };
  const int64_t last = t.keys_end(place.first, tile), last_of_warp = t.keys_end(first, warp_rows);
  for (int64_t first_key = 0; first_key < last; first_key += step_rows) {
    load_tile<columns, Memory::key_stride, 32 * warps>(keys, first_key, memory.keys);
    load_tile<columns, Memory::value_stride, 32 * warps>(values, first_key, memory.values);
    __syncthreads();
    if (first < t.query_rows && first_key < last_of_warp) {
      Sums scores[2];
      for (Sums& sums : scores) wmma::fill_fragment(sums, 0.0f);
#pragma unroll
      for (int k = 0; k < columns / 8; ++k)
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          Right<wmma::col_major> right;
          wmma::load_matrix_sync(right, memory.keys + 16 * n * Memory::key_stride + 8 * k, Memory::key_stride);
          wmma::mma_sync(scores[n], queries[k], right, scores[n]);
        }
      for (int n = 0; n < 2; ++n)
        wmma::store_matrix_sync(strip.of + 16 * n, scores[n], strip.stride, wmma::mem_row_major);
      __syncwarp();
      const int visible = t.visible(query, first_key, step_rows);
      const float correction = online_softmax(strip, visible, t.scale, largest, total);
      correct(correction);
      add_products<columns, Memory::value_stride, step_rows / 8>(strip, memory.values, result);
    }
    __syncthreads();
  }
  if (first >= t.query_rows) return;
  if (lane_number() % 2 == 0 && query < t.query_rows)
    t.logarithms[(place.sample * t.heads + place.head) * t.query_rows + query] = largest * t.scale + logf(total);
  correct(1 / total);
  store_result<columns>(result, strip, outputs, first, 0, t.output + output_offset);
#else
  __trap();
#endif
}

#ifdef FF_TENSOR_CORES

// Of a query: the logarithm of its sum of exponentials, base 2, and the product of its output and gradient.
__device__ inline float2 statistics_of(const AttentionTensors& t, int64_t sample, int64_t head, int64_t query) {
  const int64_t at = (sample * t.heads + head) * t.query_rows + query;
  return query < t.query_rows ? make_float2(t.logarithms[at] * log2_e, t.products[at]) : make_float2(0, 0);
}

// Of 16 of the warp's own rows and 16 rows of two tiles: scores, and gradients of probabilities.
template <int columns, int stride>
__device__ void add_scores_and_changes(const Left (&scored)[columns / 8], const float* scored_tile,
                                       const Left (&changed)[columns / 8], const float* changed_tile, Sums& scores,
                                       Sums& changes) {
  wmma::fill_fragment(scores, 0.0f);
  wmma::fill_fragment(changes, 0.0f);
#pragma unroll
  for (int k = 0; k < columns / 8; ++k) {
    Right<wmma::col_major> right;
    wmma::load_matrix_sync(right, scored_tile + 8 * k, stride);
    wmma::mma_sync(scores, scored[k], right, scores);
    wmma::load_matrix_sync(right, changed_tile + 8 * k, stride);
    wmma::mma_sync(changes, changed[k], right, changes);
  }
}

#endif  // FF_TENSOR_CORES

constexpr int backward_warps = 4, backward_tile = backward_warps * warp_rows;

// Gradients of a tile of queries.
template <int columns>
__global__ void __launch_bounds__(32 * backward_warps, columns <= 64 ? 3 : 2)
    query_gradients_tensor_core_kernel(AttentionTensors t) {
#ifdef FF_TENSOR_CORES
  constexpr int stride = columns + 4;
  struct alignas(32) Memory {
    float keys[step_rows * stride], values[step_rows * stride];
    Strip<16> strips[backward_warps];
    float2 statistics[backward_warps][warp_rows];
  };
  __shared__ Memory memory;
  const TilePlace place(t, t.heads, t.query_rows, backward_tile, columns, /*last_first=*/true);
  const int64_t query_offset = t.query_offset(place.sample, place.head),
                key_offset = t.key_offset(place.sample, place.head / t.group);
  const HeadRows queries = t.of_queries(t.queries + query_offset, t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  const int64_t first = place.first + warp_number() * warp_rows;
  Strip<16>& strip = memory.strips[warp_number()];
  float2* const statistics = memory.statistics[warp_number()];
  const Places places(strip);
  Left left_queries[columns / 8], left_gradients[columns / 8];
  load_left<columns>(queries, first, strip, left_queries);
  load_left<columns>(t.of_queries(t.output_gradient + t.output_offset(place.sample, place.head), t.output_stride),
                     first, strip, left_gradients);
  if (lane_number() < warp_rows)
    statistics[lane_number()] = statistics_of(t, place.sample, place.head, first + lane_number());
  __syncwarp();
  Sums result[columns / 16];
  for (Sums& sums : result) wmma::fill_fragment(sums, 0.0f);
  const int64_t last = t.keys_end(place.first, backward_tile), last_of_warp = t.keys_end(first, warp_rows);
  for (int64_t first_key = 0; first_key < last; first_key += step_rows) {
    load_tile<columns, stride, 32 * backward_warps>(keys, first_key, memory.keys);
    load_tile<columns, stride, 32 * backward_warps>(values, first_key, memory.values);
    __syncthreads();
    for (int begin = 0; begin < step_rows && first < t.query_rows && first_key + begin < last_of_warp; begin += 16) {
      Sums scores, changes;
      add_scores_and_changes<columns, stride>(left_queries, memory.keys + begin * stride, left_gradients,
                                              memory.values + begin * stride, scores, changes);
      const int of_first = t.visible(first, first_key + begin, warp_rows),
                of_last = t.visible(first + warp_rows - 1, first_key + begin, warp_rows);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float2 of_query = statistics[places.row(i)];
        const float probability = exp2f(scores.x[i] * (t.scale * log2_e) - of_query.x);
        const bool seen = places.column(i) < min(of_first + (t.causal ? places.row(i) : 0), of_last);
        scores.x[i] = seen ? wmma::__float_to_tf32(t.scale * probability * (changes.x[i] - of_query.y)) : 0.0f;
      }
      wmma::store_matrix_sync(strip.of, scores, strip.stride, wmma::mem_row_major);
      __syncwarp();
      add_products<columns, stride, 2>(strip, memory.keys + begin * stride, result);
      __syncwarp();
    }
    __syncthreads();
  }
  if (first < t.query_rows) store_result<columns>(result, strip, queries, first, 0, t.query_gradients + query_offset);
#else
  __trap();
#endif
}

// Gradients of a tile of keys and values, from all queries that use them; `part` of their channels.
template <int columns, int part>
__global__ void __launch_bounds__(32 * backward_warps, columns <= 32 ? 3 : 2)
    key_gradients_tensor_core_kernel(AttentionTensors t) {
#ifdef FF_TENSOR_CORES
  constexpr int stride = columns + 4;
  struct alignas(32) Memory {
    float queries[step_rows * stride], gradients[step_rows * stride];
    Strip<16> probabilities[backward_warps], changes[backward_warps];
    float2 statistics[step_rows];
  };
  __shared__ Memory memory;
  const TilePlace place(t, t.heads / t.group, t.key_rows, backward_tile, part, /*last_first=*/false);
  const int64_t key_offset = t.key_offset(place.sample, place.head);
  const HeadRows keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  const int64_t first = place.first + warp_number() * warp_rows;
  Strip<16>&probability_strip = memory.probabilities[warp_number()], &change_strip = memory.changes[warp_number()];
  const Places places(probability_strip);
  Left left_keys[columns / 8], left_values[columns / 8];
  load_left<columns>(keys, first, probability_strip, left_keys);
  load_left<columns>(values, first, probability_strip, left_values);
  Sums of_keys[part / 16], of_values[part / 16];
  for (Sums& sums : of_keys) wmma::fill_fragment(sums, 0.0f);
  for (Sums& sums : of_values) wmma::fill_fragment(sums, 0.0f);
  for (int64_t head = place.head * t.group; head < (place.head + 1) * t.group; ++head) {
    const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, head), t.query_stride),
                   gradients = t.of_queries(t.output_gradient + t.output_offset(place.sample, head), t.output_stride);
    for (int64_t first_query = t.queries_begin(place.first, step_rows); first_query < t.query_rows;
         first_query += step_rows) {
      load_tile<columns, stride, 32 * backward_warps>(queries, first_query, memory.queries);
      load_tile<columns, stride, 32 * backward_warps>(gradients, first_query, memory.gradients);
      if (threadIdx.x < step_rows)
        memory.statistics[threadIdx.x] =
            statistics_of(t, place.sample, head, first_query + static_cast<int64_t>(threadIdx.x));
      __syncthreads();
      for (int begin = 0; begin < step_rows && first < t.key_rows; begin += 16) {
        if (first >= t.keys_end(first_query + begin, warp_rows))
          continue;  // none of these queries sees one of the keys
        Sums scores, changes;
        add_scores_and_changes<columns, stride>(left_keys, memory.queries + begin * stride, left_values,
                                                memory.gradients + begin * stride, scores, changes);
        const int of_first = t.visible(first_query + begin, first, warp_rows);  // of the first query
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float2 of_query = memory.statistics[begin + places.column(i)];
          const bool seen = places.row(i) < of_first + (t.causal ? places.column(i) : 0);
          const float probability = seen ? exp2f(scores.x[i] * (t.scale * log2_e) - of_query.x) : 0.0f;
          scores.x[i] = wmma::__float_to_tf32(probability);
          changes.x[i] = wmma::__float_to_tf32(t.scale * probability * (changes.x[i] - of_query.y));
        }
        wmma::store_matrix_sync(probability_strip.of, scores, probability_strip.stride, wmma::mem_row_major);
        wmma::store_matrix_sync(change_strip.of, changes, change_strip.stride, wmma::mem_row_major);
        __syncwarp();
        const int64_t right = begin * stride + place.first_channel;
        add_products<part, stride, 2>(probability_strip, memory.gradients + right, of_values);
        add_products<part, stride, 2>(change_strip, memory.queries + right, of_keys);
        __syncwarp();
      }
      __syncthreads();
    }
  }
  if (first >= t.key_rows) return;
  store_result<part>(of_keys, change_strip, keys, first, place.first_channel, t.key_gradients + key_offset);
  store_result<part>(of_values, change_strip, values, first, place.first_channel, t.value_gradients + key_offset);
#else
  __trap();
#endif
}

template <int columns>
void launch_kernels(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  if (!backward) {
    constexpr int warps = forward_warps<columns>;
    launch(context, tile_blocks(t, samples, t.heads, t.query_rows, warps * warp_rows, columns), 32 * warps, 0,
           attention_tensor_core_kernel<columns>, t);
    return;
  }
  constexpr int part = columns <= 96 ? columns : 64;  // more do not fit into registers
  launch(context, tile_blocks(t, samples, t.heads, t.query_rows, backward_tile, columns), 32 * backward_warps, 0,
         query_gradients_tensor_core_kernel<columns>, t);
  launch(context, tile_blocks(t, samples, t.heads / t.group, t.key_rows, backward_tile, part), 32 * backward_warps, 0,
         key_gradients_tensor_core_kernel<columns, part>, t);
}

}  // namespace

bool attention_by_tensor_cores(const Context& context, const AttentionTensors& tensors) {
  return context.precision == Precision::tf32 && context.has_tf32 && tensors.head_channels <= 128;
}

void attention_products_by_tensor_cores(const Context& context, const AttentionTensors& t, int64_t samples,
                                        bool backward) {
  if (t.head_channels <= 32) launch_kernels<32>(context, t, samples, backward);
  else if (t.head_channels <= 64) launch_kernels<64>(context, t, samples, backward);
  else if (t.head_channels <= 96) launch_kernels<96>(context, t, samples, backward);
  else launch_kernels<128>(context, t, samples, backward);
}

}  // namespace ff::cuda
