// The products of attention on tensor cores, of bf16, by the algorithm of FlashAttention-2 (Dao 2023, arXiv
// 2307.08691): as attention_tensor_cores.cu, but scores and probabilities stay in registers. Sums, the softmax and its
// gradient are f32; probabilities and gradients of scores are rounded to bf16 for the products that they are operands
// of. Of compute capability 8.0 and newer.
//
// A block has four warps, each `row_tiles` times 16 rows of queries or, for the gradients of keys and values, of keys.
// A warp has its rows' channels in registers as left operands, and its results as sums. The block copies rows of the
// others into shared memory, asynchronously: while it computes with one tile, the next one is copied. Sums of scores
// are in the registers in which a left operand has the same elements (tensor_core_instructions.cuh), so a product takes
// probabilities as they are, rounded.
//
// Rows in shared memory are 16 bytes longer than their channels, so that eight rows of a matrix [8 x 8] are in
// different banks. A load of 512 bytes there takes 4 clock cycles and feeds 2 * row_tiles instructions of 4,096
// operations, of which an H200 does one in about 1.4 cycles.
#include "common/kernels/cuda/attention_tensors.cuh"
#include "common/kernels/cuda/device.cuh"
#include "common/kernels/cuda/tensor_core_instructions.cuh"

namespace ff::cuda {
namespace {

// Not for older devices, where the host does not make this operator's kernel. Code compiled for those ends with an
// error on newer ones.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
#define FF_BF16_TENSOR_CORES 1
#endif

using Tensors = AttentionTensorsOf<Bf16>;

constexpr int warps = 4, threads = 32 * warps;

// By the channels of a head, rounded up: 16 rows of a warp's own, that many times.
constexpr int forward_row_tiles(int columns) { return columns <= 64 ? 2 : 1; }
constexpr int query_gradient_row_tiles(int) { return 1; }
constexpr int key_gradient_row_tiles(int) { return 1; }

constexpr int rows_of_block(int row_tiles) { return 16 * row_tiles * warps; }

#ifdef FF_BF16_TENSOR_CORES

// Rows of the others in shared memory at a time; and of these the ones of which backward has scores in registers.
constexpr int step_rows(int columns) { return columns <= 64 ? 64 : 32; }
constexpr int query_gradient_part(int) { return 32; }
constexpr int key_gradient_part(int columns) { return columns <= 64 ? 32 : 16; }

__device__ inline int lane_number() { return static_cast<int>(threadIdx.x) % 32; }
__device__ inline int warp_number() { return static_cast<int>(threadIdx.x) / 32; }
// A lane's row and first column of sums [16 x 8]; its other row is 8 further on, its other column is the next one.
__device__ inline int own_row() { return lane_number() / 4; }
__device__ inline int own_column() { return lane_number() % 4 * 2; }

// Sums [16 row_tiles, columns], and as many left operands.
template <int row_tiles, int columns>
using SumTiles = float[row_tiles][columns / 8][4];
template <int row_tiles, int columns>
using LeftTiles = uint32_t[row_tiles][columns / 16][4];

// Some rows of one head from one on, with offsets that fit into 32 bits; 0 outside.
struct Rows {
  const Bf16* data;
  int stride, rows, channels;
  bool by_packs;

  __device__ Rows(const Bf16* head, int64_t row_stride, int64_t all, int64_t first, const Tensors& t)
      : data(head + first * row_stride), stride(static_cast<int>(row_stride)),
        rows(static_cast<int>(max(int64_t{0}, min(all - first, int64_t{1} << 20)))),
        channels(static_cast<int>(t.head_channels)), by_packs(t.by_packs) {}

