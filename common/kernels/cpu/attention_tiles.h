// What multi-head attention computes between its projections, in f32 in any precision: scores, probabilities and the
// sums of values, and their gradients. Scores and probabilities are never there as a whole: a tile of queries has those
// of all of its keys, forward and backward, which computes them again. Per query the logarithm of its sum of
// exponentials is kept.
#pragma once

#include "common/operators/attention.h"
#include "common/vector.h"

namespace ff::cpu {

class AttentionTiles {
 public:
  AttentionTiles(const MultiHeadAttention& attention, const Block& part);

  const MultiHeadAttention::Projected& layout() const { return layout_; }
  // Queries, keys and values, as the layout says; kept from forward to backward.
  float* projected() { return projected_.data(); }
  // Of them; what is written there after backward is lost with the next backward.
  float* projected_gradients() { return projected_gradients_.data(); }

  void forward(float* output);  // turns what is projected
  void backward(const float* output, const float* output_gradient);
  int64_t workspace_bytes() const;

 private:
  // Some queries of a sample's head: where they and their keys and values begin in projected_, their channels in the
  // output, and the first query among those of all samples and heads.
  struct Tile {
    int64_t query, key, value, output, row, rows;
    int64_t keys, seen;  // that any of the queries sees, and that the first one sees
    bool first_of_keys;  // no other tile comes before it with these keys and values
  };

  template <class Visit>
  void for_each_tile(const Visit& visit) const;
  void compute_scores(const Tile& tile, float* scores) const;
  void fill_rotation();
  void turn_queries_and_keys(Vector<float>& values, float direction) const;

  const MultiHeadAttention& attention_;
  const MultiHeadAttention::Projected layout_;
  int64_t samples_, key_heads_, heads_;  // of the part
  int64_t head_channels_;
  float scale_;
  int64_t tile_rows_;
  Vector<float> projected_, projected_gradients_;  // as layout_ says
  Vector<float> logarithms_;                       // [samples, heads, queries], of each query's sum of exponentials
  Vector<float> probabilities_, gradients_;        // of a tile
  Vector<float> cosines_, sines_;                  // [positions, rotary_channels / 2]; empty without rotary positions
};

}  // namespace ff::cpu
