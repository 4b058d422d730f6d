#include "common/kernels/cuda/attention_tensors.cuh"
#include "common/kernels/cuda/device.cuh"

namespace ff::cuda {
namespace {

// The products of attention, by tiles of 64 queries and 64 keys. Neither scores nor probabilities are there as a whole:
// forward takes a tile of keys after the other and corrects what it has so far (online softmax: Milakov and Gimelshein
// 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). Per query it keeps the logarithm of the sum of
// exponentials, from which backward computes the probabilities of a tile again. Each number is a sum in a fixed order:
// backward has a kernel with a block for each tile of queries and one with a block for each tile of keys.
constexpr int tile_edge = 64, depth_step = 16, most_channels = 128;

// 256 threads compute a tile. Thread (r, c) of 16 x 16 has rows 4 r + i and columns c + 16 j.
struct TileMemory {
  float left[depth_step][tile_edge + 1];
  float right[depth_step][most_channels + 1];
  float tile[tile_edge][tile_edge + 1];  // transposed
};
__device__ inline int tile_row(int i) { return static_cast<int>(threadIdx.x) / 16 * 4 + i; }
__device__ inline int tile_column(int j) { return static_cast<int>(threadIdx.x) % 16 + 16 * j; }

// sums [64, columns] += left [64, depth] right [depth, columns], `depth` up to depth_step, in shared memory.
template <int columns>
__device__ void add_panel(const float (*left)[tile_edge + 1], const float (*right)[most_channels + 1], int depth,
                          float (&sums)[4][columns / 16]) {
  for (int k = 0; k < depth; ++k) {
    float of_row[4], of_column[columns / 16];
    for (int i = 0; i < 4; ++i) of_row[i] = left[k][tile_row(i)];
    for (int j = 0; j < columns / 16; ++j) of_column[j] = right[k][tile_column(j)];
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < columns / 16; ++j) sums[i][j] += of_row[i] * of_column[j];
  }
}

// sums [64, 64] += rows from `first_left` on of left, times those from `first_right` on of right, transposed.
__device__ inline void add_product_of_rows(TileMemory& memory, const HeadRows& left, int64_t first_left,
                                           const HeadRows& right, int64_t first_right, float (&sums)[4][4]) {
  for (int64_t begin = 0; begin < left.channels; begin += depth_step) {
    for (int i = static_cast<int>(threadIdx.x); i < tile_edge * depth_step; i += block_threads) {
      const int row = i / depth_step, k = i % depth_step;
      memory.left[k][row] = left.at(first_left + row, begin + k);
      memory.right[k][row] = right.at(first_right + row, begin + k);
    }
    __syncthreads();
    add_panel<tile_edge>(memory.left, memory.right, depth_step, sums);
    __syncthreads();
  }
}

// sums [64, columns] += values [64, 64] times rows from `first_row` on, channels from `first_channel` on.
template <int columns>
__device__ void add_product_with_tile(TileMemory& memory, const float (&values)[4][4], const HeadRows& rows,
                                      int64_t first_row, int64_t first_channel, float (&sums)[4][columns / 16]) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) memory.tile[tile_column(j)][tile_row(i)] = values[i][j];
  for (int begin = 0; begin < tile_edge && first_row + begin < rows.rows; begin += depth_step) {
    for (int i = static_cast<int>(threadIdx.x); i < columns * depth_step; i += block_threads)
      memory.right[i / columns][i % columns] = rows.at(first_row + begin + i / columns, first_channel + i % columns);
    __syncthreads();
    add_panel<columns>(memory.tile + begin, memory.right, depth_step, sums);
    __syncthreads();
  }
}

// Of the 16 threads that have a row's columns; all get the result.
__device__ inline float row_sum(float value) {
  for (int offset = 8; offset > 0; offset /= 2) value += __shfl_xor_sync(0xffffffffu, value, offset);
  return value;
}
__device__ inline float row_max(float value) {
  for (int offset = 8; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
  return value;
}

template <int columns>
__device__ void store_tile(const float (&values)[4][columns / 16], const TilePlace& place, const HeadRows& rows,
                           float* result) {
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < columns / 16; ++j) {
      const int64_t row = place.first + tile_row(i), channel = place.first_channel + tile_column(j);
      if (row < rows.rows && channel < rows.channels) result[row * rows.stride + channel] = values[i][j];
    }
}