  // From an even channel on.
  __device__ uint32_t pair(int row, int channel) const {
    if (row >= rows || channel >= channels) return 0;
    const Bf16* const from = data + row * stride + channel;
    if (by_packs) return *reinterpret_cast<const uint32_t*>(from);
    return from[0] | (channel + 1 < channels ? static_cast<uint32_t>(from[1]) << 16 : 0);
  }
  __device__ void store_pair(Bf16* result, int row, int channel, uint32_t values) const {
    if (row >= rows || channel >= channels) return;
    Bf16* const to = result + row * stride + channel;
    if (by_packs) {
      *reinterpret_cast<uint32_t*>(to) = values;
      return;
    }
    to[0] = static_cast<Bf16>(values);
    if (channel + 1 < channels) to[1] = static_cast<Bf16>(values >> 16);
  }
};

// Rows of others in shared memory.
template <int columns>
struct alignas(16) Tile {
  static constexpr int stride = columns + 8;
  Bf16 of[step_rows(columns) * stride];

  // By all threads of the block, which commit and wait.
  __device__ void copy(const Rows& rows) {
    constexpr int packs = columns / 8, all = step_rows(columns) * packs;
    static_assert(all % threads == 0);
    const auto place_of = [](int i) { return i * threads + static_cast<int>(threadIdx.x); };
    if (rows.by_packs) {
#pragma unroll
      for (int i = 0; i < all / threads; ++i) {
        const int row = place_of(i) / packs, channel = place_of(i) % packs * 8;
        const bool valid = row < rows.rows && channel < rows.channels;
        copy_async_16(of + row * stride + channel, valid ? rows.data + row * rows.stride + channel : rows.data, valid);
      }
    } else {
#pragma unroll 1
      for (int i = 0; i < all / threads; ++i) {
        const int row = place_of(i) / packs, channel = place_of(i) % packs * 8;
        for (int c = channel; c < channel + 8; c += 2)
          *reinterpret_cast<uint32_t*>(of + row * stride + c) = rows.pair(row, c);
      }
    }
  }
};

// The warp's own rows as left operands.
template <int row_tiles, int columns>
__device__ void load_left(const Rows& rows, LeftTiles<row_tiles, columns>& left) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int k = 0; k < columns / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left[r][k][i] = rows.pair(16 * r + own_row() + i % 2 * 8, 16 * k + own_column() + i / 2 * 8);
}

// Columns from 16 n on of the result += columns from 16 k on of the left operand times `right` [16, 16].
template <int row_tiles, int left_tiles, int result_tiles>
__device__ inline void add_products_of_tile(const uint32_t (&left)[row_tiles][left_tiles][4], int k,
                                            const uint32_t (&right)[4], int n,
                                            float (&result)[row_tiles][result_tiles][4]) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r) {
    multiply_add_bf16(result[r][2 * n], left[r][k], right[0], right[1]);
    multiply_add_bf16(result[r][2 * n + 1], left[r][k], right[2], right[3]);
  }
}

// result [16 row_tiles, others] += left [16 row_tiles, columns] times rows [others, columns] in shared memory,
// transposed.
template <int columns, int others, int row_tiles>
__device__ void add_products_of_rows(const LeftTiles<row_tiles, columns>& left, const Bf16* rows,
                                     SumTiles<row_tiles, others>& result) {
  const Bf16* const own =
      rows + (lane_number() / 16 * 8 + lane_number() % 8) * Tile<columns>::stride + lane_number() / 8 % 2 * 8;
#pragma unroll
  for (int k = 0; k < columns / 16; ++k)
#pragma unroll
    for (int n = 0; n < others / 16; ++n) {
      uint32_t right[4];
      load_matrices(right, own + 16 * n * Tile<columns>::stride + 16 * k);
      add_products_of_tile(left, k, right, n, result);
    }
}

// result [16 row_tiles, columns] += left [16 row_tiles, others] times rows [others, columns] in shared memory.
template <int columns, int others, int row_tiles>
__device__ void add_products(const LeftTiles<row_tiles, others>& left, const Bf16* rows,
                             SumTiles<row_tiles, columns>& result) {
  const Bf16* const own = rows + lane_number() % 16 * Tile<columns>::stride + lane_number() / 16 * 8;
#pragma unroll
  for (int k = 0; k < others / 16; ++k)
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      uint32_t right[4];
      load_transposed_matrices(right, own + 16 * k * Tile<columns>::stride + 16 * n);
      add_products_of_tile(left, k, right, n, result);
    }
}

