// The products of attention on CUDA cores, in f32, by tiles of 64 queries and 64 keys. Neither scores nor probabilities
// are there as a whole: forward takes a tile of keys after the other and corrects what it has so far (online softmax:
// Milakov and Gimelshein 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). Per query it keeps the logarithm
// of the sum of exponentials, from which backward computes the probabilities of a tile again. Each number is a sum in a
// fixed order: backward has a kernel with a block for each tile of queries and one with a block for each tile of keys.
//
// Shared memory has panels of 64 rows and 64 channels, or of 64 rows and the 64 columns of a tile. 128 threads compute
// a tile, thread (r, c) of 8 x 16 its rows r + 8 i and columns c + 16 j, or channels 4 c + j: 8 x 4 numbers. Per four
// channels it reads 8 + 4 groups of four numbers for 128 multiply-adds. A thread's rows of a panel are read by itself
// and the others of its half warp alone, and so is what these write there.
#include "common/kernels/cuda/attention_tensors.cuh"
#include "common/kernels/cuda/device.cuh"

namespace ff::cuda {
namespace {

constexpr int tile_edge = 64, tile_threads = 128, own_rows = 8, own_columns = 4;

__device__ inline int first_row() { return static_cast<int>(threadIdx.x) / 16; }
__device__ inline int first_column() { return static_cast<int>(threadIdx.x) % 16; }
__device__ inline int tile_row(int i) { return first_row() + 8 * i; }
__device__ inline int tile_column(int j) { return first_column() + 16 * j; }

using Tile = float[own_rows][own_columns];

// [64, 64]. Groups of four numbers lie in another order in each of 8 rows, so that 8 threads that read the same columns
// of 8 rows, or neighbouring columns of a row, find them in different banks.
struct Panel {
  float of[tile_edge * tile_edge];

  __device__ float* at(int row, int four) { return of + row * tile_edge + (four ^ (row & 7)) * 4; }
  __device__ float4 four(int row, int number) const {
    return *reinterpret_cast<const float4*>(of + row * tile_edge + (number ^ (row & 7)) * 4);
  }
  // By all threads of the block.
  __device__ void load(const HeadRows& rows, int64_t first, int64_t first_channel) {
    const TileRows tile = rows.from(first);
    const int channel = static_cast<int>(first_channel) + 4 * first_column();
#pragma unroll
    for (int begin = 0; begin < own_rows; begin += 4) {  // more at once do not fit into registers
      float4 values[4];
      tile.read_fours(
          values, [&](int i) { return tile_row(begin + i); }, [&](int) { return channel; });
#pragma unroll
      for (int i = 0; i < 4; ++i) *reinterpret_cast<float4*>(at(tile_row(begin + i), first_column())) = values[i];
    }
  }
  // By a half warp, which has waited for its warp's reads before.
  __device__ void store(const Tile& tile) {
#pragma unroll
    for (int i = 0; i < own_rows; ++i)
#pragma unroll
      for (int j = 0; j < own_columns; ++j) at(tile_row(i), tile_column(j) / 4)[tile_column(j) % 4] = tile[i][j];
    __syncwarp();
  }
};

// How many groups of four numbers there are up to `end`, at most a panel's.
__device__ inline int fours(int64_t end) { return static_cast<int>(end < tile_edge ? (end + 3) / 4 : tile_edge / 4); }

// sums [64, 64] += left [64, 4 depth] times right [64, 4 depth], transposed.
__device__ inline void add_product_of_rows(const Panel& left, const Panel& right, int depth, Tile& sums) {
#pragma unroll 2
  for (int k = 0; k < depth; ++k) {
    float4 of_column[own_columns];
#pragma unroll
    for (int j = 0; j < own_columns; ++j) of_column[j] = right.four(tile_column(j), k);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const float4 of_row = left.four(tile_row(i), k);
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        sums[i][j] += of_row.x * of_column[j].x;
        sums[i][j] += of_row.y * of_column[j].y;
        sums[i][j] += of_row.z * of_column[j].z;
        sums[i][j] += of_row.w * of_column[j].w;
      }
    }
  }
}

// The same of rows of two heads, by panels of 64 channels. Begins and ends with all threads done with both panels, of
// which the right one still has the last channels.
__device__ inline void add_product_of_heads(Panel& left, const HeadRows& left_rows, int64_t first_left, Panel& right,
                                            const HeadRows& right_rows, int64_t first_right, Tile& sums) {
  for (int64_t channel = 0; channel < left_rows.channels; channel += tile_edge) {
    left.load(left_rows, first_left, channel);
    right.load(right_rows, first_right, channel);
    __syncthreads();
    add_product_of_rows(left, right, fours(left_rows.channels - channel), sums);
    __syncthreads();
  }
}

