// Rotary positions of attention's queries and keys (common/operators/attention.h), of f32 or bf16.
#pragma once

#include "common/kernels/cuda/packs.cuh"
#include "common/operators/attention.h"

namespace ff::cuda {

// Cosines and sines [length, half] of the angles by which positions are turned. In double precision: far along in a
// sequence an angle in single precision is off by more than the sine's rounding.
inline void fill_rotation(const Context& context, int64_t length, int64_t half, double base, float* cosines,
                          float* sines) {
  for_each_index(context, length * half, [=] __device__(int64_t i) {
    const double exponent = static_cast<double>(i % half) / static_cast<double>(half),
                 angle = static_cast<double>(i / half) / pow(base, exponent);
    cosines[i] = static_cast<float>(cos(angle));
    sines[i] = static_cast<float>(sin(angle));
  });
}

// Heads [width] of rows that lie `stride` apart, a row's heads together. A sample has `positions` rows, from
// first_position on.
template <class Element>
struct TurnedHeads {
  Element* values;
  int64_t rows, stride, heads, width, first_position, positions;

  // Turns channels i and i + half of each head by the angle of the row's position, n neighbouring ones at a time;
  // direction 1, or -1 to turn back, as gradients are.
  template <int n>
  void turn(const Context& context, int64_t half, const float* cosines, const float* sines, float direction) const {
    for_each_index(context, rows * heads * (half / n), [=, *this] __device__(int64_t index) {
      const int64_t of_row = heads * (half / n), row = index / of_row, in_row = index - row * of_row,
                    head = in_row / (half / n), i = (in_row - head * (half / n)) * n;
      const int64_t at = (first_position + row % positions) * half + i;
      Element *const first = values + row * stride + head * width + i, *const second = first + half;
      const Pack<float, n> cosine = load<n>(cosines + at), sine = load<n>(sines + at);
      Pack<float, n> x = load_values<n>(first), y = load_values<n>(second);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const float before = x.of[k], turned_sine = direction * sine.of[k];
        x.of[k] = before * cosine.of[k] - y.of[k] * turned_sine;
        y.of[k] = y.of[k] * cosine.of[k] + before * turned_sine;
      }
      store_values(first, x);
      store_values(second, y);
    });
  }
  bool by_packs(int64_t half) const {
    return half % pack_size == 0 && width % pack_size == 0 && stride % pack_size == 0 &&
           elements_before_pack(values) == 0;
  }
};

// Queries and keys that lie as `layout` says, all of them.
template <class Element>
void turn_queries_and_keys(const Context& context, const MultiHeadAttention& attention,
                           const MultiHeadAttention::Projected& layout, Element* projected, const float* cosines,
                           const float* sines, float direction) {
  const int64_t half = attention.rotary_channels / 2, width = attention.head_channels;
  const auto turn_heads = [&](int64_t begin, int64_t stride, int64_t row_width, int64_t first, int64_t positions) {
    const TurnedHeads<Element> heads{
        projected + begin, layout.samples * positions, stride, row_width / width, width, first, positions};
    if (heads.by_packs(half)) heads.template turn<pack_size>(context, half, cosines, sines, direction);
    else heads.template turn<1>(context, half, cosines, sines, direction);
  };
  turn_heads(0, layout.query_stride, layout.query_width, layout.first_query, layout.queries);
  turn_heads(layout.keys, layout.key_stride, layout.key_width, 0, layout.positions);
}

}  // namespace ff::cuda