// Sums as left operands.
template <int row_tiles, int columns>
__device__ void round_sums(const SumTiles<row_tiles, columns>& sums, LeftTiles<row_tiles, columns>& left) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int k = 0; k < columns / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const pair = sums[r][2 * k + i / 2] + i % 2 * 2;
        left[r][k][i] = pack_bf16(pair[0], pair[1]);
      }
}

// The warp's rows of the result, times a factor for each.
template <int row_tiles, int columns, class Factor>
__device__ void store_result(const SumTiles<row_tiles, columns>& sums, const Rows& rows, const Factor& factor,
                             Bf16* result) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        const float* const pair = sums[r][n] + 2 * half;
        rows.store_pair(result, 16 * r + 8 * half + own_row(), 8 * n + own_column(),
                        pack_bf16(pair[0] * factor(r, half), pair[1] * factor(r, half)));
      }
}

// Of the four lanes that have a row of sums; all get the result.
__device__ inline float row_sum(float value) {
  value += __shfl_xor_sync(0xffffffffu, value, 1);
  return value + __shfl_xor_sync(0xffffffffu, value, 2);
}
__device__ inline float row_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return fmaxf(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// A block's rows of one head. Tiles with the same place in their heads are neighbours, those with the most work first.
struct Place {
  int64_t sample, head, first, first_of_warp;
  __device__ Place(int64_t heads, int64_t rows, int row_tiles, bool last_first) {
    const int of_block = rows_of_block(row_tiles);
    const auto tiles = static_cast<unsigned>((rows + of_block - 1) / of_block), all_heads = gridDim.x / tiles,
               number = blockIdx.x / all_heads, of_all_heads = blockIdx.x - number * all_heads;
    sample = of_all_heads / static_cast<unsigned>(heads);
    head = of_all_heads - sample * heads;
    first = static_cast<int64_t>(last_first ? tiles - 1 - number : number) * of_block;
    first_of_warp = first + warp_number() * 16 * row_tiles;
  }
};

// Numbers of keys that queries see: the most of the block's, the most of the warp's, those of the warp's first one.
struct SeenKeys {
  int by_block, by_warp, by_first;
  __device__ SeenKeys(const Tensors& t, const Place& place, int row_tiles)
      : by_block(static_cast<int>(t.keys_end(place.first, rows_of_block(row_tiles)))),
        by_warp(place.first_of_warp < t.query_rows ? static_cast<int>(t.keys_end(place.first_of_warp, 16 * row_tiles))
                                                   : 0),
        by_first(static_cast<int>(t.keys_end(place.first_of_warp, 1))) {}
};

// Of the warp's queries from `first` on and keys from first_key on: calls hide(score) for those that a query does not
// see. `scores` has `others` columns.
template <int others, int row_tiles, class Hide>
__device__ void mask(const Tensors& t, int64_t first, int64_t first_key, const Hide& hide) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int visible = t.visible(first + 16 * r + 8 * half + own_row(), first_key, others) - own_column();
#pragma unroll
      for (int n = 0; n < others / 8; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (8 * n + e >= visible) hide(r, n, 2 * half + e);
    }
}

// The softmax of a warp's rows over all keys so far.
template <int row_tiles>
struct OnlineSoftmax {
  float largest[row_tiles][2], total[row_tiles][2];  // total: of the lane's own columns

