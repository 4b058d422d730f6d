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

// Turns channels i and i + half of each head [width], the heads of a row lying together, by the angle of the row's
// position; direction 1, or -1 to turn back, as gradients are. A sample has `positions` rows, from first_position on.
template <class Element>
void turn(const Context& context, Element* values, int64_t rows, int64_t stride, int64_t heads, int64_t width,
          int64_t first_position, int64_t positions, int64_t half, const float* cosines, const float* sines,
          float direction) {
  for_each_index(context, rows * heads * half, [=] __device__(int64_t index) {
    const int64_t i = index % half, head = index / half % heads, row = index / half / heads;
    const int64_t at = (first_position + row % positions) * half + i;
    Element *first = values + row * stride + head * width + i, *second = first + half;
    const float x = value_of(*first), y = value_of(*second), cosine = cosines[at], sine = direction * sines[at];
    set(*first, x * cosine - y * sine);
    set(*second, y * cosine + x * sine);
  });
}

// Queries and keys that lie as `layout` says, all of them.
template <class Element>
void turn_queries_and_keys(const Context& context, const MultiHeadAttention& attention,
                           const MultiHeadAttention::Projected& layout, Element* projected, const float* cosines,
                           const float* sines, float direction) {
  const auto turn_heads = [&](int64_t begin, int64_t stride, int64_t width, int64_t first, int64_t positions) {
    turn(context, projected + begin, layout.samples * positions, stride, width / attention.head_channels,
         attention.head_channels, first, positions, attention.rotary_channels / 2, cosines, sines, direction);
  };
  turn_heads(0, layout.query_stride, layout.query_width, layout.first_query, layout.queries);
  turn_heads(layout.keys, layout.key_stride, layout.key_width, 0, layout.positions);
}

}  // namespace ff::cuda