template <int columns>
__global__ void __launch_bounds__(block_threads) attention_kernel(AttentionTensors t) {
  __shared__ TileMemory memory;
  const TilePlace place(t, t.heads, t.query_rows, tile_edge, columns, /*last_first=*/true);
  const int64_t key_offset = t.key_offset(place.sample, place.head / t.group),
                output_offset = t.output_offset(place.sample, place.head);
  const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, place.head), t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  float result[4][columns / 16] = {}, total[4] = {}, largest[4];
  for (float& value : largest) value = -FLT_MAX;
  const int64_t last = t.keys_end(place.first, tile_edge);
  for (int64_t first_key = 0; first_key < last; first_key += tile_edge) {
    float scores[4][4] = {};
    add_product_of_rows(memory, queries, place.first, keys, first_key, scores);
    for (int i = 0; i < 4; ++i) {
      const int64_t query = place.first + tile_row(i);
      float largest_here = largest[i];
      for (int j = 0; j < 4; ++j) {
        scores[i][j] *= t.scale;
        if (t.sees(query, first_key + tile_column(j))) largest_here = fmaxf(largest_here, scores[i][j]);
      }
      largest_here = row_max(largest_here);
      float sum = 0;
      for (int j = 0; j < 4; ++j) {
        scores[i][j] = t.sees(query, first_key + tile_column(j)) ? expf(scores[i][j] - largest_here) : 0.0f;
        sum += scores[i][j];
      }
      const float correction = expf(largest[i] - largest_here);
      largest[i] = largest_here;
      total[i] = total[i] * correction + row_sum(sum);
      for (float& value : result[i]) value *= correction;
    }
    add_product_with_tile<columns>(memory, scores, values, first_key, place.first_channel, result);
  }
  for (int i = 0; i < 4; ++i) {
    const int64_t query = place.first + tile_row(i);
    for (float& value : result[i]) value /= total[i];
    if (query < t.query_rows && place.first_channel == 0 && tile_column(0) == 0)
      t.logarithms[(place.sample * t.heads + place.head) * t.query_rows + query] = largest[i] + logf(total[i]);
  }
  store_tile<columns>(result, place, t.of_queries(nullptr, t.output_stride), t.output + output_offset);
}

// From scores and gradients of probabilities of one query and key: the probability, and the score's gradient.
struct QueryStatistics {
  float logarithm, product;
  __device__ QueryStatistics(const AttentionTensors& t, int64_t sample, int64_t head, int64_t query) {
    const int64_t at = (sample * t.heads + head) * t.query_rows + query;
    logarithm = query < t.query_rows ? t.logarithms[at] : 0.0f;
    product = query < t.query_rows ? t.products[at] : 0.0f;
  }
  __device__ float probability(float score) const { return expf(score - logarithm); }
  __device__ float score_gradient(float probability, float gradient) const {
    return probability * (gradient - product);
  }
};

// Gradients of a tile of queries.
template <int columns>
__global__ void __launch_bounds__(block_threads) query_gradients_kernel(AttentionTensors t) {
  __shared__ TileMemory memory;
  const TilePlace place(t, t.heads, t.query_rows, tile_edge, columns, /*last_first=*/true);
  const int64_t query_offset = t.query_offset(place.sample, place.head),
                key_offset = t.key_offset(place.sample, place.head / t.group);
  const HeadRows queries = t.of_queries(t.queries + query_offset, t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset),
                 gradients =
                     t.of_queries(t.output_gradient + t.output_offset(place.sample, place.head), t.output_stride);
  float result[4][columns / 16] = {};
  const int64_t last = t.keys_end(place.first, tile_edge);
  for (int64_t first_key = 0; first_key < last; first_key += tile_edge) {
    float scores[4][4] = {}, changes[4][4] = {};
    add_product_of_rows(memory, queries, place.first, keys, first_key, scores);
    add_product_of_rows(memory, gradients, place.first, values, first_key, changes);
    for (int i = 0; i < 4; ++i) {
      const int64_t query = place.first + tile_row(i);
      const QueryStatistics statistics(t, place.sample, place.head, query);
      for (int j = 0; j < 4; ++j) {
        const bool seen = t.sees(query, first_key + tile_column(j));
        const float probability = seen ? statistics.probability(scores[i][j] * t.scale) : 0.0f;
        scores[i][j] = t.scale * statistics.score_gradient(probability, changes[i][j]);
      }
    }
    add_product_with_tile<columns>(memory, scores, keys, first_key, place.first_channel, result);
  }
  store_tile<columns>(result, place, queries, t.query_gradients + query_offset);
}