  __device__ OnlineSoftmax() {
    for (int r = 0; r < row_tiles; ++r)
      for (int half = 0; half < 2; ++half) largest[r][half] = -INFINITY, total[r][half] = 0;
  }
  // Probabilities in place of scores, of which each row has seen one by now; corrects the result so far.
  template <int others, int columns>
  __device__ void add(float factor, SumTiles<row_tiles, others>& scores, SumTiles<row_tiles, columns>& result) {
#pragma unroll
    for (int r = 0; r < row_tiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = largest[r][half];
#pragma unroll
        for (int n = 0; n < others / 8; ++n)
          most = fmaxf(most, fmaxf(scores[r][n][2 * half], scores[r][n][2 * half + 1]));
        most = row_max(most);
        const float correction = power_of_two((largest[r][half] - most) * factor), least = most * factor;
        largest[r][half] = most;
        float sum = total[r][half] * correction;
#pragma unroll
        for (int n = 0; n < others / 8; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            scores[r][n][e] = power_of_two(scores[r][n][e] * factor - least);
            sum += scores[r][n][e];
          }
        total[r][half] = sum;
#pragma unroll
        for (int n = 0; n < columns / 8; ++n)
          result[r][n][2 * half] *= correction, result[r][n][2 * half + 1] *= correction;
      }
  }
};

// Calls visit(tile of rows, columns / 8, place in the lane's registers) for each of sums [16 row_tiles, columns].
template <int row_tiles, int columns, class Visit>
__device__ void for_each_sum(const Visit& visit) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int n = 0; n < columns / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) visit(r, n, i);
}

// Of a warp's queries from `first` on: the logarithms of forward, base 2, and the products of outputs and their
// gradients, which are stored too. `head`: where the head's statistics begin.
template <int row_tiles, int columns>
__device__ void load_statistics(const Tensors& t, int64_t head, int64_t first, const Rows& outputs,
                                const LeftTiles<row_tiles, columns>& gradients, float (&logarithms)[row_tiles][2],
                                float (&products)[row_tiles][2]) {
  const auto product = [](uint32_t a, uint32_t b) {
    const auto low = [](uint32_t pair) { return f32_of(static_cast<Bf16>(pair)); };
    return low(a) * low(b) + low(a >> 16) * low(b >> 16);
  };
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * r + 8 * half + own_row();
      float sum = 0;
#pragma unroll
      for (int k = 0; k < columns / 16; ++k)
#pragma unroll
        for (int i = half; i < 4; i += 2)
          sum += product(gradients[r][k][i], outputs.pair(row, 16 * k + own_column() + i / 2 * 8));
      products[r][half] = row_sum(sum);
      logarithms[r][half] = row < outputs.rows ? t.logarithms[head + first + row] : 0;
      if (own_column() == 0 && row < outputs.rows) t.products[head + first + row] = products[r][half];
    }
}

#endif  // FF_BF16_TENSOR_CORES

template <int columns>
__global__ void __launch_bounds__(threads, 2) attention_bf16_kernel(Tensors t) {
#ifdef FF_BF16_TENSOR_CORES
  constexpr int row_tiles = forward_row_tiles(columns), step = step_rows(columns);
  struct Memory {
    Tile<columns> keys[2], values[2];
  };
  __shared__ Memory memory;
  const Place place(t.heads, t.query_rows, row_tiles, /*last_first=*/true);
  const int64_t first = place.first_of_warp, key_offset = t.key_offset(place.sample, place.head / t.group);
  const SeenKeys seen(t, place, row_tiles);
  const auto copy = [&](int first_key, int stage) {
    memory.keys[stage].copy(Rows(t.keys + key_offset, t.key_stride, t.key_rows, first_key, t));
    memory.values[stage].copy(Rows(t.values + key_offset, t.key_stride, t.key_rows, first_key, t));
    commit_copies();
  };
  copy(0, 0);
  LeftTiles<row_tiles, columns> queries;
  load_left<row_tiles, columns>(
      Rows(t.queries + t.query_offset(place.sample, place.head), t.query_stride, t.query_rows, first, t), queries);
  SumTiles<row_tiles, columns> result = {};
  OnlineSoftmax<row_tiles> softmax;
  int stage = 0;
  for (int first_key = 0; first_key < seen.by_block; first_key += step, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    if (first_key + step < seen.by_block) copy(first_key + step, stage ^ 1);
    if (first_key >= seen.by_warp) continue;
    SumTiles<row_tiles, step> scores = {};
    add_products_of_rows<columns, step, row_tiles>(queries, memory.keys[stage].of, scores);
    if (first_key + step > seen.by_first)
      mask<step, row_tiles>(t, first, first_key, [&](int r, int n, int i) { scores[r][n][i] = -INFINITY; });
    softmax.template add<step, columns>(t.scale * log2_e, scores, result);
    LeftTiles<row_tiles, step> probabilities;
    round_sums<row_tiles, step>(scores, probabilities);
    add_products<columns, step, row_tiles>(probabilities, memory.values[stage].of, result);
  }
  const int64_t statistics = (place.sample * t.heads + place.head) * t.query_rows + first;
#pragma unroll
  for (int r = 0; r < row_tiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& total = softmax.total[r][half];
      total = row_sum(total);
      const int row = 16 * r + 8 * half + own_row();
      if (own_column() == 0 && first + row < t.query_rows)
        t.logarithms[statistics + row] = softmax.largest[r][half] * t.scale * log2_e + log2f(total);
      total = 1 / total;
    }
  const int64_t output = t.output_offset(place.sample, place.head) + first * t.output_stride;
  store_result<row_tiles, columns>(
      result, Rows(t.output, t.output_stride, t.query_rows, first, t),
      [&](int r, int half) { return softmax.total[r][half]; }, t.output + output);
#else
  __trap();
#endif
}