// sums [64, 64 channels] += left [64, 4 depth] times right [4 depth, 64 channels].
__device__ inline void add_product(const Panel& left, const Panel& right, int depth, Tile& sums) {
#pragma unroll 2
  for (int k = 0; k < depth; ++k) {
    float4 of_channels[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) of_channels[e] = right.four(4 * k + e, first_column());
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const float4 four = left.four(tile_row(i), k);
      const float of_row[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums[i][0] += of_row[e] * of_channels[e].x;
        sums[i][1] += of_row[e] * of_channels[e].y;
        sums[i][2] += of_row[e] * of_channels[e].z;
        sums[i][3] += of_row[e] * of_channels[e].w;
      }
    }
  }
}

// The same of several panels of a head's channels, from first_channel on; `loaded`: the first one is there. Ends with
// all threads done.
template <int panels>
__device__ void add_products(const Panel& left, Panel& right, const HeadRows& rows, int64_t first,
                             int64_t first_channel, bool loaded, Tile (&sums)[panels]) {
#pragma unroll
  for (int p = 0; p < panels; ++p) {
    if (p > 0 || !loaded) {
      right.load(rows, first, first_channel + p * tile_edge);
      __syncthreads();
    }
    add_product(left, right, fours(rows.rows - first), sums[p]);
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

template <int panels>
__device__ void store_tiles(const Tile (&values)[panels], const TilePlace& place, const HeadRows& rows, float* result) {
#pragma unroll
  for (int p = 0; p < panels; ++p)
#pragma unroll
    for (int i = 0; i < own_rows; ++i)
      rows.store_four(result, place.first + tile_row(i),
                      static_cast<int>(place.first_channel) + p * tile_edge + 4 * first_column(),
                      make_float4(values[p][i][0], values[p][i][1], values[p][i][2], values[p][i][3]));
}

// How many blocks of a kernel a multiprocessor should have; more need fewer registers.
template <int panels>
constexpr int blocks_at_once = panels == 1 ? 3 : 2;

template <int panels>
__global__ void __launch_bounds__(tile_threads, blocks_at_once<panels>) attention_kernel(AttentionTensors t) {
  __shared__ Panel left, right, value_panel;
  const TilePlace place(t, t.heads, t.query_rows, tile_edge, panels * tile_edge, /*last_first=*/true);
  const int64_t key_offset = t.key_offset(place.sample, place.head / t.group);
  const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, place.head), t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  const bool one_panel = t.head_channels <= tile_edge;
  const float factor = t.scale * log2_e;
  Tile result[panels] = {};
  float total[own_rows] = {}, largest[own_rows];
  for (float& value : largest) value = -FLT_MAX;
  if (one_panel) left.load(queries, place.first, 0);
  const int64_t last = t.keys_end(place.first, tile_edge);
  for (int64_t first_key = 0; first_key < last; first_key += tile_edge) {
    Tile scores = {};
    value_panel.load(values, first_key, place.first_channel);
    if (one_panel) {
      right.load(keys, first_key, 0);
      __syncthreads();
      add_product_of_rows(left, right, fours(t.head_channels), scores);
      __syncthreads();
    } else {
      add_product_of_heads(left, queries, place.first, right, keys, first_key, scores);
    }
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const int visible = t.visible(place.first + tile_row(i), first_key, tile_edge);
      float largest_here = largest[i], sum = 0;
#pragma unroll
      for (int j = 0; j < own_columns; ++j)
        if (tile_column(j) < visible) largest_here = fmaxf(largest_here, scores[i][j]);
      largest_here = row_max(largest_here);
      const float least = largest_here * factor;
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        scores[i][j] = tile_column(j) < visible ? exp2f(scores[i][j] * factor - least) : 0.0f;
        sum += scores[i][j];
      }
      const float correction = exp2f((largest[i] - largest_here) * factor);
      largest[i] = largest_here;
      total[i] = total[i] * correction + row_sum(sum);
#pragma unroll
      for (int p = 0; p < panels; ++p)
        for (float& value : result[p][i]) value *= correction;
    }
    right.store(scores);
    add_products(right, value_panel, values, first_key, place.first_channel, /*loaded=*/true, result);
  }
  for (int i = 0; i < own_rows; ++i) {
    const int64_t query = place.first + tile_row(i);
    for (int p = 0; p < panels; ++p)
      for (float& value : result[p][i]) value /= total[i];
    if (query < t.query_rows && place.first_channel == 0 && first_column() == 0)
      t.logarithms[(place.sample * t.heads + place.head) * t.query_rows + query] =
          largest[i] * t.scale + logf(total[i]);
  }
  store_tiles(result, place, t.of_queries(nullptr, t.output_stride),
              t.output + t.output_offset(place.sample, place.head));
}

