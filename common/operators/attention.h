#pragma once

#include <algorithm>

#include "common/operators/operator.h"

namespace ff {

// Of a recurrent decoder over its encoder's states (Luong et al. 2015, arXiv 1508.04025, equations 5, 7 and 8,
// "general" score):
//   query [batch, features], states [batch, length, channels] -> output [batch, out_features]
//   weights = softmax over the positions of  query score state;  context = sum of weights * states;  output =
//                                            tanh(combine [context; query])
// score [features, channels], combine [out_features, channels + features]. A part of the outputs computes the context
// anew.
class Attention : public OperatorDefinition {
 public:
  explicit Attention(const OperatorRequest& request);

  Block output_block(int, const Block& part) const override { return part; }
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  bool backward_reads_output() const override { return true; }
  int64_t workspace_bytes(const Block& part) const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;

  int64_t features, length, channels, out_features;
};

// Scaled dot-product attention of a sequence to itself (Vaswani et al. 2017, arXiv 1706.03762, section 3.2), with the
// projections to queries, keys and values: [batch, length, channels] -> [batch, length, heads * head_channels], which
// is the same unless heads have another width. weight [3, heads * head_channels, channels], bias [3, heads *
// head_channels]. A part is [sample, head]; the heads' channels lie together.
//
// With fewer heads of keys and values than of queries (grouped queries: Ainslie et al. 2023, arXiv 2305.13245), head h
// of the queries uses the keys and values of head h / group, where group = heads / key_value_heads. A part is then
// [sample, head of keys and values] and has all queries of its heads. In place of weight and bias: query [heads *
// head_channels, channels], key_value [2, key_value_heads * head_channels, channels], query_bias and key_value_bias.
//
// Scores and probabilities [heads, length, length] are computed in tiles and not stored (Dao et al. 2022, arXiv
// 2205.14135). Forward keeps one number per query and head, the logarithm of its sum of exponentials; backward computes
// the scores again, and reads the output.
//
// With rotary positions (Su et al. 2021, arXiv 2104.09864) queries and keys are turned by their position: channels i
// and i + rotary_channels / 2 of each head are a vector in the plane, turned by position * rotary_base^(-2 i /
// rotary_channels). The first rotary_channels of a head are turned, by default all.
class MultiHeadAttention : public OperatorDefinition {
 public:
  explicit MultiHeadAttention(const OperatorRequest& request);

  Block output_block(int output, const Block& part) const override;
  Block input_block(int input, const Block& part) const override;
  Block parameter_block(int parameter, const Block& part) const override;
  std::string attribute_text() const override;
  bool backward_reads_output() const override { return true; }
  int64_t workspace_bytes(const Block& part) const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  AttentionWork attention_work(const Block& part, bool backward) const override;

  bool rotary() const { return rotary_channels > 0; }

  // How many queries of a head a CPU takes at once. Their scores, of all keys, stay in a core's second-level cache.
  int64_t tile_queries() const { return std::min(length, std::clamp<int64_t>(65536 / length, 16, 128)); }

  // What a part projects, in one buffer with a matrix for each weight: rows of [samples, length], in each of them the
  // channels of queries, keys and values; or, with grouped queries, rows of queries, and after these rows of keys and
  // values.
  struct Projected {
    struct Matrix {
      int64_t begin, width;  // [rows, width]
    };
    int64_t rows;
    int64_t query_width, key_width;  // channels of the part's queries; of its keys, and of its values
    int64_t keys;                    // where they begin; the values begin key_width further on, the queries at 0
    int64_t query_stride, key_stride;
    Vector<Matrix> matrices;  // of parameter 0, 1, ...; their biases, if any, are the parameters after
    int64_t size() const { return rows * (query_width + 2 * key_width); }
  };
  Projected projected(const Block& part) const;

  int64_t length, channels, heads, key_value_heads, group, head_channels;
  int64_t rotary_channels = 0;  // of each head; 0: without rotary positions
  double rotary_base;
  bool causal, bias;

 private:
  void read_rotary_channels(const OperatorRequest& request);
};

}  // namespace ff