// Gradients of a tile of queries; and the products of outputs and their gradients, which key gradients need too.
template <int columns>
__global__ void __launch_bounds__(threads, columns <= 64 ? 3 : 2) query_gradients_bf16_kernel(Tensors t) {
#ifdef FF_BF16_TENSOR_CORES
  constexpr int row_tiles = query_gradient_row_tiles(columns), step = step_rows(columns),
                part = query_gradient_part(columns);
  struct Memory {
    Tile<columns> keys[2], values[2];
  };
  __shared__ Memory memory;
  const Place place(t.heads, t.query_rows, row_tiles, /*last_first=*/true);
  const int64_t first = place.first_of_warp, key_offset = t.key_offset(place.sample, place.head / t.group),
                query_offset = t.query_offset(place.sample, place.head),
                output_offset = t.output_offset(place.sample, place.head);
  const SeenKeys seen(t, place, row_tiles);
  const auto copy = [&](int first_key, int stage) {
    memory.keys[stage].copy(Rows(t.keys + key_offset, t.key_stride, t.key_rows, first_key, t));
    memory.values[stage].copy(Rows(t.values + key_offset, t.key_stride, t.key_rows, first_key, t));
    commit_copies();
  };
  copy(0, 0);
  const Rows query_rows(t.queries + query_offset, t.query_stride, t.query_rows, first, t);
  LeftTiles<row_tiles, columns> queries, gradients;
  load_left<row_tiles, columns>(query_rows, queries);
  load_left<row_tiles, columns>(Rows(t.output_gradient + output_offset, t.output_stride, t.query_rows, first, t),
                                gradients);
  float logarithms[row_tiles][2], products[row_tiles][2];
  load_statistics<row_tiles, columns>(t, (place.sample * t.heads + place.head) * t.query_rows, first,
                                      Rows(t.output + output_offset, t.output_stride, t.query_rows, first, t),
                                      gradients, logarithms, products);
  SumTiles<row_tiles, columns> result = {};
  const float factor = t.scale * log2_e;
  int stage = 0;
  for (int first_key = 0; first_key < seen.by_block; first_key += step, stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    if (first_key + step < seen.by_block) copy(first_key + step, stage ^ 1);
#pragma unroll
    for (int begin = 0; begin < step; begin += part) {
      if (first_key + begin >= seen.by_warp) continue;
      const Bf16* const keys = memory.keys[stage].of + begin * Tile<columns>::stride;
      SumTiles<row_tiles, part> scores = {}, changes = {};
      add_products_of_rows<columns, part, row_tiles>(queries, keys, scores);
      add_products_of_rows<columns, part, row_tiles>(gradients, memory.values[stage].of + begin * Tile<columns>::stride,
                                                     changes);
      if (first_key + begin + part > seen.by_first)
        mask<part, row_tiles>(t, first, first_key + begin, [&](int r, int n, int i) { scores[r][n][i] = -INFINITY; });
      for_each_sum<row_tiles, part>([&](int r, int n, int i) {
        const float probability = power_of_two(scores[r][n][i] * factor - logarithms[r][i / 2]);
        scores[r][n][i] = probability * (changes[r][n][i] - products[r][i / 2]);
      });
      LeftTiles<row_tiles, part> rounded;
      round_sums<row_tiles, part>(scores, rounded);
      add_products<columns, part, row_tiles>(rounded, keys, result);
    }
  }
  store_result<row_tiles, columns>(
      result, query_rows, [&](int, int) { return t.scale; }, t.query_gradients + query_offset + first * t.query_stride);
#else
  __trap();
#endif
}

