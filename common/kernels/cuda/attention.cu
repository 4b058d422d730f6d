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

// The products of attention, by tiles of 64 queries and 64 keys. Neither scores nor probabilities are there as a whole:
// forward takes a tile of keys after the other and corrects what it has so far (online softmax: Milakov and Gimelshein
// 2018, arXiv 1805.02867; Dao et al. 2022, arXiv 2205.14135). Per query it keeps the logarithm of the sum of
// exponentials, from which backward computes the probabilities of a tile again. Each number is a sum in a fixed order:
// backward has a kernel with a block for each tile of queries and one with a block for each tile of keys.
constexpr int tile_edge = 64, depth_step = 16, most_channels = 128;

// Rows of one head [length, channels]; 0 outside.
struct HeadRows {
  const float* data;
  int64_t stride, rows, channels;
  __device__ float at(int64_t row, int64_t channel) const {
    return row < rows && channel < channels ? data[row * stride + channel] : 0.0f;
  }
};

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

// What the kernels read and write, for all samples and heads. The first of a head's query_rows has the position
// first_query, the first of its key_rows the position 0.
struct AttentionTensors {
  int64_t query_rows, key_rows, first_query, head_channels, heads, group;
  int64_t query_stride, key_stride, output_stride;  // of positions
  bool causal;
  float scale;
  const float *queries, *keys, *values;
  float *query_gradients, *key_gradients, *value_gradients;  // as queries, keys and values
  float* output;
  const float* output_gradient;
  float *logarithms, *products;  // [samples, heads, query_rows]; products: of output and its gradient

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
    return {data, stride, query_rows, head_channels};
  }
  __device__ HeadRows of_keys(const float* data) const { return {data, key_stride, key_rows, head_channels}; }
  __device__ bool sees(int64_t query, int64_t key) const {
    return query < query_rows && key < key_rows && (!causal || key <= first_query + query);
  }
  // Behind the last key that a tile of queries sees.
  __device__ int64_t keys_end(int64_t first) const {
    const int64_t behind = first_query + first + tile_edge;
    return causal && behind < key_rows ? behind : key_rows;
  }
  // The first tile of queries of which one sees these keys.
  __device__ int64_t queries_begin(int64_t first_key) const {
    return causal && first_key > first_query ? (first_key - first_query) / tile_edge * tile_edge : 0;
  }
};