// Gradients of a tile of queries.
template <int panels>
__global__ void __launch_bounds__(tile_threads, blocks_at_once<panels>) query_gradients_kernel(AttentionTensors t) {
  __shared__ Panel left, right, changes_panel;
  const TilePlace place(t, t.heads, t.query_rows, tile_edge, panels * tile_edge, /*last_first=*/true);
  const int64_t query_offset = t.query_offset(place.sample, place.head),
                key_offset = t.key_offset(place.sample, place.head / t.group);
  const HeadRows queries = t.of_queries(t.queries + query_offset, t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset),
                 gradients =
                     t.of_queries(t.output_gradient + t.output_offset(place.sample, place.head), t.output_stride);
  Tile result[panels] = {};
  const int64_t last = t.keys_end(place.first, tile_edge);
  for (int64_t first_key = 0; first_key < last; first_key += tile_edge) {
    Tile scores = {}, changes = {};
    add_product_of_heads(left, gradients, place.first, right, values, first_key, changes);
    add_product_of_heads(left, queries, place.first, right, keys, first_key, scores);
#pragma unroll
    for (int i = 0; i < own_rows; ++i) {
      const int64_t query = place.first + tile_row(i);
      const QueryStatistics statistics(t, place.sample, place.head, query);
      const int visible = t.visible(query, first_key, tile_edge);
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        const float probability = tile_column(j) < visible ? statistics.probability(scores[i][j], t.scale) : 0.0f;
        changes[i][j] = t.scale * statistics.score_gradient(probability, changes[i][j]);
      }
    }
    changes_panel.store(changes);
    add_products(changes_panel, right, keys, first_key, place.first_channel, t.head_channels <= tile_edge, result);
  }
  store_tiles(result, place, queries, t.query_gradients + query_offset);
}

// Gradients of a tile of keys and values, from all queries that use them. Its rows are keys, its columns queries.
template <int panels>
__global__ void __launch_bounds__(tile_threads, blocks_at_once<panels>) key_gradients_kernel(AttentionTensors t) {
  __shared__ Panel left, right, tile_panel;
  const TilePlace place(t, t.heads / t.group, t.key_rows, tile_edge, panels * tile_edge, /*last_first=*/false);
  const int64_t key_offset = t.key_offset(place.sample, place.head);
  const HeadRows keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  Tile of_keys[panels] = {}, of_values[panels] = {};
  for (int64_t head = place.head * t.group; head < (place.head + 1) * t.group; ++head) {
    const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, head), t.query_stride),
                   gradients = t.of_queries(t.output_gradient + t.output_offset(place.sample, head), t.output_stride);
    for (int64_t first = t.queries_begin(place.first, tile_edge); first < t.query_rows; first += tile_edge) {
      Tile probabilities = {}, changes = {};
      add_product_of_heads(left, values, place.first, right, gradients, first, changes);
      add_product_of_heads(left, keys, place.first, right, queries, first, probabilities);
#pragma unroll
      for (int j = 0; j < own_columns; ++j) {
        const int64_t query = first + tile_column(j);
        const QueryStatistics statistics(t, place.sample, head, query);
        const int visible = t.visible(query, place.first, tile_edge);
#pragma unroll
        for (int i = 0; i < own_rows; ++i) {
          probabilities[i][j] = tile_row(i) < visible ? statistics.probability(probabilities[i][j], t.scale) : 0.0f;
          changes[i][j] = t.scale * statistics.score_gradient(probabilities[i][j], changes[i][j]);
        }
      }
      tile_panel.store(changes);
      add_products(tile_panel, right, queries, first, place.first_channel, t.head_channels <= tile_edge, of_keys);
      tile_panel.store(probabilities);
      add_products(tile_panel, right, gradients, first, place.first_channel, /*loaded=*/false, of_values);
    }
  }
  store_tiles(of_keys, place, keys, t.key_gradients + key_offset);
  store_tiles(of_values, place, values, t.value_gradients + key_offset);
}

template <int panels>
void launch_kernels(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  constexpr int columns = panels * tile_edge;
  if (!backward) {
    launch(context, tile_blocks(t, samples, t.heads, t.query_rows, tile_edge, columns), tile_threads, 0,
           attention_kernel<panels>, t);
    return;
  }
  launch(context, tile_blocks(t, samples, t.heads, t.query_rows, tile_edge, columns), tile_threads, 0,
         query_gradients_kernel<panels>, t);
  launch(context, tile_blocks(t, samples, t.heads / t.group, t.key_rows, tile_edge, columns), tile_threads, 0,
         key_gradients_kernel<panels>, t);
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

// Heads of more than 128 channels take several blocks, each of which computes the probabilities.
void attention_products(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  if (backward) products_with_gradients(context, t, samples);
  if (attention_by_tensor_cores(context, t)) attention_products_by_tensor_cores(context, t, samples, backward);
  else if (t.head_channels <= tile_edge) launch_kernels<1>(context, t, samples, backward);
  else launch_kernels<2>(context, t, samples, backward);
}

}  // namespace ff::cuda