#ifdef FF_BF16_TENSOR_CORES

template <int columns>
struct KeyGradientMemory {
  Tile<columns> queries[2], gradients[2];
  float logarithms[2][step_rows(columns)], products[2][step_rows(columns)];

  // Queries from one on, by all threads of the block. Those behind the last one are zeros, which add nothing.
  __device__ void copy(const Tensors& t, int64_t sample, int64_t head, int64_t first, int stage) {
    queries[stage].copy(Rows(t.queries + t.query_offset(sample, head), t.query_stride, t.query_rows, first, t));
    gradients[stage].copy(
        Rows(t.output_gradient + t.output_offset(sample, head), t.output_stride, t.query_rows, first, t));
    const int row = static_cast<int>(threadIdx.x);
    if (row < step_rows(columns)) {
      const bool valid = first + row < t.query_rows;
      const int64_t at = (sample * t.heads + head) * t.query_rows + (valid ? first + row : 0);
      copy_async_4(&logarithms[stage][row], t.logarithms + at, valid);
      copy_async_4(&products[stage][row], t.products + at, valid);
    }
    commit_copies();
  }
};

#endif  // FF_BF16_TENSOR_CORES

// Gradients of a tile of keys and values, from all queries that use them.
template <int columns>
__global__ void __launch_bounds__(threads, columns <= 64 ? 3 : 2) key_gradients_bf16_kernel(Tensors t) {
#ifdef FF_BF16_TENSOR_CORES
  constexpr int row_tiles = key_gradient_row_tiles(columns), step = step_rows(columns),
                part = key_gradient_part(columns);
  using Memory = KeyGradientMemory<columns>;
  __shared__ Memory memory;
  const Place place(t.heads / t.group, t.key_rows, row_tiles, /*last_first=*/false);
  const int64_t first = place.first_of_warp, key_offset = t.key_offset(place.sample, place.head);
  const Rows key_rows(t.keys + key_offset, t.key_stride, t.key_rows, first, t);
  LeftTiles<row_tiles, columns> keys, values;
  load_left<row_tiles, columns>(key_rows, keys);
  load_left<row_tiles, columns>(Rows(t.values + key_offset, t.key_stride, t.key_rows, first, t), values);
  SumTiles<row_tiles, columns> of_keys = {}, of_values = {};
  const float factor = t.scale * log2_e;
  // Tiles of queries, of one head after the other.
  const int64_t begin_of_head = t.queries_begin(place.first, step), of_group = (place.head + 1) * t.group;
  int64_t head = place.head * t.group, first_query = begin_of_head;
  if (first_query < t.query_rows) memory.copy(t, place.sample, head, first_query, 0);
  for (int stage = 0; first_query < t.query_rows && head < of_group; stage ^= 1) {
    wait_for_copies<0>();
    __syncthreads();
    const int64_t query = first_query;
    first_query += step;
    if (first_query >= t.query_rows) ++head, first_query = begin_of_head;
    if (head < of_group) memory.copy(t, place.sample, head, first_query, stage ^ 1);
#pragma unroll
    for (int begin = 0; begin < step; begin += part) {
      if (first >= t.key_rows || first >= t.keys_end(query + begin, part)) continue;  // no query sees one of the keys
      const Bf16 *const queries = memory.queries[stage].of + begin * Tile<columns>::stride,
                        *const gradients = memory.gradients[stage].of + begin * Tile<columns>::stride;
      SumTiles<row_tiles, part> probabilities = {}, changes = {};
      add_products_of_rows<columns, part, row_tiles>(keys, queries, probabilities);
      add_products_of_rows<columns, part, row_tiles>(values, gradients, changes);
      // How many of the warp's keys the first of these queries sees.
      const int visible = t.causal ? t.visible(query + begin, first, 16 * row_tiles + part) : 16 * row_tiles;
      if (visible < 16 * row_tiles)
        for_each_sum<row_tiles, part>([&](int r, int n, int i) {
          if (16 * r + own_row() + i / 2 * 8 >= visible + 8 * n + own_column() + i % 2)
            probabilities[r][n][i] = -INFINITY;
        });
      float2 logarithms[part / 8], products[part / 8];
#pragma unroll
      for (int n = 0; n < part / 8; ++n) {
        const int column = begin + 8 * n + own_column();
        logarithms[n] = *reinterpret_cast<const float2*>(memory.logarithms[stage] + column);
        products[n] = *reinterpret_cast<const float2*>(memory.products[stage] + column);
      }
      for_each_sum<row_tiles, part>([&](int r, int n, int i) {
        const float logarithm = i % 2 == 0 ? logarithms[n].x : logarithms[n].y,
                    product = i % 2 == 0 ? products[n].x : products[n].y;
        probabilities[r][n][i] = power_of_two(probabilities[r][n][i] * factor - logarithm);
        changes[r][n][i] = probabilities[r][n][i] * (changes[r][n][i] - product);
      });
      LeftTiles<row_tiles, part> rounded;
      round_sums<row_tiles, part>(probabilities, rounded);
      add_products<columns, part, row_tiles>(rounded, gradients, of_values);
      round_sums<row_tiles, part>(changes, rounded);
      add_products<columns, part, row_tiles>(rounded, queries, of_keys);
    }
  }
  const int64_t result = key_offset + first * t.key_stride;
  store_result<row_tiles, columns>(
      of_keys, key_rows, [&](int, int) { return t.scale; }, t.key_gradients + result);
  store_result<row_tiles, columns>(
      of_values, key_rows, [](int, int) { return 1.0f; }, t.value_gradients + result);
#else
  __trap();
#endif
}