// A block's tile of one head's positions, and of its channels.
struct TilePlace {
  int64_t sample, head, first, first_channel;
  template <int columns>
  __device__ static TilePlace of_block(const AttentionTensors& t, int64_t heads, int64_t rows) {
    const int64_t chunks = (t.head_channels + columns - 1) / columns, tiles = (rows + tile_edge - 1) / tile_edge;
    const int64_t head = blockIdx.x / chunks / tiles;
    return {head / heads, head % heads, blockIdx.x / chunks % tiles * tile_edge, blockIdx.x % chunks * columns};
  }
};

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
  const TilePlace place = TilePlace::of_block<columns>(t, t.heads, t.query_rows);
  const int64_t key_offset = t.key_offset(place.sample, place.head / t.group),
                output_offset = t.output_offset(place.sample, place.head);
  const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, place.head), t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  float result[4][columns / 16] = {}, total[4] = {}, largest[4];
  for (float& value : largest) value = -FLT_MAX;
  const int64_t last = t.keys_end(place.first);
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
  const TilePlace place = TilePlace::of_block<columns>(t, t.heads, t.query_rows);
  const int64_t query_offset = t.query_offset(place.sample, place.head),
                key_offset = t.key_offset(place.sample, place.head / t.group);
  const HeadRows queries = t.of_queries(t.queries + query_offset, t.query_stride),
                 keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset),
                 gradients =
                     t.of_queries(t.output_gradient + t.output_offset(place.sample, place.head), t.output_stride);
  float result[4][columns / 16] = {};
  const int64_t last = t.keys_end(place.first);
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
  const TilePlace place = TilePlace::of_block<columns>(t, t.heads / t.group, t.key_rows);
  const int64_t key_offset = t.key_offset(place.sample, place.head);
  const HeadRows keys = t.of_keys(t.keys + key_offset), values = t.of_keys(t.values + key_offset);
  float of_keys[4][columns / 16] = {}, of_values[4][columns / 16] = {};
  for (int64_t head = place.head * t.group; head < (place.head + 1) * t.group; ++head) {
    const HeadRows queries = t.of_queries(t.queries + t.query_offset(place.sample, head), t.query_stride),
                   gradients = t.of_queries(t.output_gradient + t.output_offset(place.sample, head), t.output_stride);
    for (int64_t first = t.queries_begin(place.first); first < t.query_rows; first += tile_edge) {
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
void compute_attention(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  const int64_t chunks = (t.head_channels + columns - 1) / columns;
  const auto blocks = [&](int64_t heads, int64_t rows) {
    return static_cast<unsigned>(samples * heads * ((rows + tile_edge - 1) / tile_edge) * chunks);
  };
  if (!backward) {
    launch(context, blocks(t.heads, t.query_rows), block_threads, 0, attention_kernel<columns>, t);
    return;
  }
  for_each_index(context, samples * t.heads * t.query_rows, [=] __device__(int64_t index) {
    const int64_t row = index % t.query_rows, head = index / t.query_rows % t.heads,
                  sample = index / t.query_rows / t.heads;
    const int64_t begin = t.output_offset(sample, head) + row * t.output_stride;
    float sum = 0;
    for (int64_t c = 0; c < t.head_channels; ++c) sum += t.output[begin + c] * t.output_gradient[begin + c];
    t.products[index] = sum;
  });
  launch(context, blocks(t.heads, t.query_rows), block_threads, 0, query_gradients_kernel<columns>, t);
  launch(context, blocks(t.heads / t.group, t.key_rows), block_threads, 0, key_gradients_kernel<columns>, t);
}

// Wider heads than most_channels take several blocks, each of which computes the probabilities.
void compute_attention(const Context& context, const AttentionTensors& t, int64_t samples, bool backward) {
  if (t.head_channels <= 32) compute_attention<32>(context, t, samples, backward);
  else if (t.head_channels <= 64) compute_attention<64>(context, t, samples, backward);
  else compute_attention<most_channels>(context, t, samples, backward);
}

// Cosines and sines [length, half] of the angles by which positions are turned. In double precision: far along in a
// sequence an angle in single precision is off by more than the sine's rounding.
void fill_rotation(const Context& context, int64_t length, int64_t half, double base, float* cosines, float* sines) {
  for_each_index(context, length * half, [=] __device__(int64_t i) {
    const double exponent = static_cast<double>(i % half) / static_cast<double>(half),
                 angle = static_cast<double>(i / half) / pow(base, exponent);
    cosines[i] = static_cast<float>(cos(angle));
    sines[i] = static_cast<float>(sin(angle));
  });
}

// Turns channels i and i + half of each head [width], the heads of a row lying together, by the angle of the row's
// position; direction 1, or -1 to turn back, as gradients are. A sample has `positions` rows, from first_position on.
void turn(const Context& context, float* values, int64_t rows, int64_t stride, int64_t heads, int64_t width,
          int64_t first_position, int64_t positions, int64_t half, const float* cosines, const float* sines,
          float direction) {
  for_each_index(context, rows * heads * half, [=] __device__(int64_t index) {
    const int64_t i = index % half, head = index / half % heads, row = index / half / heads;
    const int64_t at = (first_position + row % positions) * half + i;
    float *first = values + row * stride + head * width + i, *second = first + half;
    const float x = *first, y = *second, cosine = cosines[at], sine = direction * sines[at];
    *first = x * cosine - y * sine;
    *second = y * cosine + x * sine;
  });
}

class MultiHeadAttentionKernel : public Kernel {
 public:
  MultiHeadAttentionKernel(const Context& context, const MultiHeadAttention& attention, const Block& part)
      : context_(context), attention_(attention), layout_(attention.projected(part)), samples_(part[0].size()),
        key_heads_(part[2].size()), heads_(key_heads_ * attention.group), channels_(attention.channels),
        head_channels_(attention.head_channels), projected_(context, layout_.size()),
        projected_gradients_(context, projected_.size()), logarithms_(context, samples_ * heads_ * layout_.queries),
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
    compute_attention(context_, tensors(arguments.outputs[0], nullptr), samples_, /*backward=*/false);
  }

  void backward(const KernelArguments& arguments) override {
    compute_attention(context_, tensors(arguments.outputs[0], arguments.output_gradients[0]), samples_,
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
    float *const queries = projected_.data(), *const keys = queries + layout_.keys;
    float *const query_gradients = projected_gradients_.data(), *const key_gradients = query_gradients + layout_.keys;
    return {.query_rows = layout_.queries,
            .key_rows = layout_.positions,
            .first_query = layout_.first_query,
            .head_channels = head_channels_,
            .heads = heads_,
            .group = attention_.group,
            .query_stride = layout_.query_stride,
            .key_stride = layout_.key_stride,
            .output_stride = layout_.query_width,
            .causal = attention_.causal,
            .scale = 1.0f / std::sqrt(static_cast<float>(head_channels_)),
            .queries = queries,
            .keys = keys,
            .values = keys + layout_.key_width,
            .query_gradients = query_gradients,
            .key_gradients = key_gradients,
            .value_gradients = key_gradients + layout_.key_width,
            .output = output,
            .output_gradient = output_gradient,
            .logarithms = logarithms_.data(),
            .products = reinterpret_cast<float*>(context_.scratch())};
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
    const auto turn_heads = [&](int64_t begin, int64_t stride, int64_t heads, int64_t first, int64_t positions) {
      turn(context_, projected.data() + begin, samples_ * positions, stride, heads, head_channels_, first, positions,
           attention_.rotary_channels / 2, cosines_.data(), sines_.data(), direction);
    };
    turn_heads(0, layout_.query_stride, heads_, layout_.first_query, layout_.queries);
    turn_heads(layout_.keys, layout_.key_stride, key_heads_, 0, layout_.positions);
  }

  const Context& context_;
  const MultiHeadAttention& attention_;
  MultiHeadAttention::Projected layout_;
  int64_t samples_, key_heads_, heads_;  // of the part
  int64_t channels_, head_channels_;
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
