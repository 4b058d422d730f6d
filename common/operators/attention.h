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
// head_channels]. A part is [sample, length, head]; the heads' channels lie together.
//
// A part of the length has the queries of its positions, and the keys and values of all that these attend to: with a
// causal mask those up to its last one, else all. Parts whose keys and values overlap compute them each (context
// parallelism; ring attention, Liu et al. 2023, arXiv 2310.01889, exchanges them).
//
// With fewer heads of keys and values than of queries (grouped queries: Ainslie et al. 2023, arXiv 2305.13245), head h
// of the queries uses the keys and values of head h / group, where group = heads / key_value_heads. A part is then
// [sample, length, head of keys and values] and has all queries of its heads. In place of weight and bias: query [heads
// * head_channels, channels], key_value [2, key_value_heads * head_channels, channels], query_bias and key_value_bias.
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
  // Of the length without a mask: only how many queries there are.
  bool position_matters(int dimension) const override {
    return dimension == 1 ? causal && !exchanges_keys_ : dimension != 0;
  }
  bool backward_reads_output() const override { return true; }
  int64_t workspace_bytes(const Block& part) const override;
  Work forward_work(const Block& part) const override;
  Work backward_work(const Block& part, bool input_gradients) const override;
  AttentionWork attention_work(const Block& part, bool backward) const override;

  // From now on parts of the length have the keys and values of their own positions, and get those of the others from
  // these, all-gathered forward, and again with the reduction of their gradients backward; with a mask all parts have
  // equal work (each has positions from the begin and from the end of the length). As Megatron-LM and torchtitan do it;
  // for predictions alone, no kernel does.
  void exchange_keys() { exchanges_keys_ = true; }
  int64_t statistics_bytes(const Block& part, bool backward) const override;
  bool gathers_statistics() const override { return true; }
  bool statistics_in_scratch() const override { return exchanges_keys_; }
  bool statistics_span(int dimension) const override { return dimension == 1; }
  int64_t exchanged_bytes(const Block& part) const;  // keys and values of all positions; 0: nothing is exchanged

  bool rotary() const { return rotary_channels > 0; }

  // Positions whose keys and values a part projects.
  Interval key_positions(const Block& part) const {
    return exchanges_keys_ ? part[1] : Interval{0, causal ? part[1].end : length};
  }
  // How many positions its queries attend to, the last of them.
  int64_t keys_of(const Block& part) const { return exchanges_keys_ ? length : key_positions(part).end; }
  // How many queries of a head a CPU takes at once. Their scores, of all keys, stay in a core's second-level cache.
  int64_t tile_queries(const Block& part) const {
    return std::min(part[1].size(), std::clamp<int64_t>(65536 / keys_of(part), 16, 128));
  }
  // Products of a query and a key of each head, in all samples. With a mask twice those that it leaves, so that all
  // parts together have the whole square.
  int64_t scores(const Block& part) const;

  // What a part projects, in one buffer: the rows of its queries and, after these, those of keys and values; or, where
  // parameters and rows are the same, rows with the channels of all three.
  struct Projected {
    // [samples * positions, width]: of each sample's input the rows from `first` on, times the rows from `weight_row`
    // on of a weight, whose bias has the number `parameter` + Projected::weights.
    struct Matrix {
      int64_t begin, width;
      int parameter;
      int64_t weight_row;
      int64_t first, positions;
    };
    int64_t samples;
    int64_t first_query, queries, positions;  // of a sample; positions: of keys and values, and of the input
    int64_t query_width, key_width;           // channels of the part's queries; of its keys, and of its values
    int64_t keys;                             // where they begin; the values key_width further on, the queries at 0
    int64_t query_stride, key_stride;
    int weights;
    Vector<Matrix> matrices;  // the first has all rows of the input
    int64_t query_rows() const { return samples * queries; }
    int64_t key_rows() const { return samples * positions; }
    int64_t key_elements() const { return key_rows() * key_width; }
    int64_t size() const { return query_rows() * query_width + 2 * key_rows() * key_width; }

    // A matrix in products over as many rows at once as lie one after the other in the input too.
    int64_t products(const Matrix& matrix) const { return matrix.positions == positions ? 1 : samples; }
    int64_t rows(const Matrix& matrix) const { return samples / products(matrix) * matrix.positions; }
    // Calls visit(first row of the input, first element of the matrix) for each.
    template <class Visit>
    void for_each_product(const Matrix& matrix, const Visit& visit) const {
      for (int64_t product = 0; product < products(matrix); ++product)
        visit(matrix.first + product * positions, product * rows(matrix) * matrix.width);
    }
  };
  Projected projected(const Block& part) const;
  int64_t turned(const Projected& widths) const;  // elements of queries and keys that rotation changes

  int64_t length, channels, heads, key_value_heads, group, head_channels;
  int64_t rotary_channels = 0;  // of each head; 0: without rotary positions
  double rotary_base;
  bool causal, bias;

 private:
  void read_rotary_channels(const OperatorRequest& request);

  bool exchanges_keys_ = false;
};

}  // namespace ff