// Gradients of a tile of keys and values, from all queries that use them. Its rows are keys, its columns queries.
template <int columns>
__global__ void __launch_bounds__(block_threads) key_gradients_kernel(AttentionTensors t) {
  __shared__ TileMemory memory;
  const TilePlace place(t, t.heads / t.group, t.key_rows, tile_edge, columns, /*last_first=*/false);
  const int64_t key_offset = t.key_offset(place.sample, place.head);
  const HeadRows keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  float of_keys[4][columns / 16] = {}, of_values[4][columns / 16] = {};
  for (int64_t head = place.head * t.group; head < (place.head + 1) * t.group; ++head) {
    const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, head), t.query_stride),
                   gradients = t.of_queries(t.output_gradient + t.output_offset(place.sample, head), t.output_stride);
    for (int64_t first = t.queries_begin(place.first, tile_edge); first < t.query_rows; first += tile_edge) {
      float probabilities[4][4] = {}, changes[4][4] = {};
      add_product_of_rows(memory, keys, place.first, queries, first, probabilities);
      add_product_of_rows(memory, values, place.first, gradients, first, changes);
      for (int j = 0; j < 4; ++j) {
        const int64_t query = first + tile_column(j);
        const QueryStatistics statistics(t, place.sample, head, query);
        for (int i = 0; i < 4; ++i) {
          const bool seen = t.sees(query, place.first + tile_row(i));
          probabilities[i][j] = seen ? statistics.probability(probabilities[i][j] * t.scale) : 0.0f;
          changes[i][j] = t.scale * statistics.score_gradient(probabilities[i][j], changes[i][j]);
        }
      }
      add_product_with_tile<columns>(memory, probabilities, gradients, first, place.first_channel, of_values);
      add_product_with_tile<columns>(memory, changes, queries, first, place.first_channel, of_keys);
    }
  }
  store_tile<columns>(of_keys, place, keys, t.key_gradients + key_offset);
  store_tile<columns>(of_values, place, values, t.value_gradients + key_offset);
}

template <int columns>
void launch_kernels(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  if (!backward) {
    launch(context, tile_blocks(t, samples, t.heads, t.query_rows, tile_edge, columns), block_threads, 0,
           attention_kernel<columns>, t);
    return;
  }
  launch(context, tile_blocks(t, samples, t.heads, t.query_rows, tile_edge, columns), block_threads, 0,
         query_gradients_kernel<columns>, t);
  launch(context, tile_blocks(t, samples, t.heads / t.group, t.key_rows, tile_edge, columns), block_threads, 0,
         key_gradients_kernel<columns>, t);
}

// Of each query's output and its gradient.
void products_with_gradients(const Context& context, const AttentionTensors& t, int64_t samples) {
  for_each_row(context, samples * t.heads * t.query_rows, t.head_channels, [=] __device__(auto row, int64_t index) {
    const int64_t query = index % t.query_rows, head = index / t.query_rows % t.heads,
                  sample = index / t.query_rows / t.heads;
    const int64_t begin = t.output_offset(sample, head) + query * t.output_stride;
    float sum = 0;
    for (int64_t c = row.thread(); c < t.head_channels; c += row.threads)
      sum += t.output[begin + c] * t.output_gradient[begin + c];
    sum = row.sum(sum);
    if (row.thread() == 0) t.products[index] = sum;
  });
}

}  // namespace

// Wider heads than most_channels take several blocks, each of which computes the probabilities.
void attention_products(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  if (backward) products_with_gradients(context, t, samples);
  if (attention_by_tensor_cores(context, t)) attention_products_by_tensor_cores(context, t, samples, backward);
  else if (t.head_channels <= 32) launch_kernels<32>(context, t, samples, backward);
  else if (t.head_channels <= 64) launch_kernels<64>(context, t, samples, backward);
  else launch_kernels<most_channels>(context, t, samples, backward);
}

}  // namespace ff::cuda