unsigned blocks(int64_t samples, int64_t heads, int64_t rows, int row_tiles) {
  const int of_block = rows_of_block(row_tiles);
  return static_cast<unsigned>(samples * heads * ((rows + of_block - 1) / of_block));
}

template <int columns>
void launch_kernels(const Context& context, const Tensors& t, int64_t samples, bool backward) {
  if (!backward) {
    launch(context, blocks(samples, t.heads, t.query_rows, forward_row_tiles(columns)), threads, 0,
           attention_bf16_kernel<columns>, t);
    return;
  }
  launch(context, blocks(samples, t.heads, t.query_rows, query_gradient_row_tiles(columns)), threads, 0,
         query_gradients_bf16_kernel<columns>, t);
  launch(context, blocks(samples, t.heads / t.group, t.key_rows, key_gradient_row_tiles(columns)), threads, 0,
         key_gradients_bf16_kernel<columns>, t);
}

}  // namespace

void attention_products(const Context& context, const AttentionTensorsOf<Bf16>& t, int64_t samples, bool backward) {
  if (t.head_channels <= 32) launch_kernels<32>(context, t, samples, backward);
  else if (t.head_channels <= 64) launch_kernels<64>(context, t, samples, backward);
  else if (t.head_channels <= 96) launch_kernels<96>(context, t, samples, backward);
  else launch_kernels<128>(context, t, samples, backward);
}

}  // namespace ff::cuda
